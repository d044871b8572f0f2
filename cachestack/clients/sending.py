"""The HTTP client under a wrapped client: it asks the stack, and sends only what the stack wants from the provider.

There are two libraries of one shape, httpx and httpx2; the classes are made for the one that the wrapped client uses.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator
from functools import lru_cache
from importlib import import_module
from typing import Any

from cachestack.adriver import ADrive, adrive
from cachestack.aio import respond_async
from cachestack.clients.answering import Shaping, error_answer, headers_of, whole_answer
from cachestack.clients.calling import Call, Passed, Setting, read_call
from cachestack.clients.dialect import as_bytes
from cachestack.clients.provider import AsyncProvider, Provider, ProviderFailed, ProviderRefused
from cachestack.decisions import Response
from cachestack.driver import Drive, drive
from cachestack.errors import CacheStackError

_FRAMING = ("content-encoding", "content-length", "transfer-encoding", "connection")


class Sending:
    """What both kinds of client do alike. `inner` is the wrapped client's own HTTP client."""

    def __init__(self, http: Any, inner: Any, setting: Setting) -> None:
        self.http = http
        self.inner = inner
        self.setting = setting

    def read(self, request: Any, content: bytes) -> Call | Passed:
        dialect = self.setting.dialect(request.method, request.url.path)
        assert dialect is not None, "only calls of a dialect are read"
        return read_call(self.setting, dialect, str(request.url), dict(request.headers), content)

    def outgoing(self, request: Any, body: dict[str, Any] | None) -> Any:
        """The request as it goes to the provider: as it came, but for options that were taken out."""
        if body is None:
            return request
        headers = {k: v for k, v in request.headers.items() if k not in ("content-length", "transfer-encoding")}
        return self.http.Request(
            request.method, request.url, headers=headers, content=as_bytes(body), extensions=request.extensions
        )

    def whole(self, request: Any, call: Call, provider: Provider, response: Response) -> Any:
        self.done(response)
        if provider.is_whole:
            provider.response.headers.update(headers_of(response))
            return provider.response
        content = as_bytes(whole_answer(call, response))
        headers = {"content-type": "application/json"} | headers_of(response)
        return self.http.Response(200, headers=headers, content=content, request=request)

    def streamed(self, request: Any, provider: Provider, response: Response | None, stream: Any) -> Any:
        """`response` where it is there already: a hit."""
        headers = [("content-type", "text/event-stream; charset=utf-8")]
        if provider.response is not None and provider.response.status_code == 200:
            headers = [(k, v) for k, v in provider.response.headers.multi_items() if k.lower() not in _FRAMING]
        made = self.http.Response(200, headers=headers, stream=stream, request=request)
        made.headers.update(headers_of(response))
        return made

    def refused(self, request: Any, error: Exception) -> Any:
        """The provider's answer where it refused; an answer of its shape for an error of ours. Raises all others."""
        if isinstance(error, ProviderRefused | ProviderFailed):
            return error.response
        if not isinstance(error, CacheStackError):
            raise error
        status, body, headers = error_answer(error, self.setting.dialects[0].name)
        return self.http.Response(status, headers=headers, content=as_bytes(body), request=request)

    def lacks(self, provider: Provider, response: Response) -> bool:
        """Whether there is more to the answer than can be told here: another call's, which was streamed."""
        return not (response.is_text or provider.is_whole or response.body is not None)

    def done(self, response: Response) -> None:
        if self.setting.on_response is not None:
            self.setting.on_response(response)


@lru_cache(maxsize=4)
def sync_client(module: str) -> Any:
    """The class of a synchronous client of one of the two libraries."""
    http: Any = import_module(module)

    class CachingClient(http.Client):  # type: ignore[misc]
        def __init__(self, inner: Any, setting: Setting) -> None:
            super().__init__(transport=http.MockTransport(_unused), trust_env=False, timeout=inner.timeout)
            self._cachestack = Sending(http, inner, setting)
            self._inner = inner

        @property
        def is_closed(self) -> bool:
            return bool(self._inner.is_closed)

        def build_request(self, *args: Any, **kwargs: Any) -> Any:
            return self._inner.build_request(*args, **kwargs)

        def close(self) -> None:
            self._inner.close()
            super().close()

        def send(self, request: Any, **kwargs: Any) -> Any:
            sending = self._cachestack
            if sending.setting.dialect(request.method, request.url.path) is None:
                return self._inner.send(request, **kwargs)
            try:
                call = sending.read(request, request.read())
            except CacheStackError as error:
                return sending.refused(request, error)
            if isinstance(call, Passed):
                return self._inner.send(sending.outgoing(request, call.body), **kwargs)
            return self._ask(request, call, kwargs)

        def _ask(self, request: Any, call: Call, kwargs: dict[str, Any]) -> Any:
            sending = self._cachestack
            stack, streams = sending.setting.stack, call.asking.streams
            outgoing = sending.outgoing(request, call.body if call.is_changed else None)
            provider = Provider(call, lambda: self._inner.send(outgoing, **{**kwargs, "stream": streams}))
            try:
                if not streams:
                    response = stack.respond(call.request, provider)
                    if sending.lacks(provider, response):
                        return self._inner.send(outgoing, **kwargs)
                    return sending.whole(request, call, provider, response)
                run, engines = stack.open_run(call.request, provider)
                stream = Outgoing(Shaping(call, provider), drive(run, stack.performer, engines), sending)
                stream.begin()
            except Exception as error:
                return sending.refused(request, error)
            if stream.lacks:
                return self._inner.send(outgoing, **kwargs)
            return sending.streamed(request, provider, stream.response, as_sync_stream(stream))

    class Streamed(http.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Outgoing) -> None:
            self._stream = stream

        def __iter__(self) -> Generator[bytes, None, None]:
            yield from self._stream

        def close(self) -> None:
            self._stream.close()

    def as_sync_stream(stream: Outgoing) -> Any:
        return Streamed(stream)

    return CachingClient


