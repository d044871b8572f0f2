"""A request asked afresh of its engine, for an audit: nothing is read from the cache, nothing is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace

from cachestack.adriver import adrive
from cachestack.attempts import PRIMARY
from cachestack.decisions import Layer, Response
from cachestack.driver import drive
from cachestack.engines.base import Engine, anew, exhaust
from cachestack.engines.functions import AsyncFunctionEngine, AsyncGeneratorEngine
from cachestack.performer import Performer
from cachestack.pipeline import Pipeline, Run
from cachestack.policy import Policy
from cachestack.requests import Generation, Request
from cachestack.stats import Stats
from cachestack.tally import model_of
from cachestack.tracing import TraceBuilder

ONLY_AWAITED = (AsyncFunctionEngine, AsyncGeneratorEngine)
"""Engines that can't be called outside a loop: an audit runs one of its own."""


class Afresh:
    """Called in a thread of its own. What it costs counts as the tenant's cost and as that of audits, and as no
    request: no hit is made dearer by it, and nobody waited for it."""

    def __init__(self, pipeline: Pipeline, performer: Performer, stats: Stats) -> None:
        self._pipeline = replace(pipeline, flights=None)
        self._performer, self._stats = performer, stats

    def __call__(
        self, request: Request, policy: Policy, engines: Mapping[str, Engine]
    ) -> tuple[Generation, float] | None:
        """The engine's own whole answer, and its price where one is known; None where there is none."""
        alone = policy.model_copy(
            update={"fallback": policy.fallback.model_copy(update={"engine_error": ("raise",), "other_engine": None})}
        )
        asked = replace(request, lookup=False, store=False, only_if_cached=False)
        trace = TraceBuilder("audit", request.tenant)
        engines = {**engines, PRIMARY: anew(engines[PRIMARY])}
        run = self._pipeline.run(asked, alone, engines[PRIMARY], trace)
        if isinstance(engines[PRIMARY], ONLY_AWAITED):
            response = asyncio.run(_awaited(run, self._performer, engines))
        else:
            response = exhaust(drive(run, self._performer, engines, streams=False))
        cost = self._count(request.tenant, response, policy)
        is_whole = response.is_text and response.finish_reason == "stop" and bool(response.text.strip())
        if response.trace.step(Layer.DECODE) is None or not is_whole:
            return None
        return Generation(response.text, response.finish_reason, response.usage), cost

    def _count(self, tenant: str, response: Response, policy: Policy) -> float:
        price = policy.prices.price_of(model_of(response.trace))
        cost = 0.0 if price is None else price[0].cost(response.usage)
        self._stats.count(tenant, audits=1, audit_cost=cost, cost=cost)
        return cost


async def _awaited(run: Run, performer: Performer, engines: Mapping[str, Engine]) -> Response:
    async with aclosing(adrive(run, performer, engines, streams=False)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Response):
                return piece
    raise AssertionError("a drive ends with its Response, or raises")
