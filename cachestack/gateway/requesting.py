"""What every endpoint does around its own work: read the body, know who asks, and answer errors in its own shape."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from cachestack.gateway.faults import Fault, Refused, fault_of
from cachestack.gateway.told import RawHeaders, joined
from cachestack.gateway.wire import dump

log = logging.getLogger("cachestack.gateway")

TRACE = b"x-cachestack-trace"
LATE_S = 0.25
JSON = b"application/json"
ErrorShape = Callable[[Fault, str], Mapping[str, Any]]
_REFUSED: RawHeaders = [(b"cache-status", b"CacheStack; detail=refused")]
_NUM_DRAWN = 64
_drawn: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)
_ENDS = Fault(503, "unavailable", "the gateway is being stopped; ask again", "stopping")
Within = Callable[[Mapping[str, str]], AbstractContextManager[None]]
"""From a request's headers to what is done around it."""


def no_context(headers: Mapping[str, str]) -> AbstractContextManager[None]:
    return nullcontext()


def new_trace_id() -> str:
    """As the ids of traces and entries are."""
    try:
        return _drawn.pop()
    except IndexError:  # random numbers for many ids are asked of the system at once
        drawn = secrets.token_hex(12 * _NUM_DRAWN)
        _drawn.extend(drawn[at : at + 24] for at in range(24, len(drawn), 24))
        return drawn[:24]


class Gone(Exception):
    """The client has left; nobody is there to be answered."""


@dataclass(slots=True)
class Exchange:
    """One request over HTTP, and the answer to it. `trace_id` names both, here and in the log."""

    scope: Scope
    receive: Receive
    send: Send
    trace_id: str
    has_begun: bool = False
    has_ended: bool = False
    is_late: bool = False
    """The body took its time: what its sender may do can have changed since its headers came."""

    @property
    def headers(self) -> dict[str, str]:
        """As `joined`."""
        return joined(self.scope["headers"])

    async def body(self, max_bytes: int) -> bytes:
        """Raises Refused (413) as soon as it is too long, and Gone."""
        parts: list[bytes] = []
        num_bytes, begin_s = 0, time.monotonic()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            part = message.get("body", b"")
            num_bytes += len(part)
            if num_bytes > max_bytes:
                raise Refused(Fault(413, "too_large", f"the body is larger than {max_bytes} bytes", "body_too_large"))
            parts.append(part)
            if not message.get("more_body", False):
                self.is_late = time.monotonic() - begin_s > LATE_S
                return b"".join(parts) if len(parts) > 1 else part

    async def begin(self, status: int, content_type: bytes, headers: RawHeaders) -> None:
        self.has_begun = True
        all_headers = [(b"content-type", content_type), (TRACE, self.trace_id.encode()), *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": all_headers})

    async def write(self, body: bytes, *, more: bool = True) -> None:
        self.has_ended = not more
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def answer(self, value: Any, status: int = 200, headers: RawHeaders | None = None) -> None:
        """One JSON document."""
        await self.answer_bytes(dump(value), JSON, status, headers)

    async def answer_bytes(
        self, body: bytes, content_type: bytes, status: int = 200, headers: RawHeaders | None = None
    ) -> None:
        await self.begin(status, content_type, [(b"content-length", b"%d" % len(body)), *(headers or [])])
        await self.write(body, more=False)

    async def answer_fault(self, fault: Fault, shape: ErrorShape, headers: RawHeaders | None = None) -> None:
        own = [(name.lower().encode(), value.encode()) for name, value in fault.headers.items()]
        await self.answer(shape(fault, self.trace_id), fault.status, [*own, *(headers or [])])

    @asynccontextmanager
    async def while_there(self) -> AsyncIterator[None]:
        """The work within is cancelled when the client leaves before the answer's end; then Gone is raised."""
        task = asyncio.current_task()
        assert task is not None, "an endpoint runs in a task"
        watcher = asyncio.ensure_future(self._left())
        watcher.add_done_callback(lambda done: None if done.cancelled() or self.has_ended else task.cancel())
        try:
            yield
        except asyncio.CancelledError:
            if not watcher.done() or watcher.cancelled() or self.has_ended:
                raise
            task.uncancel()
            raise Gone from None
        finally:
            watcher.cancel()

    async def _left(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


class Endpoint:
    """An ASGI application that answers one route. `handle` does the work; whatever it raises is answered here."""

    def __init__(self, handle: Callable[[Exchange], Awaitable[None]], shape: ErrorShape) -> None:
        self._handle = handle
        self._shape = shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, new_trace_id())
        try:
            await self._handle(exchange)
        except Gone:
            log.info("request %s: the client left", exchange.trace_id)
        except (
            asyncio.CancelledError
        ):  # the gateway ends; what has begun breaks off, which no client takes for the whole
            log.warning("request %s was under way when the gateway ended", exchange.trace_id)
            if not exchange.has_begun:
                await exchange.answer_fault(_ENDS, self._shape, _REFUSED)
        except Exception as error:
            fault = fault_of(error, exchange.trace_id)
            if exchange.has_begun:
                raise  # half an answer: the connection ends, which no client takes for the whole
            await exchange.answer_fault(fault, self._shape, _REFUSED)
