"""An observer sees every request that ended, however it did, and can break nothing."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest

from cachestack.errors import NotCached
from cachestack.observers import Ended
from cachestack.requests import Message, Request
from cachestack.stack import CacheStack


@pytest.fixture
def seen(make_stack):
    stack, seen = make_stack(), []
    stack.observe(seen.append)
    return stack, seen


def outcomes(seen: list[Ended]) -> list[str]:
    return [ended.outcome for ended in seen]


def test_answers_are_seen_with_request_trace_and_response(seen):
    stack, seen = seen
    request = Request((Message("user", "Hello"),), tenant="acme")
    first, again = stack.chat(request), stack.chat(request)
    assert outcomes(seen) == ["engine", "exact"]
    assert [e.request for e in seen] == [request, request]
    assert [e.trace for e in seen] == [first.trace, again.trace]
    assert [e.response for e in seen] == [first, again]
    assert [e.error for e in seen] == [None, None]
    assert seen[0].at_s == 1_000_000.0


def test_a_failed_request_is_seen_with_its_error(seen, engine):
    stack, seen = seen
    engine.error = RuntimeError("no")
    with pytest.raises(RuntimeError):
        stack.chat("Hello")
    with pytest.raises(NotCached):
        stack.chat(Request((Message("user", "Hello"),), only_if_cached=True))
    assert outcomes(seen) == ["failed", "failed"]
    assert [type(e.error) for e in seen] == [RuntimeError, NotCached]
    assert seen[0].trace.steps, "the steps up to the failure"


def test_a_caller_that_leaves_is_seen(seen):
    stack, seen = seen
    with stack.stream("Hello") as stream:
        next(iter(stream))
    assert outcomes(seen) == ["cancelled"]
    assert isinstance(seen[0].error, GeneratorExit)


async def test_a_wrapped_coroutine_is_seen(seen):
    stack, seen = seen

    @stack.wrap(tenant="acme", model="m")
    async def ask(prompt: str) -> str:
        return "yes"

    await ask("Hello")
    await ask("Hello")
    assert outcomes(seen) == ["engine", "exact"]


def test_an_observer_that_raises_is_logged_once_and_costs_nothing_else(make_stack, caplog):
    stack, seen = make_stack(), []

    def broken(ended: Ended) -> None:
        raise ZeroDivisionError

    stack.observe(broken)
    stack.observe(seen.append)
    for _ in range(3):
        assert stack.chat("Hello").text == "an answer"
    assert outcomes(seen) == ["engine", "exact", "exact"]
    (record,) = caplog.records
    assert "broken failed" in record.getMessage()
    assert stack.stats().by_tenant["default"].requests == 3


def test_it_can_be_ended(make_stack):
    stack, seen = make_stack(), []
    end = stack.observe(seen.append)
    stack.chat("Hello")
    end()
    stack.chat("Hello")
    assert len(seen) == 1


def test_explaining_is_no_request(seen):
    stack, seen = seen
    stack.explain("Hello")
    assert seen == []


def test_an_observer_that_holds_the_stack_does_not_keep_it_alive(tmp_path):
    stack = CacheStack.without_engine(encoder="none", home=tmp_path)
    stack.observe(partial(print, stack))
    alive = weakref.ref(stack)
    del stack
    gc.collect()
    assert alive() is None


def test_one_that_can_be_closed_is_closed_with_the_stack(make_stack):
    class Closing:
        num_closed = 0

        def __call__(self, ended: Ended) -> None: ...

        def close(self) -> None:
            self.num_closed += 1

    stack, closing = make_stack(), Closing()
    stack.observe(closing)
    stack.close()
    assert closing.num_closed == 1
