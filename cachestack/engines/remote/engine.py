"""One call of a remote engine: sent, retried, streamed, checked."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from cachestack.engines.remote.breaker import CircuitBreaker
from cachestack.engines.remote.bridge import as_sync, run_in_background
from cachestack.engines.remote.clients import LoopClients, import_httpx
from cachestack.engines.remote.dialects.base import Read, RemoteDialect, parsed
from cachestack.engines.remote.prefix_hint import PrefixHints
from cachestack.engines.remote.prompt_caching import Provider, routing_headers, with_hint
from cachestack.engines.remote.retrying import Retries, Timeouts, is_retried, retry_after_s
from cachestack.engines.remote.sse import EventDecoder
from cachestack.errors import ConfigError, EngineError, EngineTimeout, RequestError, UpstreamError
from cachestack.requests import PASSED_HEADERS, Delta, Generation, Piece, Request

MAX_CONNECTIONS = 1000
_MAX_ERROR_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Call:
    """`is_own`: the request came in the dialect that is sent, so that all the answer says can be passed on."""

    dialect: RemoteDialect
    content: bytes
    streams: bool
    is_own: bool
    headers: Mapping[str, str]


class _TryAgain(Exception):
    """Nothing was passed on, and the same call may go well in a moment."""

    def __init__(self, cause: EngineError, retry_after_s: float | None = None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.retry_after_s = retry_after_s


class RemoteEngine:
    """What the engines of all dialects share. `astream` is the one implementation; `stream` is the same for threads.

    `secret` makes salts and keys of tenants' names for the provider's own cache (`prompt_caching`); processes that
    share a server share its cache only with the same secret. Without one it is drawn anew. `clock`, `sleep` and `rng`
    are those of retries and of the circuit breaker.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        provider: Provider,
        model: str | None = None,
        api_key: str | None = None,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
        breaker: CircuitBreaker | None = None,
        prompt_caching: bool = True,
        long_lived_prefixes: bool = False,
        secret: bytes | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        import_httpx()
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"the engine {name} needs a base_url that begins with http:// or https://")
        if api_key_env is not None and not os.environ.get(api_key_env):
            raise ConfigError(f"the engine {name} reads its key from {api_key_env}, which is not set")
        self.name = name
        self.provider: Provider = provider
        self.breaker = breaker or CircuitBreaker(name, clock=clock)
        self._base_url = base_url.rstrip("/")
        self._model = model or ""
        self._key = os.environ[api_key_env] if api_key_env is not None else api_key
        self._headers = dict(headers or {})
        self._timeouts = timeouts or Timeouts()
        self._retries = retries or Retries()
        self._prompt_caching = prompt_caching
        self._long_lived = long_lived_prefixes
        self._hints = PrefixHints(secret or secrets.token_bytes(32), clock=clock)
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._clients = LoopClients(self._timeouts, MAX_CONNECTIONS, is_encrypted=base_url.startswith("https://"))

    @property
    def model(self) -> str:
        """The model that every request is sent to; empty where each names its own."""
        return self._model

    def stream(self, request: Request) -> Generator[Piece, None, Generation]:
        return as_sync(self.astream(request))

    async def astream(self, request: Request) -> AsyncGenerator[Piece | Generation, None]:
        call = self._call(request)
        begin_s, deadline_s = time.perf_counter(), self._clock() + self._timeouts.total_s
        attempt = 0
        while True:
            self.breaker.enter()
            has_ended = has_emitted = False
            try:
                async with aclosing(self._attempt(call, begin_s, deadline_s)) as items:
                    async for item in items:
                        if isinstance(item, Generation):
                            has_ended = True
                            self.breaker.succeeded()
                        has_emitted = True
                        yield item
                return
            except _TryAgain as failure:
                has_ended = True
                self._note_failure(failure.cause)
                wait_s = None
                if not has_emitted:
                    wait_s = self._retries.wait_s(attempt, failure.retry_after_s, self._rng)
                if wait_s is None or self._clock() + wait_s >= deadline_s or self.breaker.state == "open":
                    raise failure.cause from failure.__cause__
            except EngineError as error:
                has_ended = True
                self._note_failure(error)
                raise
            finally:
                if not has_ended:
                    self.breaker.left()
            attempt += 1
            await self._sleep(wait_s)

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        await self._clients.aclose()

    def close(self) -> None:
        """Close the connections that synchronous callers used."""
        run_in_background(self._clients.aclose())

    # What a dialect's engine says

    def _compile(self, request: Request) -> tuple[RemoteDialect, dict[str, Any]]:
        """Raises RequestError for what this engine cannot be asked."""
        raise NotImplementedError

    def _auth(self) -> Mapping[str, str]:
        raise NotImplementedError

    # One attempt

    def _call(self, request: Request) -> _Call:
        dialect, body = self._compile(request)
        if not body.get("model"):
            raise RequestError(f"the engine {self.name} has no model of its own; the request must name one")
        headers = self._passed_headers(request, dialect)
        try:
            if self._prompt_caching:
                hint = self._hints.hint(request)
                body = with_hint(body, request, hint, self.provider, long_lived=self._long_lived)
                headers |= routing_headers(hint, self.provider)
            content = json.dumps(body).encode()
        except RecursionError:
            raise RequestError("the request is nested too deeply") from None
        is_own = not request.dialect or request.dialect == dialect.name
        return _Call(dialect, content, body.get("stream") is True, is_own, headers)

    def _passed_headers(self, request: Request, dialect: RemoteDialect) -> dict[str, str]:
        """The request's own, after those of the same name that this engine always sends."""
        if request.dialect != dialect.name:
            return {}
        given = {name: request.extra.get(name) for name in PASSED_HEADERS.get(request.dialect, ())}
        always = {name.lower(): value for name, value in self._headers.items()}
        return {
            name: ", ".join(filter(None, (always.get(name), value)))
            for name, value in given.items()
            if isinstance(value, str)
        }

    def _note_failure(self, error: EngineError) -> None:
        """A server that says no is well; one that is out of order, or answers nonsense, is not."""
        if isinstance(error, UpstreamError) and error.status < 500 and error.status != 408:
            self.breaker.succeeded()
        else:
            self.breaker.failed()

    async def _attempt(
        self, call: _Call, begin_s: float, deadline_s: float
    ) -> AsyncGenerator[Piece | Generation, None]:
        httpx = import_httpx()
        client = await self._clients.client()
        own = {name: value for name, value in self._headers.items() if name.lower() not in call.headers}
        headers = {"content-type": "application/json", **self._auth(), **own, **call.headers}
        request = client.build_request(
            "POST", self._base_url + call.dialect.path, content=call.content, headers=headers
        )
        response = None
        try:
            async with self._until(deadline_s):
                response = await client.send(request, stream=True)
            if response.status_code >= 300:
                async with self._until(deadline_s):
                    raise await self._refusal(response)
            answer = self._streamed if call.streams and _is_event_stream(response) else self._whole
            async with aclosing(answer(call, response, begin_s, deadline_s)) as items:
                async for item in items:
                    yield item
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            message = f"the engine {self.name} cannot be reached: {error or type(error).__name__}"
            raise _TryAgain(EngineTimeout(message)) from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise EngineTimeout(f"the engine {self.name} did not answer in time") from error
        except httpx.TransportError as error:
            message = f"the engine {self.name} broke off: {error or type(error).__name__}"
            raise _TryAgain(EngineError(message)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineError(f"the engine {self.name} failed: {type(error).__name__}: {error}") from error
        finally:
            if response is not None:
                await response.aclose()

    async def _streamed(
        self, call: _Call, response: Any, begin_s: float, deadline_s: float
    ) -> AsyncGenerator[Piece | Generation, None]:
        decoder, assembler, first_s = EventDecoder(), call.dialect.assembler(), None
        chunks = response.aiter_bytes()
        while True:
            async with self._until(deadline_s):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            try:
                events = list(decoder.feed(chunk))
            except UnicodeDecodeError as error:
                raise EngineError("the upstream's stream is no UTF-8") from error
            for event in events:
                for piece in assembler.feed(event):
                    if first_s is None:
                        first_s = time.perf_counter()
                    if call.is_own or not isinstance(piece, Delta):
                        yield piece
        body = assembler.whole()
        yield _generation(call, body, call.dialect.read(body), begin_s, first_s)

    async def _whole(
        self, call: _Call, response: Any, begin_s: float, deadline_s: float
    ) -> AsyncGenerator[Piece | Generation, None]:
        async with self._until(deadline_s):
            content = await response.aread()
        body = parsed(content)
        yield _generation(call, body, call.dialect.read(body), begin_s, None)

    async def _refusal(self, response: Any) -> Exception:
        """What a status of 300 or more means."""
        content = (await response.aread())[:_MAX_ERROR_BYTES]
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        said = body.get("error", body) if isinstance(body, dict) else content[:500].decode("utf-8", "replace")
        message = said.get("message", said) if isinstance(said, dict) else said
        status, after_s = response.status_code, retry_after_s(response.headers)
        error = UpstreamError(
            f"the engine {self.name} answered with status {status}: {str(message)[:500]}",
            status=status,
            body=body if isinstance(body, dict) else None,
            retry_after_s=after_s,
        )
        return _TryAgain(error, after_s) if is_retried(status) else error

    def _until(self, deadline_s: float) -> asyncio.Timeout:
        """Around one wait, never around a `yield`: the caller's own time is not the engine's."""
        return asyncio.timeout(max(deadline_s - self._clock(), 0.0))


def _is_event_stream(response: Any) -> bool:
    """A server that does not stream answers in one piece."""
    return "json" not in response.headers.get("content-type", "")


def _generation(call: _Call, body: dict[str, Any], read: Read, begin_s: float, first_s: float | None) -> Generation:
    end_s = time.perf_counter()
    return Generation(
        read.text,
        read.finish_reason,
        read.usage,
        ttft_s=(first_s or end_s) - begin_s,
        decode_s=end_s - (first_s or end_s),
        body=body if call.is_own else None,
        is_text=read.is_text,
    )
