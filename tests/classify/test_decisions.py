"""Scores, abstaining, and questions asked before: from the labels' sums to what a caller gets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.classify import ClassifyReport, classify
from cachestack.engines.transformers.packing import score_whole
from cachestack.engines.transformers.scoring import CONTENT_FREE, LabelScorer
from cachestack.errors import UsageError
from cachestack.labelling import Decider, Deciding, is_number, prior_of
from cachestack.policy import Policy
from cachestack.prefix.rows import LogitRows

pytestmark = pytest.mark.usefixtures("one_thread")
DISTINCT = ("card", "transfer payment fee", "account")
SHARING = ("card", "card arrival", "card payment fee", "transfer", "été")
TEXTS = ["where is my card", "été café", "x", "a much longer ticket " * 8]


@pytest.fixture
def rows():
    return LogitRows(1_000_000, b"secret")


@pytest.fixture
def run(engine, layer, system) -> Callable[..., ClassifyReport]:
    def call(texts: Any, labels: Any = DISTINCT, **options: Any) -> ClassifyReport:
        options = {"prompt": system, "template": "Ticket: {text}"} | options
        chosen, policy = options.pop("engine", engine), options.pop("policy", Policy())
        return classify(chosen, layer, policy, texts, labels, **options)

    return call


def plain_sums(engine, texts, labels, system, *, whole=False):
    """The labels' sums by plain causal passes, and how many tokens each is made of."""
    scorer = LabelScorer(engine, labels, prompt=system, template="Ticket: {text}", whole=whole)
    model = engine.loaded.model
    return [score_whole(model, scorer.tokenise(text), scorer.labels).scores.tolist() for text in texts], scorer.labels


@pytest.mark.parametrize("labels", [DISTINCT, SHARING])
def test_mean_is_per_token_of_the_whole_label(run, engine, system, labels):
    report = run(TEXTS, labels, scores="mean", baseline=True)
    sums, label_set = plain_sums(engine, TEXTS, labels, system, whole=True)
    assert report.summary.label_mismatches == 0
    assert not report.summary.by_first_token
    assert report.summary.scores == "mean"
    lengths = [len(ids) + (i in label_set.must_end) for i, ids in enumerate(label_set.ids)]
    assert max(lengths) > 1
    for result, expected in zip(report, sums, strict=True):
        means = [s / n for s, n in zip(expected, lengths, strict=True)]
        assert list(result.scores.values()) == pytest.approx(means, abs=1e-3)
        assert result.label == labels[means.index(max(means))]
        assert result.mass == pytest.approx(sum(map(math.exp, expected)), abs=1e-3)


@pytest.mark.parametrize("labels", [DISTINCT, SHARING])
def test_prior_is_what_the_labels_have_without_content(run, engine, system, labels):
    report = run(TEXTS, labels, scores="prior", baseline=True)
    sums, _ = plain_sums(engine, TEXTS, labels, system)
    free, _ = plain_sums(engine, CONTENT_FREE, labels, system)
    assert report.summary.label_mismatches == 0
    assert report.summary.by_first_token is (labels is DISTINCT)
    prior = [math.log(math.fsum(map(math.exp, column)) / len(free)) for column in zip(*free, strict=True)]
    for result, expected in zip(report, sums, strict=True):
        corrected = [s - p for s, p in zip(expected, prior, strict=True)]
        assert list(result.scores.values()) == pytest.approx(corrected, abs=1e-3)
        assert result.mass == pytest.approx(sum(map(math.exp, expected)), abs=1e-3)
        exponents = [math.exp(c - max(corrected)) for c in corrected]
        assert result.probability == pytest.approx(1 / sum(exponents), abs=1e-3)


def test_the_prior_is_computed_once_and_in_one_pack(run, passes):
    run([f"ticket {n} " * 9 for n in range(10)], scores="prior")
    assert sum(passes) == 10 + len(CONTENT_FREE)
    assert passes.count(len(CONTENT_FREE)) == 1


