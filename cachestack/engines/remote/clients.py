"""HTTP clients, one for each event loop: connections of one loop can't be used from another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cachestack.engines.remote.retrying import Timeouts
from cachestack.errors import MissingExtra

if TYPE_CHECKING:
    import httpx


class LoopClients:
    """Makes a client when a loop first needs one, and closes it when that loop ends."""

    def __init__(self, timeouts: Timeouts, max_connections: int, *, is_encrypted: bool) -> None:
        self._verify = _ssl_context() if is_encrypted else False  # reads files: not for a loop that others wait for
        self._timeouts = timeouts
        self._max_connections = max_connections
        self._lock = threading.Lock()
        self._by_loop: dict[int, tuple[asyncio.AbstractEventLoop, httpx.AsyncClient, AsyncGenerator[None, None]]] = {}

    async def client(self) -> httpx.AsyncClient:
        """The running loop's."""
        loop = asyncio.get_running_loop()
        kept = self._by_loop.get(id(loop))
        if kept is not None and kept[0] is loop:
            return kept[1]
        client = self._open()
        ending = self._closing_with_loop(loop, client)
        await anext(ending)
        with self._lock:
            self._by_loop = {key: held for key, held in self._by_loop.items() if not held[0].is_closed()}
            self._by_loop[id(loop)] = (loop, client, ending)
        return client

    async def aclose(self) -> None:
        """Close the running loop's client."""
        with self._lock:
            kept = self._by_loop.pop(id(asyncio.get_running_loop()), None)
        if kept is not None:
            await kept[2].aclose()

    async def _closing_with_loop(
        self, loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient
    ) -> AsyncGenerator[None, None]:
        """A loop that shuts down closes the asynchronous generators that it began: so the client ends with it."""
        try:
            yield
        finally:
            with self._lock:
                if (kept := self._by_loop.get(id(loop))) is not None and kept[1] is client:
                    del self._by_loop[id(loop)]
            await client.aclose()

    def _open(self) -> httpx.AsyncClient:
        lib, times = import_httpx(), self._timeouts
        limits = lib.Limits(max_connections=self._max_connections, max_keepalive_connections=self._max_connections)
        timeout = lib.Timeout(times.read_s, connect=times.connect_s)
        client: httpx.AsyncClient = lib.AsyncClient(timeout=timeout, limits=limits, verify=self._verify)
        return client


def import_httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("httpx", "remote") from error
    return httpx


@lru_cache(maxsize=1)
def _ssl_context() -> Any:
    """Made once: reading the certificates takes longer than a look-up."""
    return import_httpx().create_ssl_context()
