"""Wrapped functions, sync and async."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from cachestack.decisions import Reason
from cachestack.errors import EngineError, UsageError

if TYPE_CHECKING:
    from tests.core.conftest import MakeStack


def test_a_wrapped_function_keeps_its_name_and_is_called_once(make_stack: MakeStack) -> None:
    stack, calls = make_stack(), []

    @stack.wrap(tenant="acme", model="my-llm")
    def ask(prompt: str) -> str:
        """Ask it."""
        calls.append(prompt)
        return f"re: {prompt}"

    assert (ask.__name__, ask.__doc__) == ("ask", "Ask it.")
    assert ask("How do I reset my password?") == "re: How do I reset my password?"
    assert ask(prompt="How do I reset my password?") == "re: How do I reset my password?"
    assert ask("How can I reset my password?") == "re: How do I reset my password?"
    assert calls == ["How do I reset my password?"]


def test_model_name_version_and_other_arguments_are_the_contract(make_stack: MakeStack) -> None:
    stack = make_stack()

    def plain(prompt: str, tone: str = "dry", *, limit: int = 3) -> str:
        return f"{tone} {limit}"

    def served(**how: object) -> str:
        options = {"tenant": "t", "model": "m", "version": "1", "name": "f"} | how
        return stack.wrap(**options)(plain).respond("Hello there").trace.served_from  # type: ignore[arg-type]

    assert served() == "engine"
    assert served() == "exact"
    assert served(model="m2") == "engine"
    assert served(version="2") == "engine"
    assert served(name="g") == "engine"
    assert served(tenant="t2") == "engine"
    assert served(system="Be kind.") == "engine"
    ask = stack.wrap(tenant="t", model="m", version="1", name="f")(plain)
    assert ask("Hello there", "warm") == "warm 3"
    assert ask("Hello there", limit=4) == "dry 4"
    assert ask.respond("Hello there", "dry", limit=3).trace.served_from == "exact", "a default said aloud is the same"


def test_two_functions_of_one_model_do_not_share(make_stack: MakeStack) -> None:
    stack = make_stack()
    first = stack.wrap(tenant="t", model="m")(lambda prompt: "one")
    second = stack.wrap(tenant="t", model="m", name="second")(lambda prompt: "two")
    assert (first("Hello there"), second("Hello there")) == ("one", "two")


def test_the_tenant_can_come_from_the_call(make_stack: MakeStack) -> None:
    stack = make_stack()

    @stack.wrap(tenant=lambda prompt, customer: customer, model="m")
    def ask(prompt: str, customer: str) -> str:
        return f"for {customer}"

    assert (ask("Hello there", "a"), ask("Hello there", "b")) == ("for a", "for b")
    assert set(stack.stats().by_tenant) == {"a", "b"}


def test_the_functions_own_error_comes_out(make_stack: MakeStack) -> None:
    stack = make_stack("default: {fallback: {engine_error: [raise]}}")

    @stack.wrap(tenant="t", model="m")
    def ask(prompt: str) -> str:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ask("Hello there")


@pytest.mark.parametrize("bad", [None, 3, b"x", ["x"]])
def test_what_is_not_text_is_refused(make_stack: MakeStack, bad: object) -> None:
    ask = make_stack().wrap(tenant="t", model="m", name="f")(lambda prompt: bad)
    with pytest.raises(UsageError, match=r"f returned .* must return text"):
        ask("Hello there")


def test_a_function_without_a_prompt_is_refused(make_stack: MakeStack) -> None:
    with pytest.raises(UsageError, match="must take the prompt as its first parameter"):
        make_stack().wrap(tenant="t", model="m")(lambda: "x")


def test_chat_without_an_engine_says_what_to_do(make_stack: MakeStack) -> None:
    with pytest.raises(Exception, match="no engine of its own; wrap your function"):
        make_stack().chat("Hello there")


async def test_async_functions(make_stack: MakeStack) -> None:
    stack, calls = make_stack(), []

    @stack.wrap(tenant="t", model="m")
    async def ask(prompt: str) -> str:
        calls.append(threading.current_thread())
        await asyncio.sleep(0)
        return f"re: {prompt}"

    assert await ask("How do I reset my password?") == "re: How do I reset my password?"
    assert await ask("How can I reset my password?") == "re: How do I reset my password?"
    assert calls == [threading.main_thread()]
    assert (await ask.respond("How do I reset my password?")).trace.served_from == "exact"  # type: ignore[attr-defined]


async def test_sync_and_async_share_decisions_and_entries(make_stack: MakeStack) -> None:
    stack = make_stack()
    sync_ask = stack.wrap(tenant="t", model="m", name="f")(lambda prompt: "from sync")

    async def later(prompt: str) -> str:
        return "from async"

    async_ask = stack.wrap(tenant="t", model="m", name="f")(later)
    assert sync_ask("Hello there") == await async_ask("Hello there") == "from sync"
    assert sync_ask.respond("Bye now").trace.steps[1].reason is Reason.BELOW_THRESHOLD  # type: ignore[attr-defined]


async def test_async_errors_are_retried_and_come_out(make_stack: MakeStack) -> None:
    stack, calls = make_stack(), []

    @stack.wrap(tenant="t", model="m")
    async def ask(prompt: str) -> str:
        calls.append(1)
        raise EngineError("down")

    with pytest.raises(EngineError, match="down"):
        await ask("Hello there")
    assert len(calls) == 2
    assert stack.stats().by_tenant["t"].failed == 1


async def test_cancelling_the_task_cancels_the_call_and_stores_nothing(make_stack: MakeStack) -> None:
    stack, started, seen = make_stack(), asyncio.Event(), []

    @stack.wrap(tenant="t", model="m")
    async def ask(prompt: str) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    task = asyncio.create_task(ask("Hello there"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]
    assert stack.performer.store.size().num_entries == 0
    assert stack.stats().by_tenant["t"].cancelled == 1


async def test_the_loop_is_not_blocked_while_a_question_is_embedded(make_stack: MakeStack) -> None:
    stack, threads = make_stack(), []
    encoder = stack.performer.encoder
    assert encoder is not None
    encode = encoder.encode_with_tokens  # type: ignore[attr-defined]

    def noted(texts):  # type: ignore[no-untyped-def]
        threads.append(threading.current_thread())
        return encode(texts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "encode_with_tokens", noted)

        @stack.wrap(tenant="t", model="m")
        async def ask(prompt: str) -> str:
            return "x"

        await ask("Hello there, who is it?")
    assert threads
    assert threading.main_thread() not in threads
