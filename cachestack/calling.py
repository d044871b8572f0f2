"""One call of an engine: opened, checked piece by piece, and given no more time than the policy allows."""

from __future__ import annotations

import asyncio
import contextvars
import math
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, get_args

from cachestack.effects import Generate
from cachestack.engines.base import AsyncTextEngine, Computed, Engine, is_token_engine
from cachestack.errors import EngineError, EngineTimeout
from cachestack.requests import Delta, FinishReason, Generation, Piece, Usage

Call = Generator[Piece, None, Any]
_FINISHED = get_args(FinishReason)


def call(effect: Generate, engine: Engine) -> Call:
    """The engine's pieces, none of them empty; returns what the engine returned. Raises what it raised, and EngineError
    where it does not keep to its protocol."""
    stream: Any = open_stream(effect, engine)
    if not isinstance(stream, Generator):
        raise _broken(engine, f"its stream is a {type(stream).__name__}, not a generator")
    emitted = ""
    try:
        while True:
            try:
                piece = next(stream)
            except StopIteration as stop:
                return checked_result(stop.value, engine, emitted)
            emitted += _checked_text(piece, engine)
            if piece:
                yield piece
    finally:
        stream.close()


def open_stream(effect: Generate, engine: Engine) -> Generator[Piece, None, Any]:
    """The engine's stream for one `Generate`."""
    if is_token_engine(engine):
        assert effect.prompt is not None, "a token engine needs a prepared prompt"
        return engine.stream_tokens(
            effect.request, effect.prompt, effect.past, effect.publish_at, kv_dtype=effect.kv_dtype
        )
    return engine.stream(effect.request)


async def acall(effect: Generate, engine: AsyncTextEngine) -> AsyncGenerator[Piece | Generation, None]:
    """As `call`, for an engine that is awaited; the Generation is the last item. A silence beyond the effect's deadline
    cancels the engine's coroutine and raises EngineTimeout."""
    emitted = ""
    stream: Any = engine.astream(effect.request)
    if not isinstance(stream, AsyncGenerator):
        raise _broken(engine, f"its stream is a {type(stream).__name__}, not an async generator")
    async with aclosing(stream):
        while True:
            try:
                async with asyncio.timeout(effect.deadline_s) as limit:
                    item = await anext(stream)
            except StopAsyncIteration:
                raise _broken(engine, "it ended without a Generation") from None
            except TimeoutError:
                if limit.expired():
                    raise _silent(engine, effect.deadline_s) from None
                raise
            if isinstance(item, Generation):
                yield checked_result(item, engine, emitted)
                return
            emitted += _checked_text(item, engine)
            if item:
                yield item


@dataclass(frozen=True, slots=True)
class Ended:
    """A call in a thread has ended: `result`, or `error`."""

    result: Any = None
    error: BaseException | None = None


class ThreadedCall:
    """A call in a thread of its own, which hands over what comes: pieces, then Ended.

    `stop`: the engine's generator is closed at its next piece. A thread is never waited for.
    """

    def __init__(self, pieces: Call, deliver: Callable[[Piece | Ended], None]) -> None:
        self._pieces, self._deliver = pieces, deliver
        self._stopped = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="cachestack-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def leave_behind(self) -> None:
        """Stop a call that is late."""
        self.stop()
        with _late_lock:
            _late[:] = [thread for thread in (*_late, self._thread) if thread.is_alive()]

    def _run(self) -> None:
        try:
            with_end = self._to_the_end()
        except BaseException as error:  # an engine's thread must not end the process, nor its caller wait for ever
            with_end = Ended(error=error if isinstance(error, Exception) else EngineError(repr(error)))
        if not self._stopped.is_set():
            self._deliver(with_end)

    def _to_the_end(self) -> Ended:
        try:
            while not self._stopped.is_set():
                try:
                    piece = next(self._pieces)
                except StopIteration as stop:
                    return Ended(stop.value)
                if not self._stopped.is_set():
                    self._deliver(piece)
            return Ended()
        finally:
            self._pieces.close()


