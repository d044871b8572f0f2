"""The stack as the endpoints see it: awaited, under the trace id that the caller gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from cachestack.adriver import Steps, only, rest_of
from cachestack.bodies.call import Call
from cachestack.decisions import Response
from cachestack.driver import REPLAY_CHARS
from cachestack.requests import Chunk, Delta
from cachestack.stack import CacheStack
from cachestack.tracing import TraceBuilder

T = TypeVar("T")
_MAX_THREADS = 16


class StackPort:
    """`trace` is the caller's own: it tells what has been decided before the first piece is there.

    `threads` are for what is not a request through the layers: embeddings and labels. `in_turns`: a request is begun in
    a later turn of the event loop than its first byte came in, as servers do. Then all that is begun in one turn was
    there before it, and is answered by the store's state as of one look at it.
    """

    def __init__(self, stack: CacheStack, *, in_turns: bool = False) -> None:
        self.stack = stack
        self._in_turns = in_turns
        self._turn: object = None
        self.threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="cachestack-gateway")

    async def in_thread(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, partial(work, *given))

    def begin(self, call: Call, trace: TraceBuilder, *, at_once: bool = True) -> Response | Steps:
        """The cached answer, where it is found without waiting; else what `respond` or `stream` goes on with.

        Without `at_once` nothing is looked up here: its keys take long to make.
        """
        stack = self.stack
        engine = stack.engine(call.engine)
        if at_once:
            turn = self._turn or (self._new_turn() if self._in_turns else None)
            if (hit := stack.again(call.request, engine, trace, call.reading, turn)) is not None:
                return hit
        run, engines = stack.open_run(call.request, engine, trace, call.reading)
        steps = Steps(run, stack.performer, engines)
        response = steps.at_once() if at_once and stack.answers_at_once(call.request) else None
        return steps if response is None else response

    def _new_turn(self) -> object:
        self._turn = object()
        asyncio.get_running_loop().call_soon(self._end_turn)
        return self._turn

    def _end_turn(self) -> None:
        self._turn = None

    async def respond(self, steps: Steps) -> Response:
        """Cancelling it cancels the engine's work."""
        async with aclosing(rest_of(steps, streams=False)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Response):
                    return piece
        raise AssertionError("a drive ends with its Response, or raises")

    async def stream(self, begun: Response | Steps) -> AsyncGenerator[Chunk | Response, None]:
        """The chunks, and the Response as the last item. Closing it early cancels the engine's work.

        Of an answer that is more than text and came in one piece there are no chunks: `Response.body` has it all.
        """
        emitted: list[str] = []
        has_begun = False
        driven = only(begun) if isinstance(begun, Response) else rest_of(begun, streams=True)
        async with aclosing(driven) as pieces:
            async for piece in pieces:
                if isinstance(piece, Response):
                    if has_begun or piece.is_text or piece.body is None:
                        rest = piece.text.removeprefix("".join(emitted))
                        for start in range(0, len(rest), REPLAY_CHARS):
                            yield Chunk(rest[start : start + REPLAY_CHARS])
                    yield piece
                    return
                has_begun = True
                if isinstance(piece, Delta):
                    yield Chunk("", delta=piece)
                else:
                    emitted.append(piece)
                    yield Chunk(piece)
        raise AssertionError("a drive ends with its Response, or raises")

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
