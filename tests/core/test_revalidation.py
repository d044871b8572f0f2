"""A stale answer is served at once while a new one is made: once, in the background, and nothing is left behind."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cachestack import revalidating
from cachestack.aio import AsyncCacheStack
from cachestack.decisions import Layer, Outcome, Reason
from cachestack.errors import LimitExceeded, NotCached
from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator

    from cachestack.decisions import Response
    from cachestack.stack import CacheStack
    from tests.core.conftest import Clock, MakeStack

QUESTION, OTHER = "How do I reset my password?", "How can I reset my password?"
POLICY = """
default:
  semantic: {encoder_deadline_ms: 60000}
  retention: {ttl_s: 100}
  freshness: {stale_while_revalidate_s: 50}
"""
WAIT_S = 20


class Gated:
    """Its first answer comes at once; each later one when `gate` is open. `stopped`: a call was closed early."""

    name = model = "gated"

    def __init__(self) -> None:
        self.calls, self.fails = 0, False
        self.threads: list[threading.Thread] = []
        self.begun, self.gate, self.stopped = threading.Event(), threading.Event(), threading.Event()

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.calls += 1
        text = f"answer {self.calls}"
        self.threads.append(threading.current_thread())
        try:
            yield text[:4]
            if self.calls > 1:
                self.begun.set()
                assert self.gate.wait(WAIT_S)
            if self.fails:
                raise OSError("down")
            yield text[4:]
            return Generation(text)
        except GeneratorExit:
            self.stopped.set()
            raise


class Awaited:
    """The same, awaited."""

    name = model = "awaited"

    def __init__(self) -> None:
        self.calls = 0
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.begun, self.gate, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def astream(self, request: Request) -> AsyncGenerator[str | Generation, None]:
        self.calls += 1
        text = f"answer {self.calls}"
        self.loops.append(asyncio.get_running_loop())
        if self.calls > 1:
            self.begun.set()
            try:
                await asyncio.wait_for(self.gate.wait(), WAIT_S)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        yield text
        yield Generation(text)


@pytest.fixture
def engine() -> Iterator[Gated]:
    engine = Gated()
    yield engine
    engine.gate.set()


def served(response: Response) -> tuple[str, str]:
    return response.trace.served_from, response.text


def test_the_old_answer_is_served_at_once_and_the_new_one_next(
    make_stack: MakeStack, clock: Clock, engine: Gated
) -> None:
    stack = make_stack(POLICY, engines={"e": engine})
    stack.chat(QUESTION)
    clock.now_s += 100
    first = stack.chat(QUESTION)
    assert served(first) == ("stale", "answer 1")
    step = first.trace.step(Layer.SEMANTIC)
    assert step is not None
    assert (step.outcome, step.reason, step.detail["revalidates"]) == (Outcome.HIT, Reason.STALE, True)
    assert engine.begun.wait(WAIT_S)
    clock.now_s += 10
    engine.gate.set()
    assert stack.revalidations.wait(WAIT_S)
    assert served(stack.chat(QUESTION)) == ("exact", "answer 2")
    assert served(stack.chat(OTHER)) == ("semantic", "answer 2")
    clock.now_s += 89
    assert stack.explain(QUESTION).would == "exact", "the new answer's life began when it was asked for"
    clock.now_s += 1
    assert stack.explain(QUESTION).would == "stale"
    counted = stack.stats().by_tenant["default"]
    assert counted.revalidations == {"done": 1}
    assert (counted.requests, counted.engine_calls, counted.semantic.hits["stale"]) == (4, 2, 1)


def test_many_askers_make_one_new_answer(make_stack: MakeStack, clock: Clock, engine: Gated) -> None:
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    stack.chat(QUESTION)
    clock.now_s += 120
    barrier = threading.Barrier(8)
    found: list[tuple[str, str]] = []

    def ask() -> None:
        barrier.wait()
        found.extend(served(stack.chat(QUESTION)) for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [("stale", "answer 1")] * 40
    engine.gate.set()
    assert stack.revalidations.wait(WAIT_S)
    assert engine.calls == 2
    assert stack.stats().by_tenant["default"].revalidations == {"done": 1}
    assert served(stack.chat(QUESTION)) == ("exact", "answer 2")


def test_who_comes_when_the_stale_time_is_over_shares_the_call_that_is_under_way(
    make_stack: MakeStack, clock: Clock, engine: Gated
) -> None:
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    stack.chat(QUESTION)
    clock.now_s += 149
    stack.chat(QUESTION)
    assert engine.begun.wait(WAIT_S)
    clock.now_s += 1
    late: list[tuple[str, str]] = []
    asker = threading.Thread(target=lambda: late.append(served(stack.chat(QUESTION))))
    asker.start()
    engine.gate.set()
    asker.join()
    assert late in ([("shared", "answer 2")], [("exact", "answer 2")])
    assert engine.calls == 2


def test_a_failure_keeps_the_old_answer_until_its_bound_and_rests(
    make_stack: MakeStack, clock: Clock, engine: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    monkeypatch.setattr(stack.revalidations, "_clock", lambda: now_s[0])
    stack.chat(QUESTION)
    clock.now_s += 100
    engine.fails = True
    engine.gate.set()
    for _ in range(3):  # one attempt, then a rest
        assert served(stack.chat(QUESTION)) == ("stale", "answer 1")
        assert stack.revalidations.wait(WAIT_S)
    calls = engine.calls
    assert calls == 3, "the new answer, and its retry"
    now_s[0] += revalidating.REST_S
    assert served(stack.chat(QUESTION)) == ("stale", "answer 1")
    assert stack.revalidations.wait(WAIT_S)
    assert engine.calls == calls + 2
    clock.now_s += 49
    assert served(stack.chat(QUESTION)) == ("stale", "answer 1")
    clock.now_s += 1
    with pytest.raises(OSError, match="down"):
        stack.chat(QUESTION)
    counted = stack.stats().by_tenant["default"]
    assert counted.revalidations == {"failed": 2}
    assert counted.failed == 1


@pytest.mark.parametrize(
    "options", [{"max_age_s": 100.0}, {"only_if_cached": True}, {"store": False}, {"lookup": False}], ids=str
)
def test_a_requests_own_words_come_first(
    make_stack: MakeStack, clock: Clock, engine: Gated, options: dict[str, Any]
) -> None:
    """Who takes nothing older, forbids the call or the keeping gets no stale answer."""
    from dataclasses import replace

    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    first = stack.chat(QUESTION)
    assert first.text == "answer 1"
    clock.now_s += 120
    engine.gate.set()
    from cachestack.asking import build_request

    request = replace(build_request(QUESTION), **options)
    if "only_if_cached" in options:
        with pytest.raises(NotCached):
            stack.chat(request)
    else:
        assert served(stack.chat(request)) == ("engine", "answer 2")


def test_what_was_invalidated_is_not_served_stale_and_an_answer_from_before_is_not_kept(
    make_stack: MakeStack, clock: Clock, engine: Gated
) -> None:
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    stack.chat(QUESTION)
    clock.now_s += 120
    assert served(stack.chat(QUESTION)) == ("stale", "answer 1")
    assert engine.begun.wait(WAIT_S)
    clock.now_s += 1
    stack.invalidate(tenant="default")
    clock.now_s += 1
    engine.gate.set()
    assert stack.revalidations.wait(WAIT_S)
    assert served(stack.chat(QUESTION)) == ("engine", "answer 3")


def test_closing_stops_what_is_under_way_and_leaves_no_thread(
    make_stack: MakeStack, clock: Clock, engine: Gated
) -> None:
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    stack.chat(QUESTION)
    clock.now_s += 120
    stack.chat(QUESTION)
    assert engine.begun.wait(WAIT_S)
    closing = threading.Thread(target=stack.close)
    closing.start()
    engine.gate.set()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert not engine.threads[1].is_alive()


def test_closing_does_not_wait_for_ever_for_an_engine_that_hangs(
    make_stack: MakeStack, clock: Clock, engine: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revalidating, "CLOSE_WAIT_S", 0.0)
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    stack.chat(QUESTION)
    clock.now_s += 120
    stack.chat(QUESTION)
    assert engine.begun.wait(WAIT_S)
    stack.close()
    engine.gate.set()
    engine.threads[1].join(WAIT_S)
    assert engine.stopped.wait(WAIT_S)
    again = make_stack(POLICY, engines={"e": engine}, meaning=False)
    assert again.explain(QUESTION).would == "stale", "what it brought is not kept"


def test_a_limit_forbids_it_and_pays_for_it(make_stack: MakeStack, clock: Clock, engine: Gated) -> None:
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    charged: list[str] = []
    allowed = False

    @contextmanager
    def admit(request: Request) -> Iterator[Any]:
        if not allowed:
            raise LimitExceeded("spend_per_day is reached", retry_after_s=1.0)
        yield lambda response: charged.append(response.text)

    stack.revalidations.admit = admit
    stack.chat(QUESTION)
    clock.now_s += 120
    assert served(stack.chat(QUESTION)) == ("stale", "answer 1")
    assert stack.revalidations.wait(WAIT_S)
    assert (engine.calls, charged) == (1, [])
    allowed = True
    stack.revalidations._failed_s.clear()
    engine.gate.set()
    assert served(stack.chat(QUESTION)) == ("stale", "answer 1")
    assert stack.revalidations.wait(WAIT_S)
    assert (engine.calls, charged) == (2, ["answer 2"])
    assert stack.stats().by_tenant["default"].revalidations == {"done": 1, "limited": 1}


def test_there_are_few_at_a_time(
    make_stack: MakeStack, clock: Clock, engine: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revalidating, "MAX_AT_ONCE", 1)
    engine.gate.set()
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    for question in (QUESTION, OTHER):
        stack.chat(question)
    engine.gate.clear()
    clock.now_s += 120
    assert stack.chat(QUESTION).trace.served_from == "stale"
    assert stack.chat(OTHER).trace.served_from == "stale"
    engine.gate.set()
    assert stack.revalidations.wait(WAIT_S)
    assert engine.calls == 3
    assert stack.stats().by_tenant["default"].revalidations == {"busy": 1, "done": 1}


def test_explaining_makes_nothing(make_stack: MakeStack, clock: Clock, engine: Gated) -> None:
    stack = make_stack(POLICY, engines={"e": engine}, meaning=False)
    stack.chat(QUESTION)
    clock.now_s += 120
    assert stack.explain(QUESTION).would == "stale"
    assert stack.revalidations.wait(0)
    assert engine.calls == 1


def test_the_class_decides_when_an_answer_is_stale_and_a_relative_time_ends_that_too(
    make_stack: MakeStack, clock: Clock, engine: Gated
) -> None:
    engine.gate.set()
    stack = make_stack("default: {freshness: {stale_while_revalidate_s: 7200}}", engines={"e": engine}, meaning=False)
    weather, tomorrow = "What is the weather right now?", "Is tomorrow a public holiday?"
    clock.now_s = 1_000_000 - 1_000_000 % 86_400 + 86_400 - 30  # half a minute before midnight
    for question in (weather, tomorrow):
        stack.chat(question)
    clock.now_s += 60
    assert stack.chat(weather).trace.served_from == "stale"
    assert stack.chat(tomorrow).trace.served_from == "engine"


# On an event loop


async def test_on_a_loop_the_new_answer_is_made_by_a_task_of_it(make_stack: MakeStack, clock: Clock) -> None:
    engine = Awaited()
    async with AsyncCacheStack(make_stack(POLICY, engines={"e": engine}, meaning=False)) as stack:
        await stack.chat(QUESTION)
        clock.now_s += 120
        for _ in range(3):
            assert served(await stack.chat(QUESTION)) == ("stale", "answer 1")
        await asyncio.wait_for(engine.begun.wait(), WAIT_S)
        engine.gate.set()
        assert await asyncio.to_thread(stack.stack.revalidations.wait, WAIT_S)
        assert served(await stack.chat(QUESTION)) == ("exact", "answer 2")
        assert engine.calls == 2
        assert set(engine.loops) == {asyncio.get_running_loop()}


async def test_a_stream_of_a_stale_answer_begins_one_too(make_stack: MakeStack, clock: Clock) -> None:
    engine = Awaited()
    async with AsyncCacheStack(make_stack(POLICY, engines={"e": engine})) as stack:
        await stack.chat(QUESTION)
        clock.now_s += 120
        chunks = [chunk.text async for chunk in stack.stream(QUESTION)]
        assert "".join(chunks) == "answer 1"
        engine.gate.set()
        assert await asyncio.to_thread(stack.stack.revalidations.wait, WAIT_S)
        assert served(await stack.chat(QUESTION)) == ("exact", "answer 2")


async def test_closing_an_async_stack_cancels_its_tasks(make_stack: MakeStack, clock: Clock) -> None:
    engine = Awaited()
    stack = AsyncCacheStack(make_stack(POLICY, engines={"e": engine}, meaning=False))
    await stack.chat(QUESTION)
    clock.now_s += 120
    await stack.chat(QUESTION)
    await asyncio.wait_for(engine.begun.wait(), WAIT_S)
    others = asyncio.all_tasks()
    await stack.aclose()
    assert engine.cancelled.is_set()
    assert asyncio.all_tasks() <= others
    assert all(task.done() or task is asyncio.current_task() for task in others)


async def test_closing_from_a_thread_cancels_the_tasks_of_a_loop(make_stack: MakeStack, clock: Clock) -> None:
    engine = Awaited()
    stack = AsyncCacheStack(make_stack(POLICY, engines={"e": engine}, meaning=False))
    await stack.chat(QUESTION)
    clock.now_s += 120
    await stack.chat(QUESTION)
    await asyncio.wait_for(engine.begun.wait(), WAIT_S)
    await asyncio.to_thread(stack.stack.close)
    await asyncio.wait_for(engine.cancelled.wait(), WAIT_S / 2)


def test_a_loop_that_ends_takes_its_tasks_along(make_stack: MakeStack, clock: Clock) -> None:
    engine = Awaited()
    sync: CacheStack = make_stack(POLICY, engines={"e": engine}, meaning=False)

    async def ask() -> None:
        stack = AsyncCacheStack(sync)
        await stack.chat(QUESTION)
        clock.now_s += 120
        await stack.chat(QUESTION)
        await asyncio.wait_for(engine.begun.wait(), WAIT_S)

    asyncio.run(ask())
    assert engine.cancelled.is_set()
    assert sync.revalidations.wait(0)
    sync.close()


def test_wrapped_functions_are_called_again_in_the_background(make_stack: MakeStack, clock: Clock) -> None:
    stack = make_stack(POLICY, meaning=False)
    called: list[str] = []

    @stack.wrap(tenant="t", model="m", name="f")
    def answer(prompt: str) -> str:
        called.append(prompt)
        return f"answer {len(called)}"

    assert answer(QUESTION) == "answer 1"
    clock.now_s += 120
    assert answer(QUESTION) == "answer 1"
    assert stack.revalidations.wait(WAIT_S)
    assert answer(QUESTION) == "answer 2"


async def test_wrapped_coroutines_are_awaited_again_by_their_loop(make_stack: MakeStack, clock: Clock) -> None:
    stack = make_stack(POLICY, meaning=False)
    loops: list[asyncio.AbstractEventLoop] = []

    @stack.wrap(tenant="t", model="m", name="f")
    async def answer(prompt: str) -> str:
        loops.append(asyncio.get_running_loop())
        return f"answer {len(loops)}"

    assert await answer(QUESTION) == "answer 1"
    clock.now_s += 120
    assert await answer(QUESTION) == "answer 1"
    assert await asyncio.to_thread(stack.revalidations.wait, WAIT_S)
    assert await answer(QUESTION) == "answer 2"
    assert set(loops) == {asyncio.get_running_loop()}
