"""asyncio in rough hands: cancelled at every effect, many tasks, two loops, a loop that must not be blocked."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cachestack.effects import Effect, Embed, FindExact, PublishEntry, Search, Touch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cachestack.stack import CacheStack
    from tests.core.conftest import MakeStack

QUESTION = "How do I reset my password?"


class Gate:
    """Holds one kind of effect until it is opened, and notes the threads that effects ran in."""

    def __init__(self, stack: CacheStack, kind: type | None = None) -> None:
        self._inner, self._kind = stack.performer.perform, kind
        self.reached, self.opened = threading.Event(), threading.Event()
        self.threads: set[threading.Thread] = set()
        stack.performer.perform = self  # type: ignore[method-assign, assignment]

    def __call__(self, effect: Effect, engines: Any) -> Any:
        self.threads.add(threading.current_thread())
        if self._kind is not None and isinstance(effect, self._kind):
            self.reached.set()
            assert self.opened.wait(10)
        return self._inner(effect, engines)


def adds_up(stack: CacheStack, requests: int) -> bool:
    stats = stack.stats().by_tenant["t"]
    layer = stats.semantic
    outcomes = layer.num_hits + sum(layer.misses.values()) + sum(layer.bypasses.values())
    return requests == stats.requests == outcomes


def asker(stack: CacheStack) -> Callable[[str], Coroutine[Any, Any, str]]:
    @stack.wrap(tenant="t", model="m", name="f")
    async def ask(prompt: str) -> str:
        await asyncio.sleep(0)
        return f"re: {prompt}"

    return ask


@pytest.mark.parametrize("kind", [FindExact, Embed, Search, PublishEntry, Touch])
async def test_cancelled_at_each_effect(make_stack: MakeStack, kind: type) -> None:
    stack = make_stack()
    ask = asker(stack)
    if kind is Touch:
        await ask(QUESTION)
    gate = Gate(stack, kind)
    task = asyncio.create_task(ask(QUESTION))
    await asyncio.to_thread(gate.reached.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.opened.set()
    stats = stack.stats().by_tenant["t"]
    before = int(kind is Touch)
    assert (stats.cancelled, adds_up(stack, 1 + before)) == (1, True)
    assert await ask(QUESTION) == f"re: {QUESTION}"
    assert adds_up(stack, 2 + before)


async def test_no_effect_runs_in_the_loop(make_stack: MakeStack) -> None:
    """Even a look-up may wait: for a file to be opened, for another process that writes."""
    stack = make_stack()
    gate, ask = Gate(stack), asker(stack)
    for question in (QUESTION, QUESTION, "How can I reset my password?"):
        await ask(question)
    assert gate.threads
    assert threading.main_thread() not in gate.threads


async def test_many_tasks_at_once(make_stack: MakeStack) -> None:
    stack = make_stack()
    ask = asker(stack)
    questions = [f"What is the price of item number {i % 7}?" for i in range(70)]
    assert await asyncio.gather(*map(ask, questions)) == [f"re: {q}" for q in questions]
    assert adds_up(stack, 70)


def test_two_loops_in_two_threads(make_stack: MakeStack) -> None:
    stack, barrier, answers = make_stack(), threading.Barrier(2), []
    ask = asker(stack)

    async def several() -> list[str]:
        return await asyncio.gather(*(ask(f"What is the price of item number {i}?") for i in range(8)))

    def run() -> None:
        barrier.wait()
        answers.append(asyncio.run(several()))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [[f"re: What is the price of item number {i}?" for i in range(8)]] * 2
    assert adds_up(stack, 16)


@pytest.mark.parametrize(("error", "field"), [(KeyboardInterrupt, "cancelled"), (TimeoutError, "failed")])
def test_whatever_a_coroutine_raises_is_counted(make_stack: MakeStack, error: type[BaseException], field: str) -> None:
    stack = make_stack(meaning=False)

    @stack.wrap(tenant="t", model="m")
    async def ask(prompt: str) -> str:
        raise error

    with pytest.raises(error):
        asyncio.run(ask(QUESTION))  # type: ignore[arg-type]
    assert getattr(stack.stats().by_tenant["t"], field) == 1
    assert adds_up(stack, 1)
