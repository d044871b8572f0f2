"""AsyncCacheStack: the same stack, the same pipeline, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from cachestack.adriver import ADrive, adrive, in_worker
from cachestack.asking import Prompt, as_request
from cachestack.decisions import Response
from cachestack.driver import REPLAY_CHARS
from cachestack.engines.base import Engine
from cachestack.requests import Chunk, Delta, Request

if TYPE_CHECKING:
    from cachestack.answers.sameness import Sameness
    from cachestack.explaining import Explanation
    from cachestack.stack import CacheStack
    from cachestack.wrap import Wrapper

C = TypeVar("C")


class AsyncCacheStack:
    """A CacheStack that is awaited; nothing it does blocks the event loop.

    `stack` may be used beside it, from threads: both share the cache, the statistics and the calls that are under way.
    Closing this closes the stack. Any number of loops may use it, each in its own thread.
    """

    def __init__(self, stack: CacheStack) -> None:
        self.stack = stack

    @classmethod
    def local(cls, **options: Any) -> AsyncCacheStack:
        """As `CacheStack.local`."""
        from cachestack.stack import CacheStack

        return cls(CacheStack.local(**options))

    @classmethod
    def without_engine(cls, **options: Any) -> AsyncCacheStack:
        """As `CacheStack.without_engine`."""
        from cachestack.stack import CacheStack

        return cls(CacheStack.without_engine(**options))

    async def chat(self, prompt: Prompt | Request, *, engine: str | None = None, **options: Any) -> Response:
        """As `CacheStack.chat`. Cancelling the task cancels the engine's work; nothing of it is stored."""
        return await self.respond(as_request(prompt, **options), self.stack.engine(engine))

    def stream(self, prompt: Prompt | Request, *, engine: str | None = None, **options: Any) -> AsyncStream:
        """As `chat`, in chunks as they are made: `async for`, in an `async with` where it may be left early."""
        return self.start(as_request(prompt, **options), self.stack.engine(engine))

    async def explain(self, prompt: Prompt | Request, *, engine: str | None = None, **options: Any) -> Explanation:
        """As `CacheStack.explain`."""
        return await in_worker(lambda: self.stack.explain(prompt, engine=engine, **options))

    async def same_answer(
        self, x: str, y: str, question: str | None = None, *, judge: str | Engine | None = None
    ) -> Sameness:
        """As `CacheStack.same_answer`."""
        return await in_worker(lambda: self.stack.same_answer(x, y, question, judge=judge))

    async def respond(self, request: Request, engine: Engine) -> Response:
        """Run one request to its end."""
        return await respond_async(self.stack, request, engine)

    def start(self, request: Request, engine: Engine) -> AsyncStream:
        """Run one request, in chunks as they are made."""
        run, engines = self.stack.open_run(request, engine)
        return AsyncStream(adrive(run, self.stack.performer, engines, at_once=self.stack.answers_at_once(request)))

    def wrap(self, **options: Any) -> Wrapper:
        """As `CacheStack.wrap`."""
        return self.stack.wrap(**options)

    def wrap_client(self, client: C, **options: Any) -> C:
        """As `CacheStack.wrap_client`."""
        return self.stack.wrap_client(client, **options)

    async def aclose(self) -> None:
        """As `CacheStack.close`."""
        await self.stack.revalidations.cancel_here()
        await in_worker(self.stack.close)

    async def __aenter__(self) -> AsyncCacheStack:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncStream:
    """Chunks of one answer as they come; the last has the finish reason and the usage.

    After the last chunk `response` holds the whole answer with its trace. `aclose()`, or leaving an `async with` block
    early, cancels the engine's coroutine, or stops its thread at the next token; nothing of a stream that was not read
    to its end is stored. One task reads it; another may close it between two chunks.
    """

    def __init__(self, pieces: ADrive) -> None:
        self.response: Response | None = None
        self._closed = False
        self._chunks = self._read(pieces)

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Chunk:
        if self._closed:
            raise StopAsyncIteration
        return await anext(self._chunks)

    async def aclose(self) -> None:
        self._closed = True
        await self._chunks.aclose()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _read(self, pieces: ADrive) -> AsyncGenerator[Chunk, None]:
        emitted: list[str] = []
        response = None
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Response):
                    response = piece
                elif isinstance(piece, Delta):
                    yield Chunk("", delta=piece)
                else:
                    emitted.append(piece)
                    yield Chunk(piece)
        assert response is not None, "a drive ends with its Response, or raises"
        self.response = response
        rest = response.text.removeprefix("".join(emitted))
        for start in range(0, len(rest), REPLAY_CHARS):
            yield Chunk(rest[start : start + REPLAY_CHARS])
        yield Chunk("", response.finish_reason, response.usage)


async def respond_async(stack: CacheStack, request: Request, engine: Engine) -> Response:
    """One request, counted however it ends; cancelling the task cancels the engine's coroutine."""
    run, engines = stack.open_run(request, engine)
    driven = adrive(run, stack.performer, engines, streams=False, at_once=stack.answers_at_once(request))
    async with aclosing(driven) as pieces:
        async for piece in pieces:
            if isinstance(piece, Response):
                return piece
    raise AssertionError("a drive ends with its Response, or raises")
