"""`stack.same_answer`, and the same awaited: with the stack's encoder and engines, and without."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import pytest

from cachestack import AsyncCacheStack, CacheStack
from cachestack.errors import ConfigError, UsageError
from cachestack.requests import Generation, Request
from cachestack.stack import CacheStack as Stack

X = "The museum is closed on Monday because of building work."
Y = "The museum is closed on Monday because of a flood."


class Says:
    name = model = "judge"

    def __init__(self, reply: str) -> None:
        self._reply = reply

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield self._reply
        return Generation(self._reply)


class Encoder:
    """Every text points the same way. Notes what it was asked."""

    name, window_tokens, fingerprint, dimension = "one", 128, "f", 2
    languages = frozenset({"en"})

    def __init__(self) -> None:
        self.asked: list[str] = []

    def fits_window(self, text: str) -> bool:
        return True

    def encode(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        return np.tile(np.array([1.0, 0.0], np.float32), (len(texts), 1))


@pytest.fixture
def stack(tmp_path: Any) -> Any:
    with CacheStack.without_engine(encoder="none", home=tmp_path) as stack:
        yield stack


def test_without_engine_and_encoder(stack: Stack) -> None:
    assert stack.same_answer("1.2k", "1200").same is True
    assert stack.same_answer("40 euros", "50 euros", "Price?").same is False
    assert stack.same_answer(X, Y, "Why?").same is None


def test_the_stacks_encoder_is_asked(stack: Stack) -> None:
    encoder = Encoder()
    stack.performer.encoder = encoder
    assert stack.same_answer("sofa", "settee", "What is it?").same is None
    assert sorted(encoder.asked) == ["settee", "sofa"]


def test_an_encoder_of_another_language_is_not(stack: Stack) -> None:
    encoder = Encoder()
    stack.performer.encoder = encoder
    stack.same_answer("Le musée est fermé le lundi.", "Le bâtiment est fermé ce jour-là.", "Pourquoi ?")
    assert encoder.asked == []


def test_a_judge_by_itself_or_by_name(stack: Stack) -> None:
    assert stack.same_answer(X, Y, "Why?", judge=Says("DIFFERENT")).same is False
    assert stack.same_answer(X, Y, "Why?", judge=Says("maybe")).same is None
    with pytest.raises(ConfigError):
        stack.same_answer(X, Y, judge="nobody")


@pytest.mark.parametrize("wrong", [(1, "a", None), ("a", None, None), ("a", "b", 3)])
def test_texts_only(stack: Stack, wrong: tuple[Any, Any, Any]) -> None:
    with pytest.raises(UsageError, match="texts"):
        stack.same_answer(*wrong)


async def test_awaited(stack: Stack) -> None:
    found = await AsyncCacheStack(stack).same_answer(X, Y, "Why?", judge=Says("SAME"))
    assert (found.same, found.by) == (True, "judge")


def test_nothing_is_counted_or_kept(stack: Stack) -> None:
    before: Callable[[], Any] = lambda: stack.stats()  # noqa: E731
    counted = before()
    stack.same_answer(X, Y, "Why?", judge=Says("SAME"))
    assert before() == counted
