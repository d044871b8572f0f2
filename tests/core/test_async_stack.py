"""AsyncCacheStack: the answers of the synchronous stack, streamed, cancelled, closed, never in the loop's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachestack import calling
from cachestack.aio import AsyncCacheStack
from cachestack.errors import EngineError, EngineTimeout, UsageError
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Delta, Generation, Request
from cachestack.stack import CacheStack
from cachestack.stores.memory import MemoryStore

if TYPE_CHECKING:
    from tests.core.conftest import MakeStack

QUESTION = "How do I reset my password?"
WORDS = ["one ", "two ", "three"]
place: ContextVar[str] = ContextVar("place", default="nowhere")


class Words:
    """Streams words from a thread; `gate` holds it before each but the first."""

    name = model = "words"

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()
        self.calls, self.seen = 0, ""
        self.gate, self.waiting, self.closed = threading.Event(), threading.Event(), threading.Event()

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.calls += 1
        self.seen = place.get()
        try:
            for i, word in enumerate(WORDS):
                self.threads.add(threading.current_thread())
                if i:
                    self.waiting.set()
                    assert self.gate.wait(20)
                yield word
            return Generation("".join(WORDS))
        finally:
            self.closed.set()


class Awaited:
    """The same, awaited."""

    name = model = "awaited"

    def __init__(self, items: list[Any] | None = None) -> None:
        self.items = [*WORDS, Generation("".join(WORDS))] if items is None else items
        self.gate, self.waiting, self.closed, self.calls = asyncio.Event(), asyncio.Event(), asyncio.Event(), 0
        self.cancelled = False

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield from WORDS
        return Generation("".join(WORDS))

    async def astream(self, request: Request) -> AsyncGenerator[Any, None]:
        self.calls += 1
        try:
            for i, item in enumerate(self.items):
                if i:
                    self.waiting.set()
                    await self.gate.wait()
                yield item
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            self.closed.set()


def in_memory(engine: Any, policies: str = "") -> CacheStack:
    return CacheStack(
        engines={"e": engine},
        store=MemoryStore(),
        index=None,
        encoder=None,
        prefix=PrefixLayer(BlockPool(max_bytes=1024), secret=b"test"),
        policies=PolicySet.parse(policies, "test policy"),
        needs_encoder=False,
    )


async def collect(stream: Any) -> list[str]:
    return [chunk.text async for chunk in stream]


@pytest.mark.parametrize("kind", [Words, Awaited])
async def test_it_streams_then_replays_and_explains(make_stack: MakeStack, kind: type) -> None:
    engine = kind()
    engine.gate.set()
    async with AsyncCacheStack(make_stack(engines={"e": engine}, meaning=False)) as stack:
        assert (await stack.explain(QUESTION)).would == "engine"
        first, second = stack.stream(QUESTION), stack.stream(QUESTION)
        assert await collect(first) == [*WORDS, ""]
        assert await collect(second) == ["".join(WORDS), ""]
        assert [s.response.trace.served_from for s in (first, second)] == ["engine", "exact"]
        assert (await stack.chat(QUESTION)).hit_id == first.response.hit_id
        assert (await stack.explain(QUESTION)).would == "exact"
        assert engine.calls == 1
    with pytest.raises(UsageError):
        await stack.chat(QUESTION)


async def test_a_synchronous_call_of_an_async_engine_streams_as_well(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"e": Awaited()}, meaning=False)
    assert [chunk.text for chunk in stack.stream(QUESTION)] == [*WORDS, ""]


async def test_nothing_blocks_the_loop(make_stack: MakeStack) -> None:
    """Trap 16: the engine and every effect work in other threads than the loop's."""
    engine = Words()
    sync = make_stack(engines={"e": engine}, meaning=False)
    threads: set[threading.Thread] = set()
    perform = sync.performer.perform

    def noting(effect: Any, engines: Any) -> Any:
        threads.add(threading.current_thread())
        return perform(effect, engines)

    sync.performer.perform = noting  # type: ignore[method-assign]
    stack = AsyncCacheStack(sync)
    place.set("here")
    asked = asyncio.create_task(stack.chat(QUESTION))
    while not engine.waiting.is_set():
        await asyncio.sleep(0.001)
    engine.gate.set()
    await asked
    await stack.chat(QUESTION)
    assert threading.main_thread() not in threads | engine.threads
    assert engine.seen == "here", "context variables reach the engine"


