"""Retries, timeouts, the circuit breaker, cancellation, and who runs on which loop."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from cachestack.engines.base import is_async_engine, is_token_engine
from cachestack.engines.remote.breaker import CircuitBreaker
from cachestack.engines.remote.engine import RemoteEngine
from cachestack.engines.remote.openai import OpenAIEngine
from cachestack.engines.remote.retrying import Retries, Timeouts, retry_after_s
from cachestack.errors import CircuitOpen, ConfigError, EngineError, EngineTimeout, UpstreamError
from cachestack.requests import Generation, Message, Request
from tests.engines.remote.conftest import Clock, MakeEngine, TopOfRange, Waits, as_body, ask, run
from tests.upstream.calls import Call, Gate, error
from tests.upstream.server import Upstream

STREAMED = {"model": "m", "messages": [{"role": "user", "content": "capital of France"}], "stream": True}


def answer(engine: RemoteEngine) -> Generation:
    return run(engine, ask())[1]


@pytest.fixture
def nowhere() -> Iterator[str]:
    """A port that is held, so that nobody else listens there, and not listened on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/v1"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_it_tries_again_where_that_helps(
    status: int, make_engine: MakeEngine, upstream: Upstream, waits: Waits
) -> None:
    upstream.script(error(status), error(status))
    assert answer(make_engine()).text == "Answer 3: capital of France"
    assert waits.seconds == [0.5, 1.0], "full jitter, here at the top of its range"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_it_does_not_where_it_cannot(status: int, make_engine: MakeEngine, upstream: Upstream, waits: Waits) -> None:
    upstream.script(error(status, "a reason"))
    with pytest.raises(UpstreamError, match="a reason") as refused:
        answer(make_engine())
    assert (refused.value.status, refused.value.body["error"]["message"]) == (status, "a reason")
    assert (len(upstream.requests), waits.seconds) == (1, [])


def test_it_gives_up_with_what_was_said_last(make_engine: MakeEngine, upstream: Upstream) -> None:
    upstream.script(error(500, "first"), error(503, "second"), error(429, "third", retry_after="2"))
    with pytest.raises(UpstreamError, match="third") as failed:
        answer(make_engine())
    assert (failed.value.status, failed.value.retry_after_s, len(upstream.requests)) == (429, 2.0, 3)


def test_retry_after_is_honoured_within_its_cap(make_engine: MakeEngine, upstream: Upstream, waits: Waits) -> None:
    upstream.script(error(429, retry_after="7"))
    answer(make_engine())
    assert waits.seconds == [7.5]
    upstream.script(error(429, retry_after="3600"))
    with pytest.raises(UpstreamError) as failed:
        answer(make_engine())
    assert failed.value.retry_after_s == 3600
    assert waits.seconds == [7.5], "it does not wait for an hour, nor ask before its time"


def test_jitter_is_drawn_from_the_whole_range() -> None:
    class Half(TopOfRange):
        def uniform(self, a: float, b: float) -> float:
            return (a + b) / 2

    retries = Retries(num_retries=9, base_s=1.0, cap_s=4.0)
    assert [retries.wait_s(i, None, Half()) for i in range(4)] == [0.5, 1.0, 2.0, 2.0]
    assert retries.wait_s(9, None, Half()) is None


def test_retry_after_in_all_its_forms() -> None:
    assert retry_after_s({"retry-after": "3"}) == 3
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}) == 0
    assert retry_after_s({"retry-after": "soon"}) is None
    assert retry_after_s({"retry-after": "-1"}) is None
    assert retry_after_s({"retry-after": "inf"}) is None
    assert retry_after_s({}) is None


def test_a_server_that_cannot_be_reached(nowhere: str, clock: Clock, waits: Waits) -> None:
    engine = OpenAIEngine("up", nowhere, model="m", clock=clock, sleep=waits, rng=TopOfRange())
    with pytest.raises(EngineTimeout, match="cannot be reached"):
        answer(engine)
    assert len(waits.seconds) == 2
    engine.close()


