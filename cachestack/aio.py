"""Runs the same pipeline in asyncio: what blocks goes to a thread, the engine's coroutine is awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cachestack.decisions import Response
from cachestack.driver import checked_result, open_stream
from cachestack.effects import EngineFailed, Generate
from cachestack.engines.base import Engine, exhaust
from cachestack.engines.functions import AsyncFunctionEngine
from cachestack.requests import Request

if TYPE_CHECKING:
    from cachestack.stack import CacheStack


async def respond_async(stack: CacheStack, request: Request, engine: AsyncFunctionEngine) -> Response:
    """One request, counted however it ends; cancelling the task cancels the engine's coroutine."""
    run, engines = stack.open_run(request, engine)
    try:
        effect = next(run)
        while True:
            try:
                if isinstance(effect, Generate):
                    result = await _generate(effect, engines[effect.engine])
                else:  # even the fastest look-up may wait: a file is opened, uses are written
                    result = await asyncio.to_thread(stack.performer.perform, effect, engines)
            except Exception as error:
                effect = run.throw(error)
            else:
                effect = run.send(result)
    except StopIteration as stop:
        response: Response = stop.value
        return response
    finally:
        run.close()


async def _generate(effect: Generate, engine: Engine | AsyncFunctionEngine) -> Any:
    try:
        if isinstance(engine, AsyncFunctionEngine):
            return await engine.generate()
        return checked_result(await asyncio.to_thread(exhaust, open_stream(effect, engine)), engine)
    except Exception as error:
        raise EngineFailed(error, emitted=False) from error
