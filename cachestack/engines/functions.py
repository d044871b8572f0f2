"""One call of a wrapped function as an engine."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from cachestack.errors import UsageError
from cachestack.requests import Generation, Request


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
    """The same for a coroutine function: only the asyncio driver can run it, through `generate`."""

    name: str
    model: str
    call: Callable[[], Awaitable[Any]]

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        raise UsageError(f"{self.name} is an async function: await it")

    async def generate(self) -> Generation:
        begin = time.perf_counter()
        text = _checked_text(await self.call(), self.name)
        return Generation(text, ttft_s=time.perf_counter() - begin)


def _checked_text(answer: Any, name: str) -> str:
    if not isinstance(answer, str):
        raise UsageError(f"{name} returned {type(answer).__name__}; a wrapped function must return text (str)")
    return answer
