"""A stack used beside a library that calls the model itself: it is asked first, and told the answer afterwards.

Both are runs of the pipeline, so that policy, tiers, guards and retention are those of every other request.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cachestack.adriver import adrive
from cachestack.aio import AsyncCacheStack, respond_async
from cachestack.decisions import Response
from cachestack.driver import drive
from cachestack.engines.base import exhaust
from cachestack.errors import NotCached
from cachestack.requests import Generation, Message, Piece, Request, Sampling

if TYPE_CHECKING:
    from cachestack.stack import CacheStack


@dataclass(frozen=True, slots=True)
class Given:
    """An engine that has nothing to do: the answer is there."""

    model: str
    generation: Generation
    name: str = "given"

    def stream(self, request: Request) -> Generator[Piece, None, Generation]:
        yield from ()
        return self.generation


class Aside:
    """One library's entries in a stack. All of them have the tag `source`, so that they can be cleared together."""

    def __init__(
        self,
        stack: CacheStack | AsyncCacheStack,
        source: str,
        *,
        tenant: str,
        user: str | None = None,
        role: str | None = None,
        tags: Sequence[str] = (),
        ttl_s: float | None = None,
    ) -> None:
        self.stack = stack.stack if isinstance(stack, AsyncCacheStack) else stack
        self.source = source
        self._blank = Request(
            (Message("system", source),),
            tenant=tenant,
            user=user,
            role=role,
            model=source,
            tags=(source, *tags),
            ttl_s=ttl_s,
        )

    def request(
        self,
        question: str,
        contract: Any,
        *,
        by_meaning: bool,
        temperature: float | None = None,
        tools: Sequence[Any] = (),
    ) -> Request:
        """`contract`: all that must be equal, as JSON. Without `by_meaning` the question counts word for word, and is
        only matched exactly."""
        return replace(
            self._blank,
            messages=(Message("user" if by_meaning else "system", question or "\N{EMPTY SET}"),),
            sampling=Sampling(temperature=temperature),
            tools=tuple(tools),
            extra={self.source: contract, "question": None if by_meaning else question},
        )

    def find(self, request: Request) -> str | None:
        run, engines = self.stack.open_run(replace(request, only_if_cached=True), _NOTHING, counts_not_cached=False)
        try:
            return exhaust(drive(run, self.stack.performer, engines, streams=False)).text
        except NotCached:
            return None

    async def afind(self, request: Request) -> str | None:
        run, engines = self.stack.open_run(replace(request, only_if_cached=True), _NOTHING, counts_not_cached=False)
        try:
            async with aclosing(adrive(run, self.stack.performer, engines, streams=False)) as items:
                return next(item.text for item in [item async for item in items] if isinstance(item, Response))
        except NotCached:
            return None

    def keep(self, request: Request, generation: Generation) -> None:
        self.stack.respond(replace(request, lookup=False), Given(request.model, generation))

    async def akeep(self, request: Request, generation: Generation) -> None:
        await respond_async(self.stack, replace(request, lookup=False), Given(request.model, generation))

    def clear(self) -> int:
        """Remove this tenant's entries of this library; returns how many went."""
        return self.stack.invalidate(tenant=self._blank.tenant, tag=self.source)


_NOTHING = Given("", Generation(""))
