"""Runs the same pipeline in asyncio: an async generator that yields text as it comes, and the Response last.

What may wait (the store, the index, the encoder, verifiers) is done in a thread, all of it up to the next call of an
engine in one go. Async engines are awaited; others work in a thread of their own, so that requests which wait for an
engine never keep those threads that others need.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from cachestack.calling import acall, acall_in_thread
from cachestack.decisions import Response
from cachestack.driver import PATIENCE_S, passing, text_of
from cachestack.effects import Effect, EngineFailed, Follow, Generate, Pause, Revalidate
from cachestack.engines.base import Computed, Engine, is_async_engine
from cachestack.leases import Landed, Lease
from cachestack.performer import Performer
from cachestack.pipeline import Run
from cachestack.requests import Delta, Generation, Piece
from cachestack.stores.base import NOT_NOW

T = TypeVar("T")
ADrive = AsyncGenerator[Piece | Response, None]
_Item = Piece | Generation | Computed
_Waiting = Generate | Follow | Pause | Revalidate
_NUM_THREADS = min(32, (os.cpu_count() or 1) + 4)


async def adrive(
    run: Run, performer: Performer, engines: Mapping[str, Engine], *, streams: bool = True, at_once: bool = False
) -> ADrive:
    """As `driver.drive`. Cancelled or closed, it cancels the engine's coroutine and closes the run.

    `at_once`: what needs no waiting is done without a thread; see `Steps.at_once`.
    """
    steps = Steps(run, performer, engines)
    response = steps.at_once() if at_once else None
    if response is not None:
        yield response
        return
    async with aclosing(rest_of(steps, streams=streams)) as pieces:
        async for piece in pieces:
            yield piece


async def only(response: Response) -> ADrive:
    """A drive that is over."""
    yield response


async def rest_of(steps: Steps, *, streams: bool) -> ADrive:
    """As `adrive`, from where the steps are."""
    result: Any = None
    try:
        while True:
            effect = await steps.advance(result)
            if isinstance(effect, Response):
                yield effect
                return
            if isinstance(effect, Pause):
                await asyncio.sleep(effect.seconds)
                result = None
                continue
            if isinstance(effect, Revalidate):
                steps.revalidate(effect)
                result = None
                continue
            waiting: AsyncGenerator[Any, None]
            if isinstance(effect, Generate):
                waiting = _generate(effect, steps.engine(effect), streams=streams)
            else:
                waiting = _follow(effect, streams=streams)
            try:
                async with aclosing(waiting):
                    async for item in waiting:
                        if isinstance(item, str | Delta):
                            yield item
                        else:
                            result = item
            except Exception as error:
                result = Raised(error)
    finally:
        steps.close()


class Raised:
    """The result of an effect that failed."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Steps:
    """A run, moved on by worker threads. It may be closed at any moment, from any thread."""

    def __init__(self, run: Run, performer: Performer, engines: Mapping[str, Engine]) -> None:
        self._run, self._performer, self._engines = run, performer, engines
        self._effect: Effect | None = None  # where the run stopped, if it has begun
        self._moving = threading.Lock()
        self._closed = False

    def at_once(self) -> Response | None:
        """Begin the run, and go as far as nothing waits for a file, a lock or another process.

        None: it is not over, and `advance` goes on from there. Raises what the run raises.
        """
        effect = self._resume(None)
        while not isinstance(effect, Response):
            result: Any = None
            if isinstance(effect, Revalidate):
                self.revalidate(effect)
            else:
                result = self._performer.at_once(effect)
            if result is NOT_NOW:
                self._effect = effect
                return None
            effect = self._resume(result)
        return effect

    def revalidate(self, effect: Revalidate) -> None:
        """Called in the loop's thread."""
        revalidator = self._performer.revalidator
        if revalidator is not None:
            revalidator.in_task(effect)

    def engine(self, effect: Generate) -> Engine:
        return self._engines[effect.engine]

    async def advance(self, result: Any) -> _Waiting | Response:
        """Resume the run and perform its effects up to the next one that waits for others, or to the end."""
        effect, self._effect = self._effect, None
        if isinstance(effect, Generate | Follow | Pause):
            return effect
        return await in_worker(functools.partial(self._advance, effect, result))

    def close(self) -> None:
        """Leases end, nothing is published. An effect that is being performed is not waited for."""
        self._closed = True
        if self._moving.acquire(blocking=False):  # else who moves the run closes it
            try:
                self._run.close()
            finally:
                self._moving.release()

    def _advance(self, effect: Effect | Response | None, result: Any) -> _Waiting | Response:
        if effect is None:
            effect = self._resume(result)
        while not isinstance(effect, _Waiting | Response):
            effect = self._resume(self._perform(effect))
        return effect

    def _perform(self, effect: Effect) -> Any:
        try:
            return self._performer.perform(effect, self._engines)
        except Exception as error:
            return Raised(error)

    def _resume(self, result: Any) -> Effect | Response:
        try:
            with self._moving:
                if self._closed:
                    raise asyncio.CancelledError
                return self._run.throw(result.error) if isinstance(result, Raised) else self._run.send(result)
        except StopIteration as stop:
            response: Response = stop.value
            return response
        finally:
            if self._closed:
                self.close()


