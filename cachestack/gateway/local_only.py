"""While no key is needed: only this machine's own programs, called by its own names.

A page from elsewhere in a browser on this machine can send requests to loopback, with its `Origin`, or, once its name's
address has been changed to 127.0.0.1 (DNS rebinding), as if it were from here, with that name as `Host`. Both are
refused. With keys there is no need: such a page has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from cachestack.access import Authenticator
from cachestack.gateway.faults import Fault
from cachestack.gateway.requesting import Exchange, new_trace_id
from cachestack.gateway.shapes import shape_for

_OWN_NAMES = ("localhost", "127.0.0.1", "::1")
_NAMES = frozenset((b"host", b"origin"))
_MAX_REMEMBERED = 64
RawHeader = tuple[bytes, bytes]


class LocalOnly:
    """`allowed`: names besides this machine's own, with or without a port."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, allowed: Sequence[str] = ()) -> None:
        self._app = app
        self._authenticator = authenticator
        self._allowed = frozenset(name.lower() for name in (*_OWN_NAMES, *allowed))
        self._let_in: set[tuple[RawHeader, ...]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._authenticator.is_open:
            told = tuple([header for header in scope["headers"] if header[0] in _NAMES])
            if told not in self._let_in:
                exchange = Exchange(scope, receive, send, new_trace_id())
                if (message := self._why_not(exchange.headers)) is not None:
                    fault = Fault(403, "permission", message, "not_from_here")
                    await exchange.answer_fault(fault, shape_for(scope["path"]))
                    return
                if len(self._let_in) < _MAX_REMEMBERED:
                    self._let_in.add(told)
        await self._app(scope, receive, send)

    def _why_not(self, headers: dict[str, str]) -> str | None:
        if not self._is_own(f"//{headers.get('host', '')}"):
            return (
                "without keys only calls to localhost, 127.0.0.1 or [::1] are answered, and Host names another; "
                "make a key with `cachestack keys create`, or name the host in allowed_hosts"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin):
            return (
                "without keys no page from another origin is answered; "
                "make a key with `cachestack keys create`, or name its host in allowed_hosts"
            )
        return None

    def _is_own(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            return (parts.hostname or "") in self._allowed or parts.netloc.lower() in self._allowed
        except ValueError:
            return False
