"""`stack.score`: what `classify` says, text by text, from many threads, and no pass for what was asked before."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from cachestack.engines.transformers.scoring import LabelScorer
from cachestack.errors import ContextTooLong, EngineError, LabelError, RequestError, UsageError
from cachestack.policy_set import PolicySet
from cachestack.recent import Recent
from tests.score.conftest import until

pytestmark = pytest.mark.usefixtures("one_thread")
LABELS = ("card", "transfer", "account")
SHARING = ("card", "card arrival", "card payment fee", "transfer", "été")
TEXTS = ["where is my card", "été café", "x", "1234", " leading space", "a much longer ticket " * 8, "😀", "trans"]


@pytest.fixture
def options(system):
    return {"labels": LABELS, "prompt": system, "template": "Ticket: {text}", "tenant": "acme"}


def is_quiet(stack):
    stack._prefix.pool.check_integrity()
    stack._scoring.rows.check_integrity()
    return stack.memory().num_leased == 0


@pytest.mark.parametrize("labels", [LABELS, SHARING])
@pytest.mark.parametrize("scores", ["sum", "mean", "prior"])
def test_alone_it_is_what_classify_says_bit_for_bit(make_stack, options, labels, scores):
    one, other = make_stack(), make_stack()
    for text in TEXTS[:4]:
        options |= {"labels": labels, "scores": scores, "tenant": f"tenant {text}"}
        (expected,) = other.classify([text], **options)
        assert one.score(text, **options) == expected
    assert is_quiet(one)


def test_a_repeated_question_costs_no_pass(stack, options, passes):
    first = stack.score(TEXTS[0], **options)
    passes.clear()
    assert stack.score(TEXTS[0], **options) == first
    assert stack.classify(TEXTS[:1], **options)[0] == first
    assert passes == []
    other = stack.score(TEXTS[0], **options | {"labels": ("transfer", "été")})
    assert passes == [], "the row answers for any labels with distinct first tokens"
    assert set(other.scores) == {"transfer", "été"}
    assert other.scores["transfer"] == first.scores["transfer"]


def test_labels_scored_whole_are_computed_again(stack, options, passes):
    options |= {"labels": SHARING}
    first = stack.score(TEXTS[0], **options)
    passes.clear()
    assert stack.score(TEXTS[0], **options) == first
    assert passes == [1]


@pytest.mark.parametrize("change", [{"tenant": "other"}, {"prompt": "Another prompt."}, {"template": "Text: {text}"}])
def test_what_differs_is_not_taken_for_a_repetition(stack, options, passes, change):
    stack.score(TEXTS[0], **options)
    passes.clear()
    stack.score(TEXTS[0], **options | change)
    assert passes == [1]


def test_a_changed_model_answers_anew(make_stack, make_engine, options):
    engine = make_engine()
    stack = make_stack(engine=engine)
    before = stack.score(TEXTS[0], scores="prior", **options)
    with torch.no_grad():
        engine.loaded.model.lm_head.weight.mul_(0.5)
    after = stack.score(TEXTS[0], scores="prior", **options)
    assert after.scores != before.scores
    assert after == make_stack(engine=engine).score(TEXTS[0], scores="prior", **options)


def test_a_model_changed_during_the_pass_keeps_no_row(make_stack, make_engine, options, monkeypatch):
    engine = make_engine()
    stack = make_stack(engine=engine)
    score = LabelScorer.score

    def changing(self, past, suffixes):
        scored = score(self, past, suffixes)
        with torch.no_grad():
            engine.loaded.model.lm_head.weight.mul_(0.5)
        return scored

    with monkeypatch.context() as patch:
        patch.setattr(LabelScorer, "score", changing)
        stack.score(TEXTS[0], **options)
    assert stack._scoring.rows.sizes().num_rows == 0


def test_a_prior_of_a_model_that_changed_meanwhile_is_not_remembered(make_stack, make_engine, options, monkeypatch):
    engine = make_engine()
    stack, weight = make_stack(engine=engine), engine.loaded.model.lm_head.weight
    score = LabelScorer.score

    def scaled(by):
        with torch.no_grad():
            weight.mul_(by)

    def changing(self, past, suffixes):
        if len(suffixes) > 1:  # the inputs without content
            scaled(0.5)
        return score(self, past, suffixes)

    with monkeypatch.context() as patch:
        patch.setattr(LabelScorer, "score", changing)
        stack.score(TEXTS[0], scores="prior", **options)
    scaled(2)  # the model is what it was, to the last bit
    assert stack.score(TEXTS[0], scores="prior", **options) == make_stack(engine=engine).score(
        TEXTS[0], scores="prior", **options
    )


def test_kv_kept_in_another_precision_has_rows_of_its_own(make_stack, options, passes):
    """A policy that is switched back finds no number that was rounded."""
    exact, rounded = (
        PolicySet.parse(f"default: {{prefix: {{kv_dtype: {kind}}}}}", "p") for kind in ("model", "bfloat16")
    )
    stack, fresh = make_stack(), make_stack()
    expected = fresh.score(TEXTS[0], **options)
    for policies, is_exact in ((rounded, False), (exact, True), (rounded, False)):
        stack.policies = policies
        assert (stack.score(TEXTS[0], **options) == expected) is is_exact
        assert (stack.classify(TEXTS[:1], **options)[0] == expected) is is_exact
    assert passes == [1, 1, 1], "one for each precision, and one in the fresh stack"


def test_a_prior_is_of_the_model_that_a_call_meets(make_stack, make_engine, options, together):
    """The model is changed while calls wait for their pass: neither the old prior nor old KV goes with new scores."""
    engine = make_engine()
    stack = make_stack(engine=engine)

    def change():
        with torch.no_grad():
            engine.loaded.model.lm_head.weight.mul_(0.5)

    options |= {"scores": "prior"}
    found = together(stack, engine, TEXTS[:2], meanwhile=change, **options)
    expected = make_stack(engine=engine).classify(TEXTS[:2], **options)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-3)


def test_labels_may_be_any_iterable(stack, options):
    options.pop("labels")
    assert stack.score("x", labels=iter(LABELS), **options) == stack.score("x", labels=LABELS, **options)


def test_the_stack_takes_one_text_for_no_list_and_answers_nothing_when_closed(stack, options):
    with pytest.raises(UsageError, match="not one text"):
        stack.classify("where is my card", **options)
    stack.close()
    for call in (lambda: stack.classify(["x"], **options), lambda: stack.measure("prompt", ["x"])):
        with pytest.raises(UsageError, match="closed"):
            call()


def test_invalidation_forgets_rows(stack, options, passes):
    for user in ("ann", "bob"):
        stack.score(f"{user}'s card", user=user, **options)
    stack.invalidate(tenant="acme", user="ann")
    passes.clear()
    stack.score("bob's card", user="bob", **options)
    assert passes == []
    stack.score("ann's card", user="ann", **options)
    assert passes == [1]
    stack.invalidate(tenant="acme")
    assert stack._scoring.rows.sizes().num_rows == 0


def test_without_the_prefix_layer_nothing_is_kept(make_stack, options, passes):
    stack = make_stack("default: {prefix: {enabled: false}}")
    expected = make_stack().score(TEXTS[0], **options)
    for _ in range(2):
        passes.clear()
        assert stack.score(TEXTS[0], **options).scores == pytest.approx(expected.scores, abs=1e-3)
        assert passes == [1]
    assert (stack._scoring.rows.sizes().num_rows, stack.memory().num_bytes) == (0, 0)
    assert stack.classify(TEXTS[:1] * 3, **options).summary.num_repeated == 0


def test_a_stack_without_rows_computes_again(make_stack, options, passes):
    stack = make_stack(row_bytes=0)
    stack.score(TEXTS[0], **options)
    passes.clear()
    stack.score(TEXTS[0], **options)
    assert passes == [1]


def test_statistics_are_those_of_classify(make_stack, options):
    one, other = make_stack(), make_stack()
    for text in ["x", "y", "x", ""]:
        one.score(text, **options)
        other.classify([text], **options)
    ours, theirs = one.stats().by_tenant["acme"], other.stats().by_tenant["acme"]
    assert (ours.classified_items, ours.tokens_prefilled, ours.tokens_reused) == (
        theirs.classified_items,
        theirs.tokens_prefilled,
        theirs.tokens_reused,
    )
    assert (ours.classified_items, ours.tokens_reused > 0) == (4, True)


@pytest.mark.parametrize("text", ["", " \n", "\ud83d", None, "long " * 2000])
def test_a_text_that_cannot_be_scored_is_the_error_that_classify_gives(stack, options, text):
    assert stack.score(text, **options) == stack.classify([text], **options)[0]
    assert stack.score(text, **options).error


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"labels": "card"}, LabelError, "not one text"),
        ({"labels": ["card", "card"]}, LabelError, "twice"),
        ({"labels": ["card", ["transfer"]]}, LabelError, "label 2 of 2 is not text"),
        ({"template": "Ticket"}, UsageError, r"\{text\}"),
        ({"scores": "max"}, UsageError, "sum, mean, prior"),
        ({"min_mass": 2}, UsageError, "min_mass"),
        ({"prompt": "word " * 5000}, ContextTooLong, "the prompt has"),
        ({"prompt": "\ud83d"}, RequestError, "Unicode"),
    ],
)
def test_wrong_calls_raise_each_time(stack, options, change, error, says):
    for _ in range(2):
        with pytest.raises(error, match=says):
            stack.score("x", **options | change)


def test_thresholds_do_not_make_a_question_another_one(stack, options, passes):
    label = stack.score(TEXTS[0], **options)
    refused = stack.score(TEXTS[0], min_mass=1, **options)
    assert passes == [1]
    assert (refused.label, refused.abstained, refused.scores) == (None, True, label.scores)


@pytest.fixture
def together():
    """Calls from as many threads as there are texts. The model is held until all of them wait for it."""

    def call(stack, engine, texts, *, meanwhile=lambda: None, **options):
        stack.score("warm", **options)
        (slot,) = [s for task, s in stack._scoring._lanes._slots.items() if task.tenant == options["tenant"]]
        batcher = slot.value._batcher
        with ThreadPoolExecutor(len(texts)) as pool:
            with engine.loaded.lock:
                futures = [pool.submit(stack.score, text, **options) for text in texts]
                until(lambda: len(batcher._queue) == len(texts))
                meanwhile()
            return [future.exception(60) or future.result() for future in futures]

    return call


@pytest.mark.parametrize("labels", [LABELS, SHARING])
def test_threads_share_passes_and_get_what_each_alone_gets(make_stack, engine, options, passes, together, labels):
    options |= {"labels": labels}
    texts = [f"ticket {n} about a card" * (1 + n % 3) for n in range(32)]
    alone = make_stack()
    expected = [alone.score(text, **options) for text in texts]
    stack = make_stack()
    passes.clear()
    found = together(stack, engine, texts, **options)
    assert sum(passes) == 1 + 32
    assert len(passes) < 10
    assert [label.label for label in found] == [label.label for label in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-3)
    assert is_quiet(stack)


def test_the_same_question_from_many_threads_is_computed_once(stack, engine, options, passes, together):
    found = together(stack, engine, TEXTS[:1] * 8, **options)
    assert passes == [1, 1]
    assert all(label == found[0] for label in found)


def test_a_poisoned_member_harms_nobody(make_stack, make_engine, options, together):
    engine = make_engine()
    (bad,) = engine.loaded.tokenizer("7", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        engine.loaded.model.model.embed_tokens.weight[bad] = float("nan")
    stack, alone = make_stack(engine=engine), make_stack(engine=engine)
    texts = ["a", "7", "b"]
    found = together(stack, engine, texts, **options)
    assert "not a number" in found[1].error
    assert [found[0], found[2]] == [alone.score(text, **options) for text in ("a", "b")]
    assert stack._scoring.rows.sizes().num_rows == 3, "the poisoned row is not kept"


def test_a_failure_of_the_model_reaches_all_of_its_pass_and_then_it_goes_on(
    stack, engine, options, together, monkeypatch
):
    score, calls = LabelScorer.score, iter(range(100))

    def failing(self, past, suffixes):
        if next(calls) == 1:
            raise EngineError("out of memory")
        return score(self, past, suffixes)

    monkeypatch.setattr(LabelScorer, "score", failing)
    found = together(stack, engine, TEXTS[:4], **options)
    assert [str(error) for error in found] == ["out of memory"] * 4
    assert stack.score(TEXTS[0], **options).label
    assert is_quiet(stack)


def test_a_model_whose_cache_cannot_be_kept_scores_whole_and_keeps_rows(make_stack, make_engine, options):
    stack = make_stack(engine=make_engine(sliding_window=8))
    first = stack.score(TEXTS[0], **options)
    assert first == stack.classify(TEXTS[:1], **options)[0]
    assert stack._scoring.rows.sizes().num_rows == 1
    assert stack.memory().num_bytes == 0


def test_a_text_that_merges_with_the_prefix_is_computed_whole(stack, options):
    options |= {"template": "Ticket: trans{text}"}  # "transfer" is one token of this vocabulary
    merged, plain = stack.score("fer", **options), stack.classify(["fer"], **options, baseline=True)
    assert merged.label == plain[0].label
    assert merged.scores == pytest.approx(plain[0].scores, abs=1e-3)


def test_tenants_share_no_scorer(stack, options):
    """How long a call takes must not tell one tenant that another has asked with the same prompt."""
    for tenant in ("acme", "other"):
        stack.score("x", **options | {"tenant": tenant})
    tasks = list(stack._scoring._lanes._slots)
    assert [task.tenant for task in tasks] == ["acme", "other"]


def test_scorers_are_bounded(stack, options):
    stack._scoring._lanes = Recent(2)
    for n in (1, 2, 1, 3, 1):
        assert stack.score("x", **options | {"prompt": f"{options['prompt']} {n}"}).label
    assert [task.prompt[-1] for task in stack._scoring._lanes._slots] == ["3", "1"]


def test_an_interrupted_call_leaves_no_lease_and_the_next_goes_on(stack, options, monkeypatch):
    def interrupted(self, past, suffixes):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LabelScorer, "score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stack.score(TEXTS[0], **options)
    assert is_quiet(stack)
    assert stack._scoring.rows.sizes().num_rows == 0
    assert stack.score(TEXTS[0], **options).label


def test_a_value_is_made_once_and_a_failure_is_not_remembered():
    recent: Recent[str, object] = Recent(2)
    barrier = threading.Barrier(8)
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    def get(_: int) -> object:
        barrier.wait(30)
        return recent.get("a", make)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(get, range(8))) == set(made)
    assert len(made) == 1
    with pytest.raises(ZeroDivisionError):
        recent.get("b", lambda: 1 // 0)
    assert recent.get("b", lambda: 1) == 1