def test_a_model_whose_cache_cannot_be_kept_has_all_scores_too(run, make_engine, system):
    engine = make_engine(sliding_window=8)
    for scores in ("mean", "prior"):
        report = run(TEXTS[:2], SHARING, engine=engine, scores=scores, baseline=True)
        assert report.summary.label_mismatches == report.summary.num_errors == 0


numbers = st.floats(-700, 0)


@given(sums=st.lists(numbers, min_size=1, max_size=6), data=st.data())
def test_shares_add_up_whatever_compares(sums, data):
    n = len(sums)
    labels = tuple(map(str, range(n)))
    lengths = tuple(data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)))
    prior = tuple(data.draw(st.lists(st.one_of(numbers, st.just(-math.inf)), min_size=n, max_size=n)))
    for kind in ("sum", "mean", "prior"):
        decider = Decider(labels, lengths, Deciding(kind), prior)
        label = decider.label(sums)
        assert label.error is None
        assert label.label == labels[decider.best(sums)] == max(label.scores, key=label.scores.__getitem__)
        assert 1 / n - 1e-9 <= label.probability <= 1
        assert label.mass == pytest.approx(min(1, sum(map(math.exp, sums))))


@given(inputs=st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=4))
def test_a_prior_is_an_average_of_probabilities(inputs):
    for column, prior in zip(zip(*inputs, strict=True), prior_of(inputs), strict=True):
        assert math.exp(prior) == pytest.approx(sum(map(math.exp, column)) / len(column), rel=1e-9)
        assert min(column) - 1e-9 <= prior <= max(column) + 1e-9


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["sum", "mean", "prior"])
def test_what_is_no_number_decides_nothing(bad, kind):
    decider = Decider(("a", "b"), (1, 2), Deciding(kind), (-1.0, -2.0))
    assert decider.label([bad, -1.0]).error == "the model's output is not a number"
    assert decider.label([-math.inf, -math.inf]).error
    assert decider.label([-math.inf, -1.0]).label == "b"
    assert not is_number([bad, 0.0])
    poisoned = Decider(("a", "b"), (1, 1), Deciding("prior"), prior_of([[math.nan, -1.0]]))
    assert poisoned.label([-1.0, -1.0]).error


def test_below_a_threshold_the_result_abstains_and_says_why(run):
    plain = run(TEXTS)
    shares = sorted(label.probability for label in plain)
    masses = sorted(label.mass for label in plain)
    for option, values, least in (
        ("min_probability", [label.probability for label in plain], shares[2]),
        ("min_mass", [label.mass for label in plain], masses[2]),
    ):
        report = run(TEXTS, **{option: least}, baseline=True)
        assert [label.abstained for label in report] == [value < least for value in values]
        assert report.summary.num_abstained == 2
        assert report.summary.num_errors == report.summary.label_mismatches == 0
        for label, before in zip(report, plain, strict=True):
            assert (label.probability, label.mass, label.scores) == (before.probability, before.mass, before.scores)
            assert label.label == (None if label.abstained else before.label)
            assert label.abstained is (f"below {least:g}" in (label.why or ""))
            assert label.error is None


@pytest.mark.parametrize("option", ["min_probability", "min_mass"])
@pytest.mark.parametrize("value", [-0.1, 1.01, math.nan, "0.5", True])
def test_a_threshold_is_a_share(run, option, value):
    with pytest.raises(UsageError, match=f"{option} is a share from 0 to 1"):
        run(["x"], **{option: value})


def test_unknown_scores_are_named(run):
    with pytest.raises(UsageError, match="there are: sum, mean, prior"):
        run(["x"], scores="max")


