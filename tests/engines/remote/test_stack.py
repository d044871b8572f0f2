"""A whole stack on a remote engine: what misbehaves is never kept, and a hit costs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cachestack.decisions import Layer, Reason
from cachestack.engines.remote.breaker import CircuitBreaker
from cachestack.engines.remote.retrying import Retries, Timeouts
from cachestack.errors import CircuitOpen, EngineError, RequestError, UpstreamError, UsageError
from cachestack.requests import Message, Request
from cachestack.stack import CacheStack
from tests.core.conftest import MakeStack, make_stack
from tests.engines.remote.conftest import Clock, MakeEngine
from tests.upstream.calls import Call, Gate, error
from tests.upstream.server import Upstream

__all__ = ["make_stack"]
PRICED = "default: {prices: {input_per_million: 2.0, output_per_million: 10.0}}"
QUESTION = "What is the capital of France?"


@pytest.fixture
def encoder() -> None:
    """These match exactly only."""


def ask(stack: CacheStack, text: str = QUESTION, **options: Any) -> Any:
    return stack.chat(text, tenant="t", **options)


def test_what_is_answered_once_is_served_again(
    make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream
) -> None:
    stack = make_stack(PRICED, meaning=False, engines={"up": make_engine()})
    first, second = ask(stack), ask(stack)
    assert (first.text, second.text) == ("Answer 1: " + QUESTION,) * 2
    assert (first.trace.served_from, second.trace.served_from) == ("engine", "exact")
    assert first.body["choices"][0]["message"]["content"] == first.text
    assert len(upstream.requests) == 1
    assert second.usage.total_tokens == first.usage.total_tokens


WRONG = [
    error(400, "bad request"),
    error(404),
    error(429, retry_after="9999"),
    error(500),
    Call(body={"error": {"message": "overloaded"}}),
    Call(body=b""),
    Call(body={"choices": []}),
    Call(cut_at=3),
    Call(ends_at=3),
    Call(malformed_at=3),
    Call(error_at=3),
    Call(pause=(3, Gate())),
    Call(before=Gate()),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda call: repr(call)[5:60])
@pytest.mark.parametrize("streams", [False, True], ids=["chat", "stream"])
def test_an_upstream_that_misbehaves_is_never_cached(
    wrong: Call, streams: bool, make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream
) -> None:
    engine = make_engine(retries=Retries(num_retries=0), timeouts=Timeouts(read_s=0.1))
    stack = make_stack("default: {fallback: {engine_error: [raise]}}", meaning=False, engines={"up": engine})
    for _ in range(2):
        upstream.script(wrong)
        with pytest.raises(EngineError):
            list(stack.stream(QUESTION, tenant="t")) if streams else ask(stack)
    healed = ask(stack)
    assert (healed.trace.served_from, healed.text) == ("engine", "Answer 3: " + QUESTION)
    assert ask(stack).text == healed.text
    assert len(upstream.requests) == 3
    assert stack.stats().by_tenant["t"].failed == 2


def test_a_bad_request_is_an_error_each_time_and_tried_nowhere_else(
    make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream
) -> None:
    policy = "default: {fallback: {engine_error: [retry, other_engine, raise], other_engine: spare}}"
    stack = make_stack(policy, meaning=False, engines={"up": make_engine(), "spare": make_engine()})
    for n in (1, 2):
        upstream.script(error(400, "no such parameter", kind="invalid_request_error"))
        with pytest.raises(UpstreamError) as refused:
            ask(stack)
        assert (refused.value.status, len(upstream.requests)) == (400, n)


def test_answers_that_are_more_than_text_are_served_and_not_kept(
    make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream
) -> None:
    stack = make_stack(meaning=False, engines={"up": make_engine()})
    calls = [Call(tool_calls=(("f", "{}"),)), Call(refusal="no"), Call(logprobs=True), Call(finish="abort")]
    for n, call in enumerate(calls, 1):
        upstream.script(call)
        made = ask(stack)
        assert made.trace.step(Layer.SETTLE).reason is Reason.NOT_TEXT
        assert len(upstream.requests) == n
    upstream.script(Call(finish="content_filter"))
    assert ask(stack).trace.step(Layer.SETTLE).reason is Reason.FILTERED
    assert ask(stack).trace.served_from == "engine"


def test_tool_calls_reach_whoever_streams(make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream) -> None:
    stack = make_stack(meaning=False, engines={"up": make_engine()})
    upstream.script(Call(tool_calls=(("f", '{"a": 1}'),)))
    with stack.stream(QUESTION, tenant="t") as stream:
        chunks = list(stream)
    deltas = [chunk.delta.body for chunk in chunks if chunk.delta is not None]
    calls = [delta["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for delta in deltas]
    assert "".join(calls) == '{"a": 1}'
    assert chunks[-1].finish_reason == "tool_calls"


def test_a_hit_costs_nothing_and_says_what_it_saved(
    make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream
) -> None:
    stack = make_stack(meaning=False, engines={"up": make_engine(model="gpt-4o-mini-2024-07-18")})
    upstream.script(Call(cached_tokens=1_000_000, text="Paris."))
    first = ask(stack)
    full = first.usage.prompt_tokens - 1_000_000
    for _ in range(3):
        assert ask(stack).trace.served_from == "exact"
    stats = stack.stats().by_tenant["t"]
    assert stats.cost == pytest.approx((full * 0.15 + 1_000_000 * 0.075 + 0.6) / 1e6), "the provider's cache is cheaper"
    assert stats.cost_saved == pytest.approx(3 * (first.usage.prompt_tokens * 0.15 + 0.6) / 1e6)
    assert stats.tokens_reused == 1_000_000
    (table,) = stats.priced_by
    assert table.startswith("built-in 20")
    assert table.endswith(" USD")
    assert stats.priced_by[table] == 4


def test_an_open_circuit_goes_on_to_the_next_step_at_once(
    make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream, clock: Clock
) -> None:
    breaker = CircuitBreaker("up", num_failures=1, clock=clock)
    first = make_engine(breaker=breaker, retries=Retries(num_retries=0))
    spare = make_engine("anthropic", model="claude-haiku-4-5")
    policy = "default: {fallback: {engine_error: [retry, other_engine, raise], other_engine: spare}}"
    stack = make_stack(policy, meaning=False, engines={"up": first, "spare": spare})
    upstream.script(error(500))
    assert ask(stack).text == "Answer 2: " + QUESTION
    fallen = ask(stack)
    assert fallen.text == "Answer 3: " + QUESTION
    assert [seen.path for seen in upstream.requests] == ["/v1/chat/completions", "/v1/messages", "/v1/messages"]
    reasons = [step.reason for step in fallen.trace.steps]
    assert Reason.CIRCUIT_OPEN in reasons
    assert Reason.RETRIED not in reasons
    assert fallen.trace.step(Layer.SETTLE).reason is Reason.OTHER_ENGINE, "another model's answer is not kept"
    assert stack.stats().by_tenant["t"].priced_by, "priced by the model that answered"


def test_an_open_circuit_may_end_in_a_stale_answer(
    make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream, clock: Clock
) -> None:
    breaker = CircuitBreaker("up", num_failures=1, clock=clock)
    engine = make_engine(breaker=breaker, retries=Retries(num_retries=0))
    policy = "default: {retention: {ttl_s: 10}, fallback: {engine_error: [retry, stale, raise]}}"
    stack = make_stack(policy, meaning=False, engines={"up": engine})
    kept = ask(stack)
    clock.now_s += 11
    upstream.script(error(500))
    for _ in range(2):
        assert (ask(stack).text, ask(stack).trace.served_from) == (kept.text, "stale")
    with pytest.raises(CircuitOpen):
        ask(stack, "Another question?")
    assert len(upstream.requests) == 2


def test_a_broken_stream_is_tried_again_where_nobody_saw_it(
    make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream
) -> None:
    stack = make_stack(meaning=False, engines={"up": make_engine()})
    upstream.script(Call(cut_at=3))
    assert ask(stack).text == "Answer 2: " + QUESTION
    upstream.script(Call(cut_at=3))
    with pytest.raises(EngineError):
        list(stack.stream("Another question?", tenant="t"))
    assert len(upstream.requests) == 3


def test_a_body_is_sent_as_it_is_and_kept_by_what_it_says(
    make_stack: MakeStack, make_engine: MakeEngine, upstream: Upstream
) -> None:
    stack = make_stack(meaning=False, engines={"up": make_engine(model=None)})
    body = {"model": "m", "messages": [{"role": "user", "content": QUESTION}], "top_k": 3}
    request = Request(
        (Message("user", QUESTION),), tenant="t", model="m", extra={"top_k": 3}, dialect="openai.chat", body=body
    )
    assert stack.chat(request).trace.served_from == "engine"
    assert upstream.last.body["top_k"] == 3
    assert stack.chat(request).trace.served_from == "exact"
    other = Request((Message("user", QUESTION),), tenant="t", model="m", dialect="openai.chat", body=body)
    assert stack.chat(other).trace.served_from == "engine", "a parameter more is another contract"


def test_the_constructor(upstream: Upstream, tmp_path: Path) -> None:
    options: dict[str, Any] = {"encoder": "none", "home": tmp_path, "provider": "vllm", "model": "scripted"}
    for _ in range(2):
        with CacheStack.remote(upstream.base_url, **options) as stack:
            assert ask(stack).text == "Answer 1: " + QUESTION
            ask(stack, "Another question?", lookup=False)
    salts = {body["cache_salt"] for body in upstream.bodies()}
    assert len(salts) == 1, "a home has one secret, whichever process asks"
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    with CacheStack.remote(upstream.root_url, kind="anthropic", encoder="none", home=tmp_path) as stack:
        with pytest.raises(RequestError, match="model"):
            ask(stack, "A third question?")
        assert ask(stack, "A third question?", model="m").text.endswith("A third question?")
    with pytest.raises(UsageError, match="kind"):
        CacheStack.remote(upstream.base_url, kind="soap", home=tmp_path)  # type: ignore[arg-type]