_late: list[threading.Thread] = []
_late_lock = threading.Lock()


def num_left_behind() -> int:
    """Threads of this process whose engine was silent for too long and has still not come back."""
    with _late_lock:
        _late[:] = [thread for thread in _late if thread.is_alive()]
        return len(_late)


def call_in_time(effect: Generate, engine: Engine) -> Call:
    """As `call`; where the effect has a deadline, in a thread that is left behind at a silence beyond it."""
    if effect.deadline_s is None:
        return (yield from call(effect, engine))
    items: queue.SimpleQueue[Piece | Ended] = queue.SimpleQueue()
    threaded = ThreadedCall(call(effect, engine), items.put)
    threaded.start()
    try:
        while True:
            try:
                item = items.get(timeout=effect.deadline_s)
            except queue.Empty:
                threaded.leave_behind()
                raise _silent(engine, effect.deadline_s) from None
            if not isinstance(item, Ended):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                return item.result
    finally:
        threaded.stop()


async def acall_in_thread(effect: Generate, engine: Engine) -> AsyncGenerator[Any, None]:
    """As `acall`, for an engine that blocks: it works in a thread. The last item is what it returned."""
    loop, items = asyncio.get_running_loop(), asyncio.Queue[Piece | Ended]()

    def deliver(item: Piece | Ended) -> None:
        try:
            loop.call_soon_threadsafe(items.put_nowait, item)
        except RuntimeError:  # the loop was closed
            threaded.stop()

    threaded = ThreadedCall(call(effect, engine), deliver)
    threaded.start()
    try:
        while True:
            try:
                async with asyncio.timeout(effect.deadline_s):
                    item = await items.get()
            except TimeoutError:
                threaded.leave_behind()
                raise _silent(engine, effect.deadline_s) from None
            if not isinstance(item, Ended):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                yield item.result
                return
    finally:
        threaded.stop()


def checked_result(result: Any, engine: Any, emitted: str = "") -> Any:
    """What an engine returned, if it is what the protocol says; else EngineError: nothing of it is served or kept."""
    wanted = Computed if is_token_engine(engine) else Generation
    if not isinstance(result, wanted):
        raise _broken(engine, f"it returned a {type(result).__name__}, not a {wanted.__name__}")
    generation: Any = result.generation if isinstance(result, Computed) else result
    if not isinstance(generation.text, str) or generation.finish_reason not in _FINISHED:
        kind, why = type(generation.text).__name__, generation.finish_reason
        raise _broken(engine, f"its answer is of type {kind} and ended with {why!r}")
    if not generation.text.startswith(emitted):
        raise _broken(engine, "what it streamed is not how its answer begins")
    sane = _with_possible_figures(generation)
    return replace(result, generation=sane) if isinstance(result, Computed) else sane


def _checked_text(piece: Any, engine: Any) -> str:
    if isinstance(piece, Delta):
        return ""
    if not isinstance(piece, str):
        raise _broken(engine, f"it yielded a {type(piece).__name__}, not text")
    return piece


def _with_possible_figures(generation: Generation) -> Generation:
    """An engine that measures badly costs figures, not answers: what is no count or time becomes 0."""
    usage: Any = generation.usage
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "cache_write_tokens")
    counts = [getattr(usage, name, None) for name in names]
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        usage = Usage()
    times: list[Any] = [generation.ttft_s, generation.decode_s]
    ttft_s, decode_s = (t if isinstance(t, (int, float)) and 0 <= t < math.inf else 0.0 for t in times)
    return replace(generation, usage=usage, ttft_s=ttft_s, decode_s=decode_s)


def _silent(engine: Any, deadline_s: float | None) -> EngineTimeout:
    return EngineTimeout(f"the engine {engine.name} gave nothing back within {deadline_s:g} s")


def _broken(engine: Any, what: str) -> EngineError:
    return EngineError(f"the engine {engine.name} does not keep to its protocol: {what}")