@pytest.mark.parametrize("labels", [DISTINCT, SHARING])
def test_the_same_text_within_a_run_is_computed_once(run, labels, passes):
    texts = ["card", "x", "card", "été", "x", "card"]
    report = run(texts, labels)
    assert sum(passes) == 3
    assert report.summary.num_repeated == 3
    alone = {text: run([text], labels, tenant=text)[0] for text in set(texts)}
    for text, label in zip(texts, report, strict=True):
        assert label.label == alone[text].label
        assert label.scores == pytest.approx(alone[text].scores, abs=1e-3)
    assert report[0] == report[2] == report[5]


def test_what_an_earlier_run_asked_costs_no_pass(run, rows, layer, monkeypatch):
    first = run(TEXTS, rows=rows)
    monkeypatch.setattr(LabelScorer, "score", lambda *_: pytest.fail("a pass was made"))
    again = run(TEXTS, rows=rows)
    assert again.results == first.results
    summary = again.summary
    assert (summary.num_repeated, summary.num_whole, summary.static_share) == (len(TEXTS), 0, None)
    assert summary.reused_tokens == summary.prompt_tokens == first.summary.prompt_tokens
    layer.pool.check_integrity()
    rows.check_integrity()


def test_another_tenant_and_another_model_find_none_of_it(run, rows, make_engine):
    run(TEXTS, rows=rows, tenant="acme")
    assert run(TEXTS, rows=rows, tenant="other").summary.num_repeated == 0
    assert run(TEXTS, rows=rows, tenant="acme", engine=make_engine(hidden_size=16)).summary.num_repeated == 0


def test_the_yardstick_takes_nothing_from_what_was_kept(run, rows, monkeypatch):
    """A comparison with kept rows would compare a result with itself."""
    run(TEXTS, rows=rows)
    whole, calls = LabelScorer.whole, []

    def counted(self, ids):
        calls.append(ids)
        return whole(self, ids)

    monkeypatch.setattr(LabelScorer, "whole", counted)
    summary = run(TEXTS, rows=rows, baseline=True).summary
    assert len(calls) == summary.compared == summary.num_repeated == len(TEXTS)
    assert summary.label_mismatches == 0
    assert 0 < summary.max_logit_diff < 1e-3
    calls.clear()
    run(TEXTS, rows=rows, scores="prior", verify=2)
    assert len(calls) == 2 + len(CONTENT_FREE), "its prior is its own"


def test_rows_of_a_pack_do_not_hold_on_to_the_pack(engine, system):
    scorer = LabelScorer(engine, DISTINCT, prompt=system, template="{text}")
    ids = [scorer.tokenise(text) for text in TEXTS]
    n = len(scorer.stable_tokens(ids))
    run = scorer.compute((), ids[0][:n])
    assert run is not None
    for scored in scorer.score((run,), [i[n:] for i in ids]):
        row = scorer.keepable(scored)
        assert row is not None
        assert row.payload.untyped_storage().nbytes() == row.num_bytes
        assert scorer.scores_of(row.payload).scores == scored.scores


def test_repeats_of_an_item_that_stays_whole_and_of_one_that_fails(run, make_engine, rows):
    report = run(["fer", "x", "fer", "", ""], template="Ticket: trans{text}", rows=rows, baseline=True)
    assert [bool(label.error) for label in report] == [False, False, False, True, True]
    assert report[0] == report[2]
    assert report.summary.label_mismatches == 0
    assert report.summary.num_repeated == 1


def test_an_interruption_in_the_middle_leaves_nothing_leased_and_keeps_what_was_done(run, rows, layer, monkeypatch):
    score, calls = LabelScorer.score, iter(range(100))

    def interrupted(self, past, suffixes):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return score(self, past, suffixes)

    texts = [f"where is my card {n} " * 5 for n in range(30)]
    done: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(LabelScorer, "score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(texts, rows=rows, on_results=lambda start, labels: done.append(len(labels)))
    assert layer.sizes().num_leased == 0
    layer.pool.check_integrity()
    rows.check_integrity()
    assert run(texts, rows=rows).summary.num_repeated == sum(done) > 0
