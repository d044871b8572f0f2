"""Wrapped generator functions: pieces as they come, replayed on a hit, kept only when read to the end."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from cachestack.errors import UsageError

if TYPE_CHECKING:
    from tests.core.conftest import MakeStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
ANSWER = "Open the settings, choose Security, and press the button that says Reset."
RAISES = "default: {fallback: {engine_error: [raise]}}"


def test_pieces_come_as_they_are_made_and_are_replayed(make_stack: MakeStack) -> None:
    stack, calls = make_stack(), []

    @stack.wrap(tenant="acme", model="my-llm")
    def ask(prompt: str) -> Iterator[str]:
        """Ask it."""
        calls.append(prompt)
        for word in ANSWER.split(" "):
            yield word if word == "Open" else f" {word}"

    assert (ask.__name__, ask.__doc__) == ("ask", "Ask it.")
    assert inspect.isgeneratorfunction(ask)
    first = list(ask(QUESTION))
    assert first == ["Open", *(f" {word}" for word in ANSWER.split(" ")[1:])]
    for question in (QUESTION, REWORDED):
        replayed = list(ask(question))
        assert "".join(replayed) == ANSWER
        assert len(replayed) > 1
    assert calls == [QUESTION]
    assert ask.respond(QUESTION).trace.served_from == "exact"
    with ask.stream(REWORDED) as chunks:
        assert "".join(chunk.text for chunk in chunks) == ANSWER
    assert chunks.response.trace.served_from == "semantic"


def test_the_first_piece_is_there_before_the_second_is_made(make_stack: MakeStack) -> None:
    made = []

    @make_stack().wrap(tenant="t", model="m", name="f")
    def ask(prompt: str) -> Iterator[str]:
        for piece in ("one", "two"):
            made.append(piece)
            yield piece

    pieces = ask("Hello there")
    assert next(pieces) == "one"
    assert made == ["one"]


def test_one_that_is_left_early_is_closed_and_not_kept(make_stack: MakeStack) -> None:
    stack, ends = make_stack(), []

    @stack.wrap(tenant="t", model="m", name="f")
    def ask(prompt: str) -> Iterator[str]:
        try:
            yield "one"
            yield "two"
        finally:
            ends.append("closed")

    pieces = ask("Hello there")
    assert next(pieces) == "one"
    pieces.close()
    assert ends == ["closed"]
    assert stack.performer.store.size().num_entries == 0
    assert "".join(ask("Hello there")) == "onetwo"
    assert stack.performer.store.size().num_entries == 1


def test_its_own_error_comes_out_after_what_it_has_said(make_stack: MakeStack) -> None:
    stack, calls = make_stack(), []

    @stack.wrap(tenant="t", model="m", name="f")
    def ask(prompt: str) -> Iterator[str]:
        calls.append(1)
        yield "one"
        raise KeyError("mine")

    pieces = ask("Hello there")
    seen = [next(pieces)]
    with pytest.raises(KeyError, match="mine"):
        next(pieces)
    assert (seen, calls) == (["one"], [1]), "what somebody has seen is not said again"
    assert stack.performer.store.size().num_entries == 0


@pytest.mark.parametrize("bad", [None, 3, b"x"])
def test_what_is_not_text_is_refused(make_stack: MakeStack, bad: object) -> None:
    @make_stack().wrap(tenant="t", model="m", name="f")
    def ask(prompt: str) -> Iterator[object]:
        yield bad

    with pytest.raises(UsageError, match=r"f yielded .* must yield text"):
        list(ask("Hello there"))


def test_two_tenants_do_not_share(make_stack: MakeStack) -> None:
    calls = []

    @make_stack().wrap(tenant=lambda prompt, customer: customer, model="m", name="f")
    def ask(prompt: str, customer: str) -> Iterator[str]:
        calls.append(customer)
        yield f"for {customer}"

    assert ["".join(ask("Hello there", name)) for name in ("a", "b", "a")] == ["for a", "for b", "for a"]
    assert calls == ["a", "b"] == sorted(calls)


async def test_async_generators(make_stack: MakeStack) -> None:
    stack, calls = make_stack(), []

    @stack.wrap(tenant="t", model="m")
    async def ask(prompt: str) -> AsyncIterator[str]:
        calls.append(threading.current_thread())
        for word in ANSWER.split(" "):
            await asyncio.sleep(0)
            yield word if word == "Open" else f" {word}"

    assert inspect.isasyncgenfunction(ask)
    first = [piece async for piece in ask(QUESTION)]
    assert first == ["Open", *(f" {word}" for word in ANSWER.split(" ")[1:])]
    for question in (QUESTION, REWORDED):
        assert "".join([piece async for piece in ask(question)]) == ANSWER
    assert calls == [threading.main_thread()]
    assert (await ask.respond(QUESTION)).trace.served_from == "exact"
    async with ask.stream(REWORDED) as chunks:
        assert "".join([chunk.text async for chunk in chunks]) == ANSWER


async def test_an_async_one_that_is_left_early_is_closed_and_not_kept(make_stack: MakeStack) -> None:
    stack, ends = make_stack(), []

    @stack.wrap(tenant="t", model="m", name="f")
    async def ask(prompt: str) -> AsyncGenerator[str, None]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            ends.append("closed")

    async with aclosing(ask("Hello there")) as pieces:
        assert await anext(pieces) == "one"
    assert ends == ["closed"]
    assert stack.performer.store.size().num_entries == 0


async def test_an_async_ones_error_comes_out(make_stack: MakeStack) -> None:
    stack = make_stack(RAISES)

    @stack.wrap(tenant="t", model="m", name="f")
    async def ask(prompt: str) -> AsyncIterator[str]:
        yield "one"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        _ = [piece async for piece in ask("Hello there")]
    assert stack.performer.store.size().num_entries == 0


async def test_all_kinds_of_one_name_share_their_answers(make_stack: MakeStack) -> None:
    stack = make_stack()
    wrap = stack.wrap(tenant="t", model="m", name="f")

    def pieces(prompt: str) -> Iterator[str]:
        yield "A generator makes the values "
        yield "one by one."

    def plain(prompt: str) -> str:
        return "A function gives the value back at once."

    async def later(prompt: str) -> str:
        return "A coroutine gives the value when it is awaited."

    async def pieces_later(prompt: str) -> AsyncIterator[str]:
        yield "from an async generator"

    assert "".join(wrap(pieces)("Hello there")) == "A generator makes the values one by one."
    assert wrap(plain)("Hello there") == "A generator makes the values one by one."
    assert await wrap(later)("Hello there") == "A generator makes the values one by one."
    assert (
        "".join([piece async for piece in wrap(pieces_later)("Hello there")])
        == "A generator makes the values one by one."
    )
