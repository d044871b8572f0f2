"""`classify` on tiny models: order, reuse, walls between tenants, items that cannot be scored."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cachestack.classify import ClassifyReport, classify, spread
from cachestack.classifying import WINDOW_ITEMS
from cachestack.engines.transformers.packing import score_whole
from cachestack.engines.transformers.scoring import LabelScorer
from cachestack.errors import ContextTooLong, LabelError, RequestError, UsageError
from cachestack.policy import Policy, PrefixPolicy
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.prefix.rows import LogitRows

pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = ("card", "transfer", "account")
SHARING = ("card", "card arrival", "card payment fee", "transfer", "été")


@pytest.fixture
def run(engine, layer, system) -> Callable[..., ClassifyReport]:
    def call(texts: Any, labels: Any = LABELS, **options: Any) -> ClassifyReport:
        chosen = options.pop("engine", engine)
        policy = options.pop("policy", Policy())
        options = {"prompt": system, "template": "Ticket: {text}"} | options
        return classify(chosen, options.pop("layer", layer), policy, texts, labels, **options)

    return call


def plain_scores(engine, texts, labels, system, template="Ticket: {text}"):
    """Scores by plain causal passes over whole prompts, one list an item."""
    scorer = LabelScorer(engine, labels, prompt=system, template=template)
    model = engine.loaded.model
    return [score_whole(model, scorer.tokenise(text), scorer.labels).scores.tolist() for text in texts]


def plain(engine, texts, labels, system, template="Ticket: {text}"):
    """Labels by plain causal passes over whole prompts."""
    return [labels[s.index(max(s))] for s in plain_scores(engine, texts, labels, system, template)]


@pytest.mark.parametrize("labels", [LABELS, SHARING])
def test_labels_and_scores_are_those_of_whole_prompts(run, engine, system, labels):
    texts = ["where is my card", "été café", "x", "1234", " leading space", "a much longer ticket " * 8, "😀"]
    report = run(texts, labels, baseline=True)
    assert [r.label for r in report] == plain(engine, texts, labels, system)
    assert report.summary.label_mismatches == 0
    assert report.summary.max_logit_diff < 1e-3
    assert report.summary.compared == len(texts)
    assert report.summary.num_whole == 0
    assert report.summary.by_first_token is (labels is LABELS)
    for result, expected in zip(report, plain_scores(engine, texts, labels, system), strict=True):
        assert tuple(result.scores) == labels
        assert list(result.scores.values()) == pytest.approx(expected, abs=1e-3)
        assert result.label == max(result.scores, key=result.scores.__getitem__)
        exponents = {label: math.exp(score) for label, score in result.scores.items()}
        assert result.mass == pytest.approx(sum(exponents.values()))
        assert result.mass <= 1
        assert result.probability == pytest.approx(exponents[result.label] / result.mass)


def test_thousands_of_items_come_back_in_input_order(run, engine, system):
    """More than one window and many packs; every distinct text has one label, wherever it stands."""
    random_texts = random.Random(3)
    distinct = [f"{random_texts.choice(['card', 'transfer', 'é', 'x'])} {n}" * (1 + n % 4) for n in range(30)]
    expected = dict(zip(distinct, plain(engine, distinct, LABELS, system), strict=True))
    assert len(set(expected.values())) > 1, "the labels must differ for their order to be seen"
    texts = [random_texts.choice(distinct) for _ in range(3 * WINDOW_ITEMS + 7)]
    handed: list[str | None] = []
    seen: list[tuple[int, int]] = []

    def on_results(start, labels):
        assert start == len(handed)
        handed.extend(label.label for label in labels)

    report = run(texts, on_results=on_results, progress=lambda done, total: seen.append((done, total)))
    assert [r.label for r in report] == [expected[text] for text in texts] == handed
    assert seen[-1] == (len(texts), len(texts))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_two_hundred_labels(run, engine, system):
    labels = [f"{kind} {n}" for kind in ("card", "transfer", "account", "été") for n in range(50)]
    texts = ["where is my card", "x"]
    report = run(texts, labels, baseline=True)
    assert report.summary.label_mismatches == 0
    for result, expected in zip(report, plain_scores(engine, texts, labels, system), strict=True):
        assert list(result.scores.values()) == pytest.approx(expected, abs=1e-3)


def test_a_second_call_finds_the_prefix_warm_and_says_the_same(run, layer):
    texts = ["where is my card", "a transfer"]
    cold, warm = run(texts, tenant="acme"), run(texts, tenant="acme")
    assert cold.summary.cached_tokens == 0
    assert warm.summary.cached_tokens == warm.summary.prefix_tokens == cold.summary.prefix_tokens > 16
    assert warm.results == cold.results
    layer.pool.check_integrity()
    assert layer.sizes().num_leased == 0


def test_another_tenant_finds_nothing_of_it(run):
    run(["where is my card"], tenant="acme")
    assert run(["where is my card"], tenant="other").summary.cached_tokens == 0


def test_leases_end_when_a_callback_raises(run, layer):
    def stop(start, labels):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(["where is my card"], on_results=stop)
    assert layer.sizes().num_leased == 0


def test_a_pool_too_small_for_the_prefix_changes_no_result(run):
    small = PrefixLayer(BlockPool(max_bytes=1000), secret=b"secret")
    report = run(["where is my card", "x"], layer=small, baseline=True)
    assert report.summary.label_mismatches == 0
    assert report.summary.prefix_tokens > 16
    assert small.pool.num_bytes == 0


def test_a_prefix_too_short_to_keep_is_shared_by_the_items_but_not_kept(run, layer):
    report = run(["x", "card"], prompt="", template="{text}", baseline=True)
    assert report.summary.reason == "prefix_too_short"
    assert 0 < report.summary.prefix_tokens < 16
    assert report.summary.num_whole == report.summary.label_mismatches == 0
    assert layer.pool.num_bytes == 0


def test_a_single_item_pays_no_pass_for_a_prefix_too_short_to_keep(run, layer, passes, monkeypatch):
    monkeypatch.setattr(LabelScorer, "compute", None)
    report = run(["x"], prompt="", template="{text}", baseline=True)
    assert (report.summary.reason, report.summary.num_whole) == ("prefix_too_short", 1)
    assert report.summary.label_mismatches == report.summary.max_logit_diff == 0


def test_prefix_layer_switched_off_computes_whole_prompts(run, layer):
    report = run(["where is my card", "x"], policy=Policy(prefix=PrefixPolicy(enabled=False)))
    assert report.summary.num_whole == 2
    assert report.summary.reason == "disabled"
    assert report.summary.static_share == 0
    assert layer.pool.num_bytes == 0


@pytest.mark.parametrize("labels", [LABELS, SHARING])
def test_a_model_whose_cache_cannot_be_kept_runs_whole(run, make_engine, system, labels):
    engine = make_engine(sliding_window=8)
    texts = ["where is my card", "a transfer"]
    report = run(texts, labels, engine=engine, baseline=True)
    assert report.summary.reason == "unsupported_cache"
    assert report.summary.num_whole == 2
    assert [r.label for r in report] == plain(engine, texts, labels, system)


def test_items_that_cannot_be_scored_do_not_lose_the_others(run, engine, system):
    texts = ["where is my card", "", "  \n", "long " * 2000, "\ud83d", None, "x"]
    report = run(texts, baseline=True)
    good = [0, 6]
    assert [i for i, r in enumerate(report) if r.error is None] == good
    assert [report[i].label for i in good] == plain(engine, [texts[i] for i in good], LABELS, system)
    assert all(r.label is None and r.probability is None for i, r in enumerate(report) if i not in good)
    assert report[1].error == report[2].error == "the text is empty"
    assert "1024" in report[3].error
    assert "Unicode" in report[4].error
    assert "NoneType" in report[5].error
    assert report.summary.num_errors == 5
    assert report.summary.compared == 2


def test_whole_labels_need_room_in_the_context_too(make_engine, layer, system):
    engine = make_engine(max_position_embeddings=256)
    scorer = LabelScorer(engine, LABELS, prompt=system, template="{text}")
    room = 256 - len(scorer.tokenise("a"))
    texts = ["a" + " é" * n for n in range(room)]
    report = classify(engine, layer, Policy(), texts, ["card arrival 123", "card arrival 456"], prompt=system)
    lengths = [len(scorer.tokenise(t)) if r.error is None else None for t, r in zip(texts, report, strict=True)]
    fitting = [n for n in lengths if n is not None]
    assert report.summary.num_errors > 0
    assert fitting
    assert max(fitting) < 256 - 2


def test_output_that_is_not_a_number_is_an_error_of_the_item(make_engine, layer, system):
    engine = make_engine()
    (bad,) = engine.loaded.tokenizer("7", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        engine.loaded.model.model.embed_tokens.weight[bad] = float("nan")
    report = classify(engine, layer, Policy(), ["a", "7", "b"], LABELS, prompt=system)
    assert [r.error is None for r in report] == [True, False, True]
    assert "not a number" in report[1].error


@pytest.mark.parametrize("scores", ["sum", "prior"])
def test_a_model_that_is_changed_in_the_middle_answers_as_what_it_is(make_engine, layer, system, scores):
    """An adapter switched, say: no pass of the new model over KV of the old one, nor its prior or its kept rows."""
    engine, rows = make_engine(), LogitRows(10**7, b"secret")
    options = {"prompt": system, "template": "Ticket: {text}", "scores": scores}
    texts = [f"ticket {n} about a card" for n in range(60)]
    classify(engine, layer, Policy(), texts, LABELS, rows=rows, **options)
    weight = engine.loaded.model.model.layers[0].self_attn.v_proj.weight

    def change(start, labels):
        if start == 0:
            with torch.no_grad():
                weight.mul_(-1)

    texts = [f"{text}!" for text in texts]
    report = classify(engine, layer, Policy(), [*texts, *texts], LABELS, rows=rows, on_results=change, **options)
    expected = classify(engine, PrefixLayer(BlockPool(10**7), b"s"), Policy(), texts, LABELS, **options)
    assert report[59].scores == pytest.approx(expected[59].scores, abs=1e-3)
    assert report[119] == report[59]
    assert report[0].scores != pytest.approx(expected[0].scores, abs=1e-3)
    assert layer.sizes().num_leased == 0


def test_a_prefix_that_is_no_number_counts_as_nothing_reused(make_engine, layer, system, monkeypatch):
    """Half of it is kept, the rest cannot be computed: everything is computed whole."""
    engine = make_engine()
    classify(engine, layer, Policy(), ["x"], LABELS, prompt=system)
    monkeypatch.setattr(LabelScorer, "compute", lambda *_, **__: None)
    summary = classify(engine, layer, Policy(), ["x", "y"], LABELS, prompt=system, template="And {text}").summary
    assert (summary.reason, summary.num_whole) == ("not_finite", 2)
    assert (summary.prefix_tokens, summary.cached_tokens, summary.reused_tokens) == (0, 0, 0)


def test_no_items_give_an_empty_report(run):
    report = run([], baseline=True)
    assert len(report) == 0
    assert report.summary.to_json()["items"] == 0
    assert report.summary.static_share is None


def test_one_item_one_label(run):
    report = run(["x"], ["card"])
    assert report[0].label == "card"
    assert report[0].probability == 1


def test_without_a_comparison_its_figures_are_null(run):
    document = run(["x"]).summary.to_json()
    for key in ("baseline_seconds", "speedup", "label_mismatches", "max_logit_diff"):
        assert document[key] is None
    assert document["compared"] == 0


def test_verify_compares_without_claiming_a_baseline(run):
    summary = run(["x", "y", "where", "card", "b"], verify=2).summary
    assert summary.compared == 2
    assert summary.label_mismatches == 0
    assert summary.baseline_s is None


def test_a_mismatch_is_counted(run, monkeypatch):
    """Whole prompts made to answer otherwise: the comparison must see it."""
    whole = LabelScorer.whole

    def other(self, ids):
        result = whole(self, ids)
        return type(result)(tuple(-s for s in result.scores), result.row + 0.5)

    monkeypatch.setattr(LabelScorer, "whole", other)
    summary = run(["x", "y"], baseline=True).summary
    assert summary.label_mismatches == 2
    assert summary.max_logit_diff == pytest.approx(0.5, abs=1e-3)


def test_times_and_speedup_come_from_the_timer(run):
    ticks = iter(range(1000))
    summary = run(["x"], baseline=True, timer=lambda: float(next(ticks))).summary
    # One tick each: tokenising, prefix, pack; then the comparison, which also pays for tokenising.
    assert summary.seconds == 3
    assert summary.baseline_s == 2
    assert summary.speedup == pytest.approx(2 / 3)


def test_only_the_text_is_replaced_in_a_template(run, engine, system):
    template = 'Ticket: {"text": {text}, "more": "{other} %s {0}"}'
    texts = ["a {text} inside", "x"]
    report = run(texts, template=template, baseline=True)
    assert report.summary.num_errors == report.summary.label_mismatches == 0
    assert [r.label for r in report] == plain(engine, texts, LABELS, system, template)
    ids = LabelScorer(engine, LABELS, prompt=system, template=template).tokenise("a {text} inside")
    shown = engine.loaded.tokenizer.decode(ids)
    assert 'Ticket: {"text": a {text} inside, "more": "{other} %s {0}"}' in shown


def test_text_at_the_very_beginning_of_the_user_message(run, engine, system):
    texts = ["where", " where", "\nwhere", "1", "é"]
    report = run(texts, template="{text}", baseline=True)
    assert report.summary.label_mismatches == 0
    assert report.summary.num_whole == 0


def test_an_item_that_merges_with_what_stands_before_it_is_computed_whole(make_engine, make_tokenizer, layer, system):
    """Spaces are part of words here, so that a text can change the tokens before it. No probe or first item does."""
    engine = make_engine(make_tokenizer("words", template=None))
    template = "Ticket: it is a trans{text}"
    scorer = LabelScorer(engine, LABELS, prompt=system, template=template)
    ordinary = [f"0{n}" for n in range(40)]
    prefix = scorer.stable_tokens([scorer.tokenise(t) for t in ordinary[:32]])
    merging = "fer" if scorer.tokenise("fer")[: len(prefix)] != prefix else None
    assert merging, "the vocabulary of this test must merge 'trans' and 'fer'"
    shorter = classify(engine, layer, Policy(), [merging, *ordinary], LABELS, prompt=system, template=template)
    assert shorter.summary.num_whole == 0, "among the first items, it only makes the prefix shorter"
    assert 0 < shorter.summary.prefix_tokens < len(prefix)
    report = classify(
        engine, layer, Policy(), [*ordinary, merging], LABELS, prompt=system, template=template, baseline=True
    )
    assert report.summary.num_whole == 1
    assert report.summary.label_mismatches == 0
    assert report[40].label == plain(engine, [merging], LABELS, system, template)[0]


def test_a_prompt_without_system_role_is_still_reused(make_engine, make_tokenizer, layer, system):
    template = (
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    engine = make_engine(make_tokenizer(template=template))
    report = classify(engine, layer, Policy(), ["x", "card"], LABELS, prompt=system, baseline=True)
    assert report.summary.num_errors == report.summary.label_mismatches == report.summary.num_whole == 0
    assert report.summary.static_share > 0.7


@pytest.mark.parametrize(
    ("labels", "options", "error", "says"),
    [
        (LABELS, {"template": "Ticket"}, UsageError, "{text}"),
        (LABELS, {"verify": -1}, UsageError, "-1"),
        ("card", {}, LabelError, "not one text"),
        ([], {}, LabelError, "at least one"),
        (["card", ""], {}, LabelError, "label 2 of 2"),
    ],
)
def test_wrong_calls_are_named_before_a_model_is_opened(layer, labels, options, error, says):
    from cachestack.engines.transformers.engine import TransformersEngine

    def never():
        raise AssertionError("the model was opened")

    engine = TransformersEngine("no-such-model", digests_path=never)
    with pytest.raises(error, match=says):
        classify(engine, layer, Policy(), ["x"], labels, **({"prompt": "p"} | options))


def test_labels_may_be_any_iterable(run):
    assert [label.label in LABELS for label in run(["x"], (label for label in LABELS))] == [True]


def test_a_prompt_that_leaves_no_room_is_one_error(run):
    with pytest.raises(ContextTooLong, match=r"the prompt has \d+ tokens, and the context of .* holds \d+"):
        run(["x", "y"], prompt="word " * 5000)


def test_text_that_is_not_unicode_is_named_wherever_it_stands(run):
    for options in ({"prompt": "\ud83d"}, {"template": "\ud83d {text}"}):
        with pytest.raises(RequestError, match="not valid Unicode"):
            run(["x"], **options)


def test_a_single_text_is_not_taken_for_a_list_of_letters(run):
    with pytest.raises(UsageError, match="list"):
        run("where is my card")


@pytest.mark.parametrize(
    ("num_items", "num_chosen", "expected"),
    [(10, 0, ()), (10, 1, (0,)), (10, 2, (0, 9)), (10, 4, (0, 3, 6, 9)), (3, 9, (0, 1, 2)), (0, 5, ()), (1, 5, (0,))],
)
def test_spread(num_items, num_chosen, expected):
    assert spread(num_items, num_chosen) == expected