async def test_an_exact_hit_takes_one_hop(make_stack: MakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Words()
    engine.gate.set()
    stack = AsyncCacheStack(make_stack(engines={"e": engine}, meaning=False))
    loop, hops = asyncio.get_running_loop(), []
    run = loop.run_in_executor

    def noting(*args: Any) -> Any:
        hops.append(args)
        return run(*args)

    monkeypatch.setattr(loop, "run_in_executor", noting)
    await stack.chat(QUESTION)
    assert len(hops) == 2, "one to the engine, one after it"
    await stack.chat(QUESTION)
    assert len(hops) == 3
    memory = AsyncCacheStack(in_memory(engine))
    await memory.chat(QUESTION)
    hops.clear()
    assert (await memory.chat(QUESTION)).trace.served_from == "exact"
    assert hops == [], "what never waits needs no thread"


@pytest.mark.parametrize("leave", ["aclose", "cancel"])
async def test_a_stream_left_early_closes_the_engine(make_stack: MakeStack, leave: str) -> None:
    engine = Awaited()
    stack = AsyncCacheStack(make_stack(engines={"e": engine}, meaning=False))
    stream = stack.stream(QUESTION)
    assert (await anext(stream)).text == WORDS[0]
    if leave == "aclose":
        await engine.waiting.wait()
        await stream.aclose()
        assert await collect(stream) == []
    else:
        reading = asyncio.Event()

        async def read() -> None:
            reading.set()
            await collect(stream)

        task = asyncio.create_task(read())
        await asyncio.gather(reading.wait(), engine.waiting.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert engine.closed.is_set()
    assert engine.cancelled
    assert stream.response is None
    stats = stack.stack.stats().by_tenant["default"]
    assert (stats.cancelled, stack.stack.performer.store.size().num_entries) == (1, 0)
    assert stack.stack._flights.num_in_flight == 0


async def test_closing_a_stream_of_a_thread_stops_it_at_the_next_token(make_stack: MakeStack) -> None:
    engine = Words()
    stack = AsyncCacheStack(make_stack(engines={"e": engine}, meaning=False))
    async with stack.stream(QUESTION) as stream:
        assert (await anext(stream)).text == WORDS[0]
        assert await asyncio.to_thread(engine.waiting.wait, 10)
    assert not engine.closed.is_set(), "it is not waited for"
    engine.gate.set()
    assert await asyncio.to_thread(engine.closed.wait, 10)
    assert stack.stack.performer.store.size().num_entries == 0


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([], "without a Generation"),
        ([3, Generation("3")], "it yielded a int"),
        (["a", Generation("b")], "not how its answer begins"),
        ([Generation(3)], "its answer is of type int"),
    ],
)
async def test_an_async_engine_that_breaks_its_protocol(make_stack: MakeStack, items: list[Any], says: str) -> None:
    engine = Awaited(items)
    engine.gate.set()
    stack = AsyncCacheStack(make_stack(engines={"e": engine}, meaning=False))
    for ask in (stack.chat, lambda question: collect(stack.stream(question))):
        with pytest.raises(EngineError, match=says):
            await ask(QUESTION)
    assert stack.stack.performer.store.size().num_entries == 0


async def test_more_than_text_is_streamed_and_not_kept(make_stack: MakeStack) -> None:
    engine = Awaited([Delta({"a": 1}), Generation("", "tool_calls", is_text=False)])
    engine.gate.set()
    stack = AsyncCacheStack(make_stack(engines={"e": engine}, meaning=False))
    chunks = [chunk async for chunk in stack.stream(QUESTION)]
    assert [chunk.delta for chunk in chunks] == [Delta({"a": 1}), None]
    assert stack.stack.performer.store.size().num_entries == 0


DEADLINE = "default: {fallback: {engine_deadline_s: 0.05, engine_error: [raise]}}"


async def test_a_silent_async_engine_is_cancelled(make_stack: MakeStack) -> None:
    engine = Awaited()
    stack = AsyncCacheStack(make_stack(DEADLINE, engines={"e": engine}, meaning=False))
    with pytest.raises(EngineTimeout, match=r"gave nothing back within 0\.05 s"):
        await stack.chat(QUESTION)
    assert engine.cancelled
    stats = stack.stack.stats().by_tenant["default"]
    assert (stats.engine_timeouts, stats.engine_errors, stats.failed) == (1, 1, 1)


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_a_silent_thread_is_left_behind_and_counted(make_stack: MakeStack, how: str) -> None:
    engine, before = Words(), calling.num_left_behind()
    stack = make_stack(DEADLINE, engines={"e": engine}, meaning=False)
    with pytest.raises(EngineTimeout):
        await (AsyncCacheStack(stack).chat(QUESTION) if how == "async" else asyncio.to_thread(stack.chat, QUESTION))
    assert calling.num_left_behind() == before + 1
    engine.gate.set()
    assert await asyncio.to_thread(engine.closed.wait, 10)
    assert stack.stats().by_tenant["default"].engine_timeouts == 1
    assert stack._flights.num_in_flight == 0


async def test_after_a_silence_the_chain_goes_on(make_stack: MakeStack) -> None:
    other = Words()
    other.gate.set()
    policies = "default: {fallback: {engine_deadline_s: 0.2, engine_error: [other_engine], other_engine: other}}"
    stack = make_stack(policies, engines={"e": Awaited(), "other": other}, meaning=False)
    answer = await AsyncCacheStack(stack).chat(QUESTION)
    assert (answer.text, answer.hit_id) == ("".join(WORDS), None)


async def test_an_engines_own_timeout_is_its_own(make_stack: MakeStack) -> None:
    class Own(Awaited):
        async def astream(self, request: Request) -> AsyncGenerator[Any, None]:
            raise TimeoutError("its own")
            yield

    policies = "default: {fallback: {engine_deadline_s: 5, engine_error: [raise]}}"
    stack = make_stack(policies, engines={"e": Own()}, meaning=False)
    with pytest.raises(TimeoutError, match="its own"):
        await AsyncCacheStack(stack).chat(QUESTION)


class Scripted:
    """Streams the pieces of its script, in both ways."""

    name = model = "scripted"

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield from self.pieces
        return Generation("".join(self.pieces))


class AScripted(Scripted):
    async def astream(self, request: Request) -> AsyncGenerator[Any, None]:
        for piece in self.pieces:
            yield piece
        yield Generation("".join(self.pieces))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.text(max_size=4), max_size=6), awaited=st.booleans(), readers=st.integers(1, 4))
def test_every_reader_gets_the_very_text(pieces: list[str], awaited: bool, readers: int) -> None:
    async def run() -> None:
        stack = AsyncCacheStack(in_memory(AScripted(pieces) if awaited else Scripted(pieces)))
        texts = await asyncio.gather(*(collect(stack.stream(QUESTION)) for _ in range(readers)))
        assert {"".join(text) for text in texts} == {"".join(pieces)}
        assert stack.stack._flights.num_in_flight == 0

    asyncio.run(run())
