"""The main job on the real models: all three layers behind one call."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cachestack.decisions import Layer, Outcome, Reason
from cachestack.errors import ContextTooLong, RequestError
from cachestack.requests import Message

if TYPE_CHECKING:
    from cachestack.decisions import Response
    from cachestack.engines.transformers.engine import TransformersEngine
    from cachestack.stack import CacheStack
    from tests.core.conftest import MakeStack

SYSTEM = "You are the help desk of ACME, a software company. Answer in one short sentence, and only from the handbook."


@pytest.fixture
def stack(make_stack: MakeStack, local_engine: TransformersEngine) -> CacheStack:
    return make_stack("default: {decode: {max_new_tokens: 12}}", engines={"local": local_engine})


def ask(stack: CacheStack, question: str, **options: object) -> Response:
    return stack.chat(question, **({"tenant": "acme", "system": SYSTEM, "stop": "."} | options))  # type: ignore[arg-type]


def prefix_reason(response: Response) -> Reason:
    step = response.trace.step(Layer.PREFIX)
    assert step is not None
    return step.reason


def test_the_second_question_reuses_the_system_prompt_and_another_tenant_does_not(stack: CacheStack) -> None:
    first = ask(stack, "Where are you?")
    second = ask(stack, "Who pays for lunch?")
    foreign = ask(stack, "Who pays for lunch?", tenant="other")
    assert [prefix_reason(r) for r in (first, second, foreign)] == [
        Reason.PREFIX_COLD,
        Reason.PREFIX_FULL,
        Reason.PREFIX_COLD,
    ]
    assert first.usage.cached_tokens == foreign.usage.cached_tokens == 0
    assert second.usage.cached_tokens > 20
    assert second.text == foreign.text, "warm and cold runs give the same text"
    sizes = stack.memory()
    assert {group.tenant for group in sizes.groups} == {"acme", "other"}
    assert 0 < sizes.num_bytes <= sizes.max_bytes
    stats = stack.stats().by_tenant["acme"]
    assert (stats.tokens_reused, stats.prefix.hits) == (second.usage.cached_tokens, {"prefix_full": 1})
    assert stats.tokens_prefilled == first.usage.prompt_tokens + second.usage.prompt_tokens - second.usage.cached_tokens
    assert stats.bytes_saved > 0


def test_invalidating_a_tenant_drops_its_kv_too(stack: CacheStack) -> None:
    ask(stack, "What is the capital of France?")
    ask(stack, "What is the capital of France?", tenant="other")
    assert stack.invalidate(tenant="acme") == 1
    assert {group.tenant for group in stack.memory().groups} == {"other"}
    assert prefix_reason(ask(stack, "Who pays for lunch?")) is Reason.PREFIX_COLD


def test_a_conversation_reuses_its_history(stack: CacheStack) -> None:
    turns: list[Message] = []
    cached = []
    for said in ("My printer is broken.", "It is blue.", "It is two years old."):
        turns.append(Message("user", said))
        response = ask(stack, turns)  # type: ignore[arg-type]
        turns.append(Message("assistant", response.text))
        cached.append(response.usage.cached_tokens / response.usage.prompt_tokens)
    assert cached[0] == 0
    assert cached[1] > 0.6
    assert cached[2] > 0.7


def test_streamed_text_is_the_text(stack: CacheStack) -> None:
    with stack.stream("Where are you?", tenant="acme", system=SYSTEM) as stream:
        pieces = [chunk.text for chunk in stream]
    assert stream.response is not None
    assert "".join(pieces) == stream.response.text
    assert len([p for p in pieces if p]) > 3
    assert ask(stack, "Where are you?", stop=()).text == stream.response.text


def test_a_stream_left_early_leaves_nothing_behind(stack: CacheStack) -> None:
    with stack.stream("Where are you?", tenant="acme", system=SYSTEM) as stream:
        next(stream)
    assert stack.memory().num_segments == stack.memory().num_leased == 0
    assert stack.performer.store.size().num_entries == 0
    assert stack.stats().by_tenant["acme"].cancelled == 1


def test_explain_counts_tokens_and_keeps_no_lease(stack: CacheStack) -> None:
    ask(stack, "Where are you?")
    would = stack.explain("Who pays for lunch?", tenant="acme", system=SYSTEM, stop=".")
    assert (would.would, would.prompt_tokens is not None) == ("engine", True)
    done = ask(stack, "Who pays for lunch?")
    assert (would.prompt_tokens, would.cached_tokens) == (done.usage.prompt_tokens, done.usage.cached_tokens)
    assert stack.memory().num_leased == 0


def test_sampling_with_a_seed_repeats_warm_as_cold(stack: CacheStack) -> None:
    texts = {ask(stack, "Tell me a story", temperature=0.9, top_p=0.95, seed=5, stop=()).text for _ in range(2)}
    assert len(texts) == 1
    assert ask(stack, "Tell me a story", temperature=0.9, top_p=0.95, seed=6, stop=()).text not in texts


@pytest.mark.parametrize(
    ("options", "says"),
    [({"tools": [{"name": "f"}]}, "tools"), ({"response_format": {}}, None), ({"n": 2}, "n > 1")],
)
def test_what_the_in_process_engine_cannot_do(stack: CacheStack, options: dict[str, object], says: str | None) -> None:
    if says is None:
        options = {"response_format": {"type": "json_object"}}
        says = "response_format"
    with pytest.raises(RequestError, match=f"does not support {says}"):
        ask(stack, "Where are you?", **options)


def test_a_prompt_beyond_the_context_is_refused_and_not_retried(stack: CacheStack) -> None:
    with pytest.raises(ContextTooLong):
        ask(stack, "word " * 9000)
    stats = stack.stats().by_tenant["acme"]
    assert (stats.failed, stats.fallbacks) == (1, {})
    assert stack.memory().num_leased == 0


def test_threads_get_the_answers_that_they_would_get_alone(stack: CacheStack) -> None:
    questions = ["Where are you?", "Who pays for lunch?", "Is it open today?", "Can I bring a dog?"]
    alone = {q: ask(stack, q, store=False, lookup=False).text for q in questions}
    barrier, answers = threading.Barrier(len(questions)), {}

    def run(question: str) -> None:
        barrier.wait()
        answers[question] = ask(stack, question, store=False, lookup=False).text

    threads = [threading.Thread(target=run, args=(q,)) for q in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == alone
    assert stack.memory().num_leased == 0


def test_classification_goes_through_pool_and_statistics(stack: CacheStack) -> None:
    options = {"labels": ["billing", "technical"], "prompt": SYSTEM, "template": "Ticket: {text}", "tenant": "acme"}
    cold = stack.classify(["I was charged twice", "It crashes"], **options)  # type: ignore[arg-type]
    warm = stack.classify(["I was charged twice", "It crashes"], **options)  # type: ignore[arg-type]
    assert [x.label for x in cold] == [x.label for x in warm]
    assert (cold.summary.cached_tokens, warm.summary.cached_tokens) == (0, warm.summary.prefix_tokens)
    stats = stack.stats().by_tenant["acme"]
    assert stats.classified_items == 4
    for summary in (cold.summary, warm.summary):
        assert 0 < summary.reused_tokens < summary.prompt_tokens
    assert warm.summary.reused_tokens == 2 * warm.summary.prefix_tokens
    assert cold.summary.reused_tokens == cold.summary.prefix_tokens
    assert stats.tokens_reused == 3 * warm.summary.prefix_tokens
    assert stats.tokens_prefilled + stats.tokens_reused == 2 * warm.summary.prompt_tokens
    assert stats.requests == 0


def test_a_local_stack_needs_only_a_home(tmp_path: Path, llm_path: Path, encoder_path: Path) -> None:
    from cachestack import CacheStack

    with CacheStack.local(model=str(llm_path), encoder=str(encoder_path), home=tmp_path) as first:
        answer = first.chat("How do I reset my password?", max_new_tokens=40, stop=".")
        assert answer.trace.step(Layer.DECODE).outcome is Outcome.DONE  # type: ignore[union-attr]
    with CacheStack.local(model=str(llm_path), encoder=str(encoder_path), home=tmp_path) as second:
        again = second.chat("How do I reset my password?", max_new_tokens=40, stop=".")
        similar = second.chat("How can I reset my password?", max_new_tokens=40, stop=".")
    assert (again.trace.served_from, again.text) == ("exact", answer.text)
    assert (similar.trace.served_from, similar.text) == ("semantic", answer.text)