async def _generate(effect: Generate, engine: Engine, *, streams: bool) -> AsyncGenerator[_Item, None]:
    lease = effect.lease
    items: AsyncGenerator[Any, None]
    items = acall(effect, engine) if is_async_engine(engine) else acall_in_thread(effect, engine)
    if lease is not None:
        items = _leading(items, lease)
        if streams:  # a reader that pauses must not hold up those that follow
            items = _ahead(items)
    passed_on = passing(lease)
    try:
        async with aclosing(items):
            async for item in items:
                if not isinstance(item, str | Delta):
                    passed_on.check(text_of(item))
                    yield item
                elif piece := passed_on.passes(item):
                    yield piece
    except Exception as error:
        raise EngineFailed(error, streams and passed_on.has_passed_on) from error


async def _leading(items: AsyncGenerator[_Item, None], lease: Lease) -> AsyncGenerator[_Item, None]:
    """A call whose pieces and end are shared as they come."""
    async with aclosing(items):
        while True:
            try:
                with lease.working():
                    item = await anext(items)
            except StopAsyncIteration:
                return
            if isinstance(item, str | Delta):
                lease.push(item)
            else:
                lease.land(item)
            yield item


async def _ahead(items: AsyncGenerator[_Item, None]) -> AsyncGenerator[_Item, None]:
    """The same items, read by a task as they come, whether or not anybody takes them."""
    taken: asyncio.Queue[_Item | None] = asyncio.Queue()

    async def read() -> None:
        try:
            async with aclosing(items):
                async for item in items:
                    taken.put_nowait(item)
        finally:
            taken.put_nowait(None)

    reading = asyncio.create_task(read())
    try:
        while (item := await taken.get()) is not None:
            yield item
        await reading
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await reading


async def _follow(effect: Follow, *, streams: bool) -> AsyncGenerator[Piece | Landed | Lease, None]:
    seat, ready, loop = effect.seat, asyncio.Event(), asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(ready.set)

    seat.listen(wake, streams=streams)
    patience_s = PATIENCE_S
    while True:
        ready.clear()
        news = seat.news()
        for piece in news.pieces:
            yield piece
        if news.end is not None:
            yield news.end
            return
        if news.pieces:
            continue
        pump = seat.stalled()
        try:
            async with asyncio.timeout(None if pump is None else patience_s):
                await ready.wait()
            patience_s = PATIENCE_S
        except TimeoutError:
            assert pump is not None, "without one there is no time limit"
            helped = await loop.run_in_executor(_helpers(), pump.help)
            patience_s = 0.0 if helped else PATIENCE_S


async def in_worker(work: Callable[[], T]) -> T:
    """What may wait, done in a thread."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_workers(), context.run, work)


@functools.cache
def _pool(name: str, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix=f"cachestack-{name}")


def _workers() -> ThreadPoolExecutor:
    """For effects. Not the loop's own threads: an application may have filled those with requests that wait."""
    return _pool("aio", os.getpid())


def _helpers() -> ThreadPoolExecutor:
    """For reading an engine on: that may take as long as the engine."""
    return _pool("helper", os.getpid())