def test_a_connection_that_breaks_before_a_piece_is_tried_again(make_engine: MakeEngine, upstream: Upstream) -> None:
    upstream.script(Call(cut_at=0), Call(cut_at=1))
    assert answer(make_engine()).text == "Answer 3: capital of France"


def test_the_whole_call_has_a_deadline_retries_included(
    make_engine: MakeEngine, upstream: Upstream, waits: Waits
) -> None:
    upstream.script(error(503, retry_after="9"), error(503, retry_after="9"))
    with pytest.raises(UpstreamError):
        answer(make_engine(timeouts=Timeouts(total_s=15.0)))
    assert (len(upstream.requests), waits.seconds) == (2, [9.5])


@pytest.mark.parametrize("timeouts", [Timeouts(read_s=0.05), Timeouts(total_s=0.05)], ids=["read", "total"])
@pytest.mark.parametrize("call", [Call(before=Gate()), Call(pause=(3, Gate()))], ids=["never", "stops"])
def test_a_server_that_does_not_answer_in_time(
    call: Call, timeouts: Timeouts, make_engine: MakeEngine, upstream: Upstream
) -> None:
    upstream.script(call)
    with pytest.raises(EngineTimeout, match="in time"):
        answer(make_engine(timeouts=timeouts))
    upstream.wait_for(lambda u: u.num_cancelled == 1)
    assert len(upstream.requests) == 1, "whoever was slow is not asked again"


def test_the_breaker_opens_probes_and_closes(make_engine: MakeEngine, upstream: Upstream, clock: Clock) -> None:
    breaker = CircuitBreaker("up", num_failures=2, open_s=30.0, clock=clock)
    engine = make_engine(retries=Retries(num_retries=0), breaker=breaker)
    upstream.script(error(500), error(500), error(500))
    for _ in range(2):
        with pytest.raises(UpstreamError):
            answer(engine)
    assert str(breaker.state) == "open"
    with pytest.raises(CircuitOpen) as refused:
        answer(engine)
    assert refused.value.retry_after_s == 30.0
    assert len(upstream.requests) == 2, "it is left alone"
    clock.now_s += 30.0
    assert str(breaker.state) == "half_open"
    with pytest.raises(UpstreamError):
        answer(engine)
    assert str(breaker.state) == "open", "one failed probe is enough"
    clock.now_s += 30.0
    assert answer(engine).text == "Answer 4: capital of France"
    assert str(breaker.state) == "closed"


def test_a_call_that_opens_the_circuit_says_why_it_failed(
    make_engine: MakeEngine, upstream: Upstream, clock: Clock, waits: Waits
) -> None:
    upstream.script(error(503), error(500))
    with pytest.raises(UpstreamError) as failed:
        answer(make_engine(breaker=CircuitBreaker("up", num_failures=2, clock=clock)))
    assert (failed.value.status, len(upstream.requests), waits.seconds) == (500, 2, [0.5])


def test_only_one_probe_at_a_time(make_engine: MakeEngine, upstream: Upstream, clock: Clock) -> None:
    breaker, gate = CircuitBreaker("up", num_failures=1, clock=clock), Gate()
    engine = make_engine(retries=Retries(num_retries=0), breaker=breaker)
    upstream.script(error(500), Call(pause=(2, gate)))
    with pytest.raises(UpstreamError):
        answer(engine)
    clock.now_s += 30.0
    probe = engine.stream(ask())
    assert next(probe) == "Answer"
    with pytest.raises(CircuitOpen):
        answer(engine)
    probe.close()
    assert str(breaker.state) == "half_open", "a probe whose caller left has shown nothing"
    assert answer(engine).text == "Answer 3: capital of France"


