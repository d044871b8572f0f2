"""The stack as the endpoints see it: awaited, under the trace id that the caller gets."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from cachestack.adriver import Steps, only, rest_of
from cachestack.bodies.call import Call
from cachestack.decisions import Response
from cachestack.driver import REPLAY_CHARS
from cachestack.requests import Chunk, Delta
from cachestack.stack import CacheStack
from cachestack.tracing import TraceBuilder

_MAX_THREADS = 16


class StackPort:
    """`trace` is the caller's own: it tells what has been decided before the first piece is there.

    `threads` are for what is not a request through the layers: embeddings and labels.
    """

    def __init__(self, stack: CacheStack) -> None:
        self.stack = stack
        self.threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="cachestack-gateway")

    def begin(self, call: Call, trace: TraceBuilder) -> Response | Steps:
        """The cached answer, where it is found without waiting; else what `respond` or `stream` goes on with."""
        stack = self.stack
        engine = stack.engine(call.engine)
        if (hit := stack.again(call.request, engine, trace, call.reading)) is not None:
            return hit
        run, engines = stack.open_run(call.request, engine, trace, call.reading)
        steps = Steps(run, stack.performer, engines)
        response = steps.at_once() if stack.answers_at_once(call.request) else None
        return steps if response is None else response

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
