"""What an admin does over HTTP: figures, invalidation, reports of wrong hits.

Admins' answers name tenants. A client's key gets 403 for all of it, with the same words whatever there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qs

from cachestack.access import Authenticator
from cachestack.bodies.reading import Fields
from cachestack.errors import RequestError
from cachestack.gateway.faults import not_found
from cachestack.gateway.requesting import Exchange
from cachestack.gateway.stack_port import StackPort
from cachestack.gateway.wire import read_object
from cachestack.observing.exposition import exposition

T = TypeVar("T")


class Admin:
    """Whatever reads or writes the state works in a thread."""

    def __init__(self, port: StackPort, authenticator: Authenticator, max_body_bytes: int) -> None:
        self._port = port
        self._stack = port.stack
        self._authenticator = authenticator
        self._max_body_bytes = max_body_bytes

    async def metrics(self, exchange: Exchange) -> None:
        """As Prometheus reads them."""
        accept = self._headers(exchange).get("accept", "")
        body, content_type = await self._in_thread(lambda: exposition(self._stack, accept=accept))
        await exchange.answer_bytes(body, content_type.encode())

    async def stats(self, exchange: Exchange) -> None:
        """All tenants, or the one that the query names."""
        self._headers(exchange)
        snapshot = await self._in_thread(self._stack.stats)
        told = snapshot.as_dict()
        tenant = _query(exchange).get("tenant")
        if tenant is not None:
            if tenant not in snapshot.by_tenant:
                raise not_found(f"tenant {tenant!r} has no statistics here", param="tenant")
            told = {"tenants": {tenant: told["tenants"][tenant]}}
        await exchange.answer(told)

    async def invalidate(self, exchange: Exchange) -> None:
        """Entries for which all of the given conditions hold."""
        fields = await self._fields(exchange)
        conditions: dict[str, Any] = {
            name: fields.text(name) for name in ("tenant", "user", "tag", "version", "entry")
        } | {"older_than": fields.number("older_than_s")}
        _nothing_else(fields)
        await exchange.answer({"removed": await self._in_thread(lambda: self._stack.invalidate(**conditions))})

    async def remove(self, exchange: Exchange) -> None:
        """One entry, by its id."""
        self._headers(exchange)
        entry = exchange.scope["path_params"]["entry"]
        removed = await self._in_thread(lambda: self._stack.invalidate(entry=entry))
        if not removed:
            raise not_found("there is no such entry", param="entry")
        await exchange.answer({"removed": removed})

    async def report(self, exchange: Exchange) -> None:
        """A hit that was wrong, or right. By an entry's id, a wrong one's entry goes; by the request's id, the question
        never gets it again."""
        fields = await self._fields(exchange)
        hit_id, tenant = fields.required_text("hit_id"), fields.required_text("tenant")
        verdict, remove = fields.text("verdict") or "wrong", fields.flag("remove")
        _nothing_else(fields)
        if verdict not in ("wrong", "right"):
            raise RequestError(f"verdict must be wrong or right, not {verdict!r}")
        if verdict == "right":
            found = await self._in_thread(lambda: self._stack.report_right(hit_id, tenant=tenant))
        else:
            found = await self._in_thread(lambda: self._stack.report_wrong(hit_id, tenant=tenant, remove=bool(remove)))
        if not found:
            raise not_found("this tenant has no such hit or entry", param="hit_id")
        await exchange.answer({"reported": True})

    def _headers(self, exchange: Exchange) -> dict[str, str]:
        """Raises AccessDenied."""
        headers = exchange.headers
        self._authenticator.authenticate(headers, kind="admin")
        return headers

    async def _fields(self, exchange: Exchange) -> Fields:
        self._headers(exchange)
        return Fields(read_object(await exchange.body(self._max_body_bytes)))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._port.threads, work)


def _query(exchange: Exchange) -> dict[str, str]:
    values = parse_qs(exchange.scope["query_string"].decode("latin-1"))
    return {name: given[0] for name, given in values.items()}


def _nothing_else(fields: Fields) -> None:
    if fields.rest:
        raise RequestError(f"{', '.join(sorted(fields.rest))} is not known; leave it out")
