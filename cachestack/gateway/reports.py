"""POST /v1/report: a client says whether a hit of its tenant was wrong or right."""

from __future__ import annotations

import asyncio

from cachestack.bodies.reading import Fields
from cachestack.errors import RequestError
from cachestack.gateway.faults import not_found
from cachestack.gateway.jsonbody import JsonBody
from cachestack.gateway.requesting import Exchange
from cachestack.gateway.stack_port import StackPort


class Reports:
    """By the request's id alone (the header `X-CacheStack-Trace`): a client may take a hit from its own question, and
    no entry from anybody else. Another tenant's, another user's and an unknown hit get the same answer."""

    def __init__(self, port: StackPort, body: JsonBody) -> None:
        self._port, self._body = port, body

    async def __call__(self, exchange: Exchange) -> None:
        async with self._body.read(exchange) as (principal, given):
            fields = Fields(given)
            hit_id, verdict = fields.required_text("hit_id"), fields.text("verdict") or "wrong"
            if fields.rest:
                raise RequestError(f"{', '.join(sorted(fields.rest))} is not known; leave it out")
            if verdict not in ("wrong", "right"):
                raise RequestError(f"verdict must be wrong or right, not {verdict!r}")
            stack, tenant = self._port.stack, principal.tenant
            by = {"user": principal.user, "role": principal.role, "epoch": principal.epoch}
            found = await asyncio.get_running_loop().run_in_executor(
                self._port.threads,
                lambda: stack.report_hit(hit_id, tenant=tenant, wrong=verdict == "wrong", by=by),
            )
            if not found:
                raise not_found("there is no such hit", param="hit_id")
            await exchange.answer({"reported": verdict})
