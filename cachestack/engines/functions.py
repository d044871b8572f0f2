"""One call of a wrapped function as an engine."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from cachestack.errors import UsageError
from cachestack.requests import Generation, Piece, Request


@dataclass(frozen=True, slots=True)
class FunctionEngine:
    """A TextEngine. `call` has its arguments bound."""

    name: str
    model: str
    call: Callable[[], Any]

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        begin = time.perf_counter()
        text = _checked_text(self.call(), self.name)
        seconds = time.perf_counter() - begin
        yield text
        return Generation(text, ttft_s=seconds)


@dataclass(frozen=True, slots=True)
class AsyncFunctionEngine:
    """The same for a coroutine function, as an AsyncTextEngine: only the asyncio driver can run it."""

    name: str
    model: str
    call: Callable[[], Awaitable[Any]]

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        raise UsageError(f"{self.name} is an async function: await it")

    async def astream(self, request: Request) -> AsyncGenerator[Piece | Generation, None]:
        begin = time.perf_counter()
        text = _checked_text(await self.call(), self.name)
        seconds = time.perf_counter() - begin
        yield text
        yield Generation(text, ttft_s=seconds)


@dataclass(frozen=True, slots=True)
class GeneratorEngine:
    """The same for a generator function that yields text."""

    name: str
    model: str
    call: Callable[[], Any]

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        told = _Told(self.name)
        pieces = self.call()
        try:
            for piece in pieces:
                yield told.checked(piece)
        finally:
            pieces.close()
        return told.generation()


@dataclass(frozen=True, slots=True)
class AsyncGeneratorEngine:
    """The same for an async generator function, as an AsyncTextEngine."""

    name: str
    model: str
    call: Callable[[], Any]

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        raise UsageError(f"{self.name} is an async generator function: read it with async for")

    async def astream(self, request: Request) -> AsyncGenerator[Piece | Generation, None]:
        told = _Told(self.name)
        async with aclosing(self.call()) as pieces:
            async for piece in pieces:
                yield told.checked(piece)
        yield told.generation()


class _Told:
    """What a generator has yielded, and when."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begin = time.perf_counter()
        self._first: float | None = None
        self._texts: list[str] = []

    def checked(self, piece: Any) -> str:
        if not isinstance(piece, str):
            kind = type(piece).__name__
            raise UsageError(f"{self._name} yielded {kind}; a wrapped generator function must yield text (str)")
        if self._first is None and piece:
            self._first = time.perf_counter()
        self._texts.append(piece)
        return piece

    def generation(self) -> Generation:
        now = time.perf_counter()
        first = now if self._first is None else self._first
        return Generation("".join(self._texts), ttft_s=first - self._begin, decode_s=now - first)


def _checked_text(answer: Any, name: str) -> str:
    if not isinstance(answer, str):
        raise UsageError(f"{name} returned {type(answer).__name__}; a wrapped function must return text (str)")
    return answer
