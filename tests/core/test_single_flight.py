"""Requests that are the same and under way at once share one call of the engine, and nothing else is shared."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.aio import AsyncCacheStack
from cachestack.continuation import Continuation, Interrupted, twin_of
from cachestack.decisions import Layer, Reason
from cachestack.errors import EngineError, NotCached, UpstreamError
from cachestack.requests import Delta, Generation, Request, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from cachestack.stack import CacheStack
    from tests.core.conftest import Clock, MakeStack

QUESTION = "How do I reset my password?"
WORDS = ["one ", "two ", "three ", "four"]


class Held:
    """Streams words; each call waits at its gate before the word of its number. Usable from threads and tasks."""

    name = model = "held"

    def __init__(self, *texts: list[str], at: int = 0, error: BaseException | None = None) -> None:
        self.texts, self.at, self.error = texts or (WORDS,), at, error
        self.calls: list[Request] = []
        self.closed = 0
        self.reached, self.gate = threading.Semaphore(0), threading.Event()

    def stream(self, request: Request) -> Generator[Any, None, Generation]:
        words = self.texts[min(len(self.calls), len(self.texts) - 1)]
        self.calls.append(request)
        try:
            for i, word in enumerate(words):
                if i == self.at:
                    self.reached.release()
                    assert self.gate.wait(20)
                    if self.error is not None:
                        raise self.error
                yield word
            return Generation("".join(words), usage=Usage(7, 0, len(words)))
        finally:
            self.closed += 1


class AsyncHeld(Held):
    async def astream(self, request: Request) -> AsyncGenerator[str | Generation, None]:
        words = self.texts[min(len(self.calls), len(self.texts) - 1)]
        self.calls.append(request)
        try:
            for i, word in enumerate(words):
                if i == self.at:
                    self.reached.release()
                    while not self.gate.is_set():
                        await asyncio.sleep(0.001)
                    if self.error is not None:
                        raise self.error
                yield word
            yield Generation("".join(words), usage=Usage(7, 0, len(words)))
        finally:
            self.closed += 1


def seats(stack: CacheStack, number: int) -> bool:
    """Until so many requests follow flights."""
    flights, done = stack._flights, threading.Event()
    for _ in range(2000):
        if sum(len(flight.seats) for flight in flights._flights.values()) == number:
            return True
        done.wait(0.005)
    return False


def reached(engine: Held) -> bool:
    return engine.reached.acquire(timeout=10)


def shared_of(response: Any) -> str | None:
    return next((s.detail["request_id"] for s in response.trace.steps if s.reason is Reason.SHARED), None)


@pytest.fixture
def pool() -> Generator[ThreadPoolExecutor, None, None]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def test_threads_share_one_call(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    engine = Held()
    stack = make_stack("default: {prices: {input_per_million: 1.0}}", engines={"e": engine}, meaning=False)
    asked = [pool.submit(stack.chat, QUESTION) for _ in range(8)]
    assert reached(engine)
    assert seats(stack, 7)
    engine.gate.set()
    answers = [future.result(20) for future in asked]
    assert {answer.text for answer in answers} == {"".join(WORDS)}
    assert len(engine.calls) == 1
    (leader,) = [answer for answer in answers if shared_of(answer) is None]
    followers = [answer for answer in answers if answer is not leader]
    assert {shared_of(answer) for answer in followers} == {leader.trace.request_id}
    assert {answer.trace.served_from for answer in followers} == {"shared"}
    assert {answer.usage for answer in followers} == {Usage(7, 7, 4)}
    assert {answer.hit_id for answer in answers} == {leader.hit_id}
    assert leader.hit_id
    stats = stack.stats().by_tenant["default"]
    assert (stats.requests, stats.engine_calls, stats.shared_calls, stats.tokens_generated) == (8, 1, 7, 4)
    assert stats.cost_saved == pytest.approx(7 * stats.cost)
    assert stack._flights.num_in_flight == 0
    assert stack.chat(QUESTION).trace.served_from == "exact"


def test_a_fast_engine_is_still_called_once(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    """Who looked in vain before the answer was there, and joins after, looks again."""
    for round_ in range(20):
        engine, barrier = Held(), threading.Barrier(8)
        engine.gate.set()
        stack = make_stack(engines={"e": engine}, meaning=False)

        def ask(stack: CacheStack = stack, barrier: threading.Barrier = barrier, round_: int = round_) -> str:
            barrier.wait(10)
            return stack.chat(f"{QUESTION} {round_}").text

        assert {f.result(20) for f in [pool.submit(ask) for _ in range(8)]} == {"".join(WORDS)}
        assert len(engine.calls) == 1


async def test_tasks_and_threads_share_one_call(make_stack: MakeStack) -> None:
    engine = AsyncHeld()
    stack = make_stack(engines={"e": engine}, meaning=False)
    both = AsyncCacheStack(stack)
    tasks = [asyncio.create_task(both.chat(QUESTION)) for _ in range(4)]
    assert await asyncio.to_thread(reached, engine)
    threads = [asyncio.create_task(asyncio.to_thread(stack.chat, QUESTION)) for _ in range(3)]
    assert await asyncio.to_thread(seats, stack, 6)
    engine.gate.set()
    answers = await asyncio.gather(*tasks, *threads)
    assert {answer.text for answer in answers} == {"".join(WORDS)}
    assert len(engine.calls) == 1


async def test_sync_followers_may_fill_the_loops_own_threads(make_stack: MakeStack) -> None:
    """A leading task that needs a thread must not wait for one that its followers hold."""
    engine = Held()
    stack = make_stack(engines={"e": engine}, meaning=False)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(2))
    leader = asyncio.create_task(AsyncCacheStack(stack).chat(QUESTION))
    while not engine.reached.acquire(blocking=False):
        await asyncio.sleep(0.001)
    followers = [asyncio.create_task(asyncio.to_thread(stack.chat, QUESTION)) for _ in range(2)]
    while sum(len(f.seats) for f in stack._flights._flights.values()) != 2:
        await asyncio.sleep(0.001)
    engine.gate.set()
    answers = await asyncio.wait_for(asyncio.gather(leader, *followers), 20)
    assert len({answer.text for answer in answers}) == len(engine.calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "other"},
        {"temperature": 0.1},
        {"lookup": False},
        {"store": False},
        {"max_age_s": 5.0},
        {"version": "2"},
        {"system": "Be brief."},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_differs_is_not_shared(make_stack: MakeStack, pool: ThreadPoolExecutor, other: dict[str, Any]) -> None:
    engine = Held()
    stack = make_stack(engines={"e": engine}, meaning=False)
    first, second = pool.submit(stack.chat, QUESTION), None
    assert reached(engine)
    second = pool.submit(stack.chat, QUESTION, **other)
    assert reached(engine), "it calls the engine itself, while the other one is under way"
    engine.gate.set()
    assert (shared_of(first.result(20)), shared_of(second.result(20))) == (None, None)


def test_walls_hold_between_users_and_after_a_raised_epoch(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    engine = Held()
    stack = make_stack("default: {semantic: {walls: [user]}}", engines={"e": engine}, meaning=False)
    message = stack_request("a").messages
    asked = [Request(message, user="a"), Request(message, user="b"), Request(message, user="a", epoch=1)]
    futures = [pool.submit(stack.chat, request) for request in asked]
    for _ in futures:
        assert reached(engine)
    engine.gate.set()
    assert [shared_of(future.result(20)) for future in futures] == [None] * 3


def stack_request(user: str) -> Request:
    from cachestack.asking import build_request

    return build_request(QUESTION, user=user)


def test_a_changed_policy_shares_nothing_with_the_former(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    from cachestack.policy_set import PolicySet

    engine = Held()
    stack = make_stack(engines={"e": engine}, meaning=False)
    first = pool.submit(stack.chat, QUESTION)
    assert reached(engine)
    stack.policies = PolicySet.parse("default: {retention: {max_entry_bytes: 10}}", "changed")
    second = pool.submit(stack.chat, QUESTION)
    assert reached(engine)
    engine.gate.set()
    assert [shared_of(f.result(20)) for f in (first, second)] == [None, None]


def test_who_asks_after_an_invalidation_gets_a_new_answer(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    engine = Held(["old"], ["new"])
    stack = make_stack(engines={"e": engine}, meaning=False)
    first = pool.submit(stack.chat, QUESTION, tags=["price"])
    assert reached(engine)
    stack.invalidate(tag="price")
    second = pool.submit(stack.chat, QUESTION, tags=["price"])
    assert reached(engine)
    engine.gate.set()
    assert [f.result(20).text for f in (first, second)] == ["old", "new"]


def test_an_invalidation_by_another_process_is_seen_by_who_asks_after_it(
    make_stack: MakeStack, pool: ThreadPoolExecutor, clock: Clock
) -> None:
    engine = Held(["kept"], ["old"], ["new"])
    stack = make_stack(engines={"e": engine}, meaning=False)
    engine.gate.set()
    stack.chat("Anything?")  # from now on the tenant has a file, where other processes can say something
    assert reached(engine)
    engine.gate.clear()
    first = pool.submit(stack.chat, QUESTION, tags=["price"])
    assert reached(engine)
    before = pool.submit(stack.chat, QUESTION, tags=["price"])
    assert seats(stack, 1)
    clock.now_s += 1
    make_stack(meaning=False).invalidate(tag="price")
    clock.now_s += 1
    after = pool.submit(stack.chat, QUESTION, tags=["price"])
    assert reached(engine)
    late = pool.submit(stack.chat, QUESTION, tags=["price"])
    assert seats(stack, 1)
    engine.gate.set()
    assert [f.result(20).text for f in (first, before, after, late)] == ["old", "old", "new", "new"]
    assert stack._flights.num_in_flight == 0


def test_only_if_cached_neither_leads_nor_follows(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    engine = Held()
    stack = make_stack(engines={"e": engine}, meaning=False)
    with pytest.raises(NotCached):
        stack.chat(QUESTION, only_if_cached=True)
    assert (engine.calls, stack._flights.num_in_flight) == ([], 0)
    first = pool.submit(stack.chat, QUESTION)
    assert reached(engine)
    with pytest.raises(NotCached):
        stack.chat(QUESTION, only_if_cached=True)
    engine.gate.set()
    first.result(20)
    assert stack.chat(QUESTION, only_if_cached=True).trace.served_from == "exact"
    stats = stack.stats().by_tenant["default"]
    assert (stats.requests, stats.failed, stats.engine_calls) == (4, 2, 1)


def test_an_answer_older_than_asked_for_is_not_shared(
    make_stack: MakeStack, pool: ThreadPoolExecutor, clock: Clock
) -> None:
    engine = Held()
    stack = make_stack(engines={"e": engine}, meaning=False)
    futures = [pool.submit(stack.chat, QUESTION, max_age_s=5.0)]
    assert reached(engine)
    clock.now_s += 6
    futures.append(pool.submit(stack.chat, QUESTION, max_age_s=5.0))
    assert reached(engine)
    engine.gate.set()
    assert [shared_of(f.result(20)) for f in futures] == [None, None]


def test_a_failure_is_raised_in_each_and_not_kept(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    engine = Held(error=UpstreamError("too many", status=429, body={"a": 1}, retry_after_s=3.0))
    stack = make_stack("default: {fallback: {engine_error: [raise]}}", engines={"e": engine}, meaning=False)
    asked = [pool.submit(stack.chat, QUESTION) for _ in range(5)]
    assert reached(engine)
    assert seats(stack, 4)
    engine.gate.set()
    errors = [future.exception(20) for future in asked]
    assert len({id(error) for error in errors}) == 5
    assert {(str(e), e.status, e.retry_after_s) for e in errors} == {("too many", 429, 3.0)}
    assert len(engine.calls) == 1
    engine.error = None
    assert stack.chat(QUESTION).text == "".join(WORDS)
    stats = stack.stats().by_tenant["default"]
    assert (stats.failed, stats.engine_calls, stats.engine_errors) == (5, 1, 1)


def test_a_retry_of_the_leader_serves_all(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    class Once(Held):
        def stream(self, request: Request) -> Generator[str, None, Generation]:
            if len(self.calls) == 1:
                self.error = None
            return super().stream(request)

    engine = Once(error=ConnectionError("lost"))
    stack = make_stack(engines={"e": engine}, meaning=False)
    asked = [pool.submit(stack.chat, QUESTION) for _ in range(3)]
    assert reached(engine)
    assert seats(stack, 2)
    engine.gate.set()
    assert {future.result(20).text for future in asked} == {"".join(WORDS)}
    assert len(engine.calls) == 2


def test_a_stale_answer_of_the_leader_is_stale_for_all(
    make_stack: MakeStack, pool: ThreadPoolExecutor, clock: Clock
) -> None:
    engine = Held()
    engine.gate.set()
    policies = "default: {fallback: {engine_error: [stale, raise]}, retention: {ttl_s: 10}}"
    stack = make_stack(policies, engines={"e": engine}, meaning=False)
    stack.chat(QUESTION)
    assert reached(engine)
    clock.now_s += 11
    engine.gate.clear()
    engine.error = ConnectionError("lost")
    asked = [pool.submit(stack.chat, QUESTION) for _ in range(3)]
    assert reached(engine)
    assert seats(stack, 2)
    engine.gate.set()
    assert {future.result(20).trace.served_from for future in asked} == {"stale"}
    assert len(engine.calls) == 2


def test_followers_of_a_stream_get_its_pieces_as_they_come(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    engine = Held(at=2)
    stack = make_stack(engines={"e": engine}, meaning=False)
    leader, follower = stack.stream(QUESTION), stack.stream(QUESTION)
    assert [next(leader).text, next(leader).text] == WORDS[:2]
    assert [next(follower).text, next(follower).text] == WORDS[:2], "before the call has ended"
    engine.gate.set()
    for stream in (follower, leader):
        assert [chunk.text for chunk in stream] == [*WORDS[2:], ""]
    assert len(engine.calls) == 1
    assert shared_of(follower.response) == leader.response.trace.request_id


def test_a_paused_leader_holds_nobody_up(make_stack: MakeStack) -> None:
    """Its reader may be this very thread: the follower reads the engine on, and the leader finds it done."""
    engine = Held(at=99)
    stack = make_stack(engines={"e": engine}, meaning=False)
    with stack.stream(QUESTION) as leader:
        assert next(leader).text == WORDS[0]
        answer = stack.chat(QUESTION)
        assert (answer.text, shared_of(answer) is not None) == ("".join(WORDS), True)
        assert [chunk.text for chunk in leader] == [*WORDS[1:], ""]
    assert (len(engine.calls), engine.closed) == (1, 1)
    assert stack.chat(QUESTION).hit_id == leader.response.hit_id == answer.hit_id


async def test_a_paused_leader_in_a_thread_holds_no_task_up(make_stack: MakeStack) -> None:
    engine = Held(at=99)
    stack = make_stack(engines={"e": engine}, meaning=False)
    with stack.stream(QUESTION) as leader:
        next(leader)
        answer = await asyncio.wait_for(AsyncCacheStack(stack).chat(QUESTION), 20)
    assert answer.text == "".join(WORDS)
    assert len(engine.calls) == 1


async def test_a_paused_async_leader_holds_nobody_up(make_stack: MakeStack) -> None:
    engine = AsyncHeld(at=99)
    stack = AsyncCacheStack(make_stack(engines={"e": engine}, meaning=False))
    async with stack.stream(QUESTION) as leader:
        assert (await anext(leader)).text == WORDS[0]
        assert (await asyncio.wait_for(stack.chat(QUESTION), 20)).text == "".join(WORDS)
        assert [chunk.text async for chunk in leader] == [*WORDS[1:], ""]
    assert len(engine.calls) == 1


def test_a_failure_that_a_follower_meets_in_a_paused_leaders_place(make_stack: MakeStack) -> None:
    engine = Held(at=1, error=ConnectionError("lost"))
    engine.gate.set()
    stack = make_stack(engines={"e": engine}, meaning=False)
    leader = stack.stream(QUESTION)
    next(leader)
    with pytest.raises(ConnectionError) as met:
        stack.chat(QUESTION)
    with pytest.raises(ConnectionError) as own:
        list(leader)
    assert met.value is not own.value
    assert stack._flights.num_in_flight == 0


def test_a_leader_that_leaves_is_followed_by_the_first_that_waits(
    make_stack: MakeStack, pool: ThreadPoolExecutor
) -> None:
    engine = Held(["a ", "b ", "c"], ["x ", "y"], at=1)
    stack = make_stack(engines={"e": engine}, meaning=False)
    leader = stack.stream(QUESTION)
    assert next(leader).text == "a "
    asked = [pool.submit(stack.chat, QUESTION) for _ in range(3)]
    assert reached(engine), "a follower reads on"
    assert seats(stack, 3)
    leader.close()
    engine.gate.set()
    answers = [future.result(20) for future in asked]
    assert {answer.text for answer in answers} == {"x y"}
    assert (len(engine.calls), engine.closed) == (2, 2)
    assert sorted(shared_of(answer) is None for answer in answers) == [False, False, True]
    assert stack._flights.num_in_flight == 0


@pytest.mark.parametrize(("second", "rest"), [(["a b", " c d"], "b c d"), (["something else"], None), (["a"], None)])
def test_a_follower_that_has_passed_text_on_goes_on_only_with_that_text(
    make_stack: MakeStack, second: list[str], rest: str | None
) -> None:
    engine = Held(["a ", "b ", "c"], second, at=99)
    stack = make_stack(engines={"e": engine}, meaning=False)
    leader, follower = stack.stream(QUESTION), stack.stream(QUESTION)
    assert next(leader).text == next(follower).text == "a "
    leader.close()
    if rest is None:
        with pytest.raises(EngineError, match="another text"):
            list(follower)
        assert stack.stats().by_tenant["default"].failed == 1
    else:
        assert "".join(chunk.text for chunk in follower) == rest
        assert follower.response.text == "".join(second)
    assert stack._flights.num_in_flight == 0


async def test_a_cancelled_task_hands_over(make_stack: MakeStack) -> None:
    engine = AsyncHeld()
    stack = make_stack(engines={"e": engine}, meaning=False)
    both = AsyncCacheStack(stack)
    leader = asyncio.create_task(both.chat(QUESTION))
    assert await asyncio.to_thread(reached, engine)
    followers = []
    for number in range(3):
        followers.append(asyncio.create_task(both.chat(QUESTION)))
        assert await asyncio.to_thread(seats, stack, number + 1)
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    assert engine.closed == 1
    assert await asyncio.to_thread(reached, engine), "one of them calls the engine anew"
    followers[0].cancel()
    assert await asyncio.to_thread(reached, engine)
    engine.gate.set()
    answers = await asyncio.gather(*followers, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert {answer.text for answer in answers[1:]} == {"".join(WORDS)}
    assert (len(engine.calls), stack._flights.num_in_flight) == (3, 0)
    stats = stack.stats().by_tenant["default"]
    assert (stats.requests, stats.cancelled, stats.shared_calls) == (4, 2, 1)


async def test_followers_may_leave_at_any_time(make_stack: MakeStack) -> None:
    engine = AsyncHeld()
    stack = make_stack(engines={"e": engine}, meaning=False)
    both = AsyncCacheStack(stack)
    leader = asyncio.create_task(both.chat(QUESTION))
    assert await asyncio.to_thread(reached, engine)
    followers = [asyncio.create_task(both.chat(QUESTION)) for _ in range(3)]
    assert await asyncio.to_thread(seats, stack, 3)
    for task in followers:
        task.cancel()
    await asyncio.gather(*followers, return_exceptions=True)
    assert seats(stack, 0)
    engine.gate.set()
    assert (await leader).text == "".join(WORDS)
    assert engine.closed == len(engine.calls) == 1


def test_a_follower_that_pauses_is_not_waited_for_when_the_leader_leaves(make_stack: MakeStack) -> None:
    engine = Held(["a ", "b"], ["x"], at=99)
    stack = make_stack(engines={"e": engine}, meaning=False)
    leader, paused = stack.stream(QUESTION), stack.stream(QUESTION)
    assert next(leader).text == next(paused).text == "a "
    third = stack.stream(QUESTION)
    assert next(third).text == "a "
    leader.close()
    assert stack.chat(QUESTION).text == "x", "who comes now leads"
    for late in (paused, third):
        with pytest.raises(EngineError, match="another text"):
            list(late)
    assert (len(engine.calls), stack._flights.num_in_flight) == (2, 0)


def test_followers_that_leave_after_their_leader_leave_nothing_behind(make_stack: MakeStack) -> None:
    engine = Held(at=99)
    stack = make_stack(engines={"e": engine}, meaning=False)
    streams = [stack.stream(QUESTION) for _ in range(3)]
    for stream in streams:
        next(stream)
    for stream in streams:
        stream.close()
    assert (stack._flights.num_in_flight, engine.closed, len(engine.calls)) == (0, 1, 1)


def test_a_call_within_a_call_goes_through(make_stack: MakeStack) -> None:
    stack = make_stack(meaning=False)
    depth: list[int] = []

    @stack.wrap(tenant="t", model="m", name="f")
    def ask(prompt: str) -> str:
        depth.append(1)
        return ask(prompt) if len(depth) < 3 else "deep"

    assert ask(QUESTION) == "deep"
    assert len(depth) == 3


async def test_a_call_within_an_awaited_call_goes_through(make_stack: MakeStack) -> None:
    stack = make_stack(meaning=False)
    depth: list[int] = []

    @stack.wrap(tenant="t", model="m", name="f")
    async def ask(prompt: str) -> str:
        depth.append(1)
        return await ask(prompt) if len(depth) < 3 else "deep"

    assert await asyncio.wait_for(ask(QUESTION), 20) == "deep"
    assert len(depth) == 3


def test_two_that_would_wait_for_each_other_do_not(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    """One leads A and asks B, the other leads B and asks A."""
    stack = make_stack(meaning=False)
    barrier, depth = threading.Barrier(2), threading.local()

    @stack.wrap(tenant="t", model="m", name="f")
    def ask(prompt: str) -> str:
        if getattr(depth, "inner", False):
            return f"inner {prompt}"
        depth.inner = True
        barrier.wait(10)
        return f"outer {ask('B' if prompt == 'A' else 'A')}"

    futures = [pool.submit(ask, prompt) for prompt in "AB"]
    answers = sorted(future.result(20) for future in futures)
    assert all(answer.startswith("outer") for answer in answers)
    assert stack._flights.num_in_flight == 0


def test_an_answer_that_is_more_than_text_reaches_the_followers_whole(
    make_stack: MakeStack, pool: ThreadPoolExecutor
) -> None:
    delta, whole = Delta({"tool": "x"}), Generation("", "tool_calls", body={"id": 1}, is_text=False)

    class Tools(Held):
        def stream(self, request: Request) -> Generator[Any, None, Generation]:
            self.calls.append(request)
            yield delta
            self.reached.release()
            assert self.gate.wait(10)
            return whole

    engine = Tools()
    stack = make_stack(engines={"e": engine}, meaning=False)
    asked = [pool.submit(lambda: list(stack.stream(QUESTION))) for _ in range(3)]
    assert reached(engine)
    assert seats(stack, 2)
    engine.gate.set()
    for future in asked:
        assert [chunk.delta for chunk in future.result(20)] == [delta, None]
    assert len(engine.calls) == 1
    assert stack.performer.store.size().num_entries == 0


def test_explain_neither_leads_nor_waits(make_stack: MakeStack, pool: ThreadPoolExecutor) -> None:
    engine = Held()
    stack = make_stack(engines={"e": engine}, meaning=False)
    first = pool.submit(stack.chat, QUESTION)
    assert reached(engine)
    assert stack.explain(QUESTION).would == "engine"
    assert seats(stack, 0)
    engine.gate.set()
    assert first.result(20).trace.step(Layer.DECODE).reason is Reason.GENERATED


class Awkward(Exception):
    def __init__(self, name: str, *, code: int) -> None:
        super().__init__(f"no {name}")
        self.code = code


@pytest.mark.parametrize(
    "error",
    [
        Awkward("x", code=3),
        ValueError("a", 1),
        OSError(2, "no file", "f"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        UpstreamError("m", status=500),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_twin_is_equal_and_another(error: Exception) -> None:
    twin = twin_of(error)
    assert twin is not error
    assert (type(twin), str(twin), twin.args, vars(twin)) == (type(error), str(error), error.args, vars(error))


@given(st.lists(st.text("ab", max_size=3)), st.lists(st.text("ab", max_size=3)), st.integers(0, 5))
def test_what_is_passed_on_is_always_a_beginning_of_the_whole(first: list[str], second: list[str], cut: int) -> None:
    passed_on = Continuation()
    given_ = "".join(str(passed_on.passes(piece)) for piece in first[:cut])
    assert given_ == "".join(first[:cut])
    passed_on.restart()
    whole = "".join(second)
    try:
        given_ += "".join(str(passed_on.passes(piece)) for piece in second)
        passed_on.check(whole)
    except Interrupted:
        assert not whole.startswith("".join(first[:cut]))
    else:
        assert given_ == whole


class Both:
    """Answers each question with its own words, sometimes with a failure; for threads and tasks."""

    name = model = "both"

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.calls = rng, 0

    def pieces(self, request: Request) -> Generator[str, None, None]:
        self.calls += 1
        fails = self.rng.random() < 0.15
        for i in range(6):
            if fails and i == 3:
                raise ConnectionError("lost")
            yield f"{request.question} {i} "

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        text = ""
        for piece in self.pieces(request):
            text += piece
            yield piece
        return Generation(text)


class AsyncBoth(Both):
    async def astream(self, request: Request) -> AsyncGenerator[str | Generation, None]:
        text = ""
        for piece in self.pieces(request):
            await asyncio.sleep(0)
            text += piece
            yield piece
        yield Generation(text)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [Both, AsyncBoth])
def test_whatever_comes_and_goes_no_text_is_wrong_and_no_flight_is_left(
    make_stack: MakeStack, kind: type[Both], seed: int
) -> None:
    rng = random.Random(seed)
    stack = make_stack("default: {fallback: {engine_error: [raise]}}", engines={"e": kind(rng)}, meaning=False)
    both, barrier = AsyncCacheStack(stack), threading.Barrier(5)
    wrong: list[str] = []

    def see(question: str, text: str, whole: bool) -> None:
        right = "".join(f"{question} {i} " for i in range(6))
        if not (text == right if whole else right.startswith(text)):
            wrong.append(text)

    async def ask_later(question: str, leaves: int) -> None:
        text = ""
        with contextlib.suppress(ConnectionError):
            async with both.stream(question) as stream:
                async for chunk in stream:
                    text += chunk.text
                    if (leaves := leaves - 1) == 0:
                        break
            see(question, text, leaves < 0)

    async def ask_many(questions: list[tuple[str, int]]) -> None:
        tasks = [asyncio.create_task(ask_later(*question)) for question in questions]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ask(own: random.Random, is_async: bool) -> None:
        barrier.wait(10)
        questions = [(f"Q{own.randrange(12)}", own.choice([0, 0, 1, 3])) for _ in range(40)]
        if is_async:
            for start in range(0, 40, 8):
                asyncio.run(ask_many(questions[start : start + 8]))
            return
        for question, leaves in questions:
            text = ""
            with contextlib.suppress(ConnectionError), stack.stream(question, store=True) as stream:
                for chunk in stream:
                    text += chunk.text
                    if (leaves := leaves - 1) == 0:
                        break
                see(question, text, leaves < 0)

    threads = [threading.Thread(target=ask, args=(random.Random(seed * 10 + n), n % 2 == 1)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []
    assert stack._flights.num_in_flight == 0
    stats = stack.stats().by_tenant["default"]
    assert stats.requests == stats.semantic.num_hits + sum(stats.semantic.misses.values()) + sum(
        stats.semantic.bypasses.values()
    )
