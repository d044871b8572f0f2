"""From asyncio to threads: one background loop of the process runs what synchronous callers ask for."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

from cachestack.requests import Generation, Piece

R = TypeVar("R")
_lock = threading.Lock()
_running: tuple[int, asyncio.AbstractEventLoop, threading.Thread] | None = None
"""The process it belongs to comes first: threads do not fork."""


def background_loop() -> asyncio.AbstractEventLoop:
    """The process's loop for remote engines; it ends with the process."""
    global _running
    with _lock:
        if _running is None or _running[0] != os.getpid():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="cachestack-remote", daemon=True)
            thread.start()
            _running = (os.getpid(), loop, thread)
        return _running[1]


def run_in_background(work: Coroutine[Any, Any, R]) -> R:
    """The result of `work`. A caller that is interrupted cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _end(work: Coroutine[Any, Any, None]) -> None:
    """Run to its end what cleans up, wherever a forgotten stream happens to be collected."""
    if sys.is_finalizing():
        work.close()  # the loop's thread is gone, and the connections with it
        return
    loop = background_loop()
    future = asyncio.run_coroutine_threadsafe(work, loop)
    if _running is None or threading.current_thread() is not _running[2]:
        future.result()


def as_sync(stream: AsyncGenerator[Piece | Generation, None]) -> Generator[Piece, None, Generation]:
    """The same stream for a thread: pieces are made when they are asked for; closing it closes the other."""
    turn = asyncio.Lock()  # a step that was cancelled has to end before the stream can be closed

    async def step() -> Piece | Generation:
        async with turn:
            return await anext(stream)

    async def close() -> None:
        async with turn:
            await stream.aclose()

    try:
        while True:
            item = run_in_background(step())
            if isinstance(item, Generation):
                return item
            yield item
    finally:
        _end(close())