def test_a_refusal_is_no_failure_of_the_server(make_engine: MakeEngine, upstream: Upstream, clock: Clock) -> None:
    breaker = CircuitBreaker("up", num_failures=2, clock=clock)
    engine = make_engine(retries=Retries(num_retries=0), breaker=breaker)
    for call in (error(500), error(400), error(500), error(429), error(500)):
        upstream.script(call)
        with pytest.raises(UpstreamError):
            answer(engine)
    assert str(breaker.state) == "closed"
    for _ in range(2):
        upstream.script(Call(malformed_at=2))
        with pytest.raises(EngineError):
            answer(engine)
    assert str(breaker.state) == "open", "nonsense counts as a failure"


def test_a_caller_that_leaves_cancels_the_call(make_engine: MakeEngine, upstream: Upstream) -> None:
    upstream.script(Call(pause=(3, Gate())))
    stream = make_engine().stream(ask())
    assert next(stream) == "Answer"
    stream.close()
    upstream.wait_for(lambda u: u.num_cancelled == 1)


async def test_a_task_that_is_cancelled_cancels_the_call(make_engine: MakeEngine, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script(Call(before=gate), Call(pause=(3, Gate())))
    engine = make_engine()

    async def whole() -> list[Any]:
        async with aclosing(engine.astream(ask())) as items:
            return [item async for item in items]

    task = asyncio.create_task(whole())
    await asyncio.to_thread(gate.wait_reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with aclosing(engine.astream(ask())) as items:
        assert await anext(items) == "Answer"
    await asyncio.to_thread(upstream.wait_for, lambda u: u.num_cancelled == 2)
    assert engine.breaker.state == "closed"
    await engine.aclose()


def test_a_stream_that_is_forgotten_is_ended(make_engine: MakeEngine, upstream: Upstream) -> None:
    upstream.script(Call(pause=(3, Gate())))
    stream = make_engine().stream(ask())
    next(stream)
    del stream
    gc.collect()
    upstream.wait_for(lambda u: u.num_cancelled == 1)


def test_one_engine_serves_many_loops_and_threads(make_engine: MakeEngine, upstream: Upstream) -> None:
    engine, barrier = make_engine(), threading.Barrier(8)
    texts: list[str] = []

    async def several() -> list[str]:
        async def one() -> str:
            items = [item async for item in engine.astream(ask())]
            return items[-1].text

        return list(await asyncio.gather(*(one() for _ in range(4))))

    def work(is_async: bool) -> None:
        barrier.wait()
        texts.extend(asyncio.run(several()) if is_async else [answer(engine).text for _ in range(4)])

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(texts)) == len(texts) == 32
    kept = engine._clients._by_loop
    assert len(kept) == 1, "clients of loops that ended have ended with them; the background loop's is there"


def test_connections_are_used_again(make_engine: MakeEngine, upstream: Upstream) -> None:
    engine = make_engine()
    for _ in range(3):
        answer(engine)
        run(engine, as_body("openai.chat", STREAMED | {"stream": False}))
    (client,) = (kept[1] for kept in engine._clients._by_loop.values())
    assert len(client._transport._pool.connections) == 1


def test_it_is_the_kind_of_engine_the_drivers_look_for(make_engine: MakeEngine) -> None:
    engine = make_engine()
    assert is_async_engine(engine)
    assert not is_token_engine(engine)


def test_wrong_settings_are_said_at_once() -> None:
    with pytest.raises(ConfigError, match="NOT_SET"):
        OpenAIEngine("up", "http://localhost", api_key_env="CACHESTACK_NOT_SET")
    with pytest.raises(ConfigError, match="http"):
        OpenAIEngine("up", "localhost:8000")


def test_a_question_with_a_lone_surrogate_reaches_the_server(make_engine: MakeEngine, upstream: Upstream) -> None:
    run(make_engine(), Request((Message("user", "a\ud800b"),)))
    assert upstream.last.body["messages"][0]["content"] == "a\ud800b"