class Outgoing:
    """The bytes of a streamed answer. `begin` runs to the first of them, so that what fails before has its status."""

    def __init__(self, shaping: Shaping, pieces: Drive, sending: Sending) -> None:
        self._shaping = shaping
        self._pieces = pieces
        self._sending = sending
        self._first = b""
        self._reading = threading.Lock()
        self._closed = False
        self.response: Response | None = None
        self.lacks = False

    def begin(self) -> None:
        self._first = self._next()

    def __iter__(self) -> Generator[bytes, None, None]:
        yield self._first
        while self.response is None and not self._closed:
            yield self._next()

    def _next(self) -> bytes:
        with self._reading:
            try:
                return self._shaping.piece(next(self._pieces))
            except StopIteration as stop:
                response: Response = stop.value
                self.response, self.lacks = response, self._shaping.lacks(response)
                self._sending.done(response)
                return self._shaping.end(response)
            finally:
                if self._closed:
                    self._pieces.close()

    def close(self) -> None:
        """From any thread: one that reads ends it when its piece has come."""
        self._closed = True
        if self._reading.acquire(blocking=False):
            try:
                self._pieces.close()
            finally:
                self._reading.release()


@lru_cache(maxsize=4)
def async_client(module: str) -> Any:
    """The class of an asynchronous client of one of the two libraries."""
    http: Any = import_module(module)

    class AsyncCachingClient(http.AsyncClient):  # type: ignore[misc]
        def __init__(self, inner: Any, setting: Setting) -> None:
            super().__init__(transport=http.MockTransport(_unused), trust_env=False, timeout=inner.timeout)
            self._cachestack = Sending(http, inner, setting)
            self._inner = inner

        @property
        def is_closed(self) -> bool:
            return bool(self._inner.is_closed)

        def build_request(self, *args: Any, **kwargs: Any) -> Any:
            return self._inner.build_request(*args, **kwargs)

        async def aclose(self) -> None:
            await self._inner.aclose()
            await super().aclose()

        async def send(self, request: Any, **kwargs: Any) -> Any:
            sending = self._cachestack
            if sending.setting.dialect(request.method, request.url.path) is None:
                return await self._inner.send(request, **kwargs)
            try:
                call = sending.read(request, await request.aread())
            except CacheStackError as error:
                return sending.refused(request, error)
            if isinstance(call, Passed):
                return await self._inner.send(sending.outgoing(request, call.body), **kwargs)
            return await self._ask(request, call, kwargs)

        async def _ask(self, request: Any, call: Call, kwargs: dict[str, Any]) -> Any:
            sending = self._cachestack
            stack, streams = sending.setting.stack, call.asking.streams
            outgoing = sending.outgoing(request, call.body if call.is_changed else None)
            provider = AsyncProvider(call, lambda: self._inner.send(outgoing, **{**kwargs, "stream": streams}))
            try:
                if not streams:
                    response = await respond_async(stack, call.request, provider)
                    if sending.lacks(provider, response):
                        return await self._inner.send(outgoing, **kwargs)
                    return sending.whole(request, call, provider, response)
                run, engines = stack.open_run(call.request, provider)
                stream = AsyncOutgoing(Shaping(call, provider), adrive(run, stack.performer, engines), sending)
                await stream.begin()
            except Exception as error:
                return sending.refused(request, error)
            if stream.lacks:
                return await self._inner.send(outgoing, **kwargs)
            return sending.streamed(request, provider, stream.response, AsyncStreamed(stream))

    class AsyncStreamed(http.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: AsyncOutgoing) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncGenerator[bytes, None]:
            async for chunk in self._stream.chunks():
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    return AsyncCachingClient


class AsyncOutgoing:
    """The same, awaited. `items`: pieces, and the Response as the last."""

    def __init__(self, shaping: Shaping, items: ADrive, sending: Sending) -> None:
        self._shaping = shaping
        self._items = items
        self._sending = sending
        self._first = b""
        self.response: Response | None = None
        self.lacks = False

    async def begin(self) -> None:
        self._first = await self._next()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        yield self._first
        while self.response is None:
            yield await self._next()

    async def _next(self) -> bytes:
        item = await anext(self._items)
        if not isinstance(item, Response):
            return self._shaping.piece(item)
        self.response, self.lacks = item, self._shaping.lacks(item)
        self._sending.done(item)
        return self._shaping.end(item)

    async def aclose(self) -> None:
        await self._items.aclose()


def _unused(request: Any) -> Any:
    raise AssertionError("a caching client sends through the one that it wraps")


def http_module(client: Any) -> tuple[str, bool] | None:
    """Which of the two libraries an HTTP client is of, and whether it is asynchronous; None: of none."""
    for base in type(client).__mro__:
        root = base.__module__.partition(".")[0]
        if root in ("httpx", "httpx2") and base.__name__ in ("Client", "AsyncClient"):
            return root, base.__name__ == "AsyncClient"
    return None
