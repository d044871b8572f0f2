"""The provider, called by a wrapped client, as an engine: what it answers is read on its way, and kept as it came."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import Any, Self

from cachestack.clients.calling import Call
from cachestack.clients.sse import Event, Splitter
from cachestack.errors import EngineError, UsageError
from cachestack.requests import Generation, Piece, Request

_PASSING = (408, 409, 425, 429)  # of the statuses below 500: those that another attempt can mend


class ProviderRefused(UsageError):
    """The provider does not take the request: nothing else is tried. `response` is its answer."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"the provider answered {response.status_code}")
        self.response = response


class ProviderFailed(EngineError):
    """The provider could not answer now. `response` is its answer."""

    def __init__(self, response: Any) -> None:
        super().__init__(f"the provider answered {response.status_code}")
        self.response = response


class Provider:
    """One call's engine. The client tries again by its own rules: what has failed here is not sent a second time.

    `response`: what the provider answered. `is_whole`: the answer is the provider's, to its end.
    """

    name = "client"

    def __init__(self, call: Call, send: Callable[[], Any]) -> None:
        self.model = call.request.model
        self.response: Any = None
        self.is_whole = False
        self._call = call
        self._send = send
        self._failure: Exception | None = None
        self._events: deque[tuple[bytes, bool]] = deque()  # each event's bytes, and whether it is a piece

    # What came, as it came

    def taken(self) -> bytes | None:
        """The bytes up to the next piece; None where none came from here."""
        taken = []
        while self._events:
            raw, is_piece = self._events.popleft()
            taken.append(raw)
            if is_piece:
                return b"".join(taken)
        return None

    def rest(self) -> bytes:
        """The bytes after the last piece."""
        rest = b"".join(raw for raw, _ in self._events)
        self._events.clear()
        return rest

    # As an engine

    def anew(self) -> Self:
        """For a call in the background: what comes of it is nothing that this call's client is given."""
        return type(self)(self._call, self._send)

    def stream(self, request: Request) -> Generator[Piece, None, Generation]:
        self._begin()
        begun_s = time.perf_counter()
        first_s: float | None = None
        try:
            self.response = self._send()
            self._check(self.response.read)
            if not self._streams():
                return self._ended(self._call.dialect.generation(_json(self.response)), begun_s, None)
            reading = Reading(self._call, self._events)
            for chunk in self.response.iter_bytes():
                for piece in reading.feed(chunk):
                    first_s = first_s or time.perf_counter()
                    yield piece
            yield from reading.end()
            return self._ended(reading.generation(), begun_s, first_s)
        except Exception as error:
            self._failure = error
            raise
        finally:
            if self.response is not None:
                self.response.close()

    def _begin(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _check(self, read: Callable[[], Any]) -> None:
        status = self.response.status_code
        if status != 200:
            read()
            raise self._error(status)

    def _error(self, status: int) -> Exception:
        passing = status >= 500 or status in _PASSING
        return ProviderFailed(self.response) if passing else ProviderRefused(self.response)

    def _streams(self) -> bool:
        return self._call.asking.streams

    def _ended(self, generation: Generation, begun_s: float, first_s: float | None) -> Generation:
        now_s = time.perf_counter()
        first_s = now_s if first_s is None else first_s
        self.is_whole = True
        return Generation(
            generation.text,
            generation.finish_reason,
            generation.usage,
            first_s - begun_s,
            now_s - first_s,
            generation.body,
            generation.is_text,
        )


class AsyncProvider(Provider):
    """The same, awaited."""

    def stream(self, request: Request) -> Generator[Piece, None, Generation]:
        raise UsageError("an asynchronous client is awaited")

    async def astream(self, request: Request) -> AsyncGenerator[Piece | Generation, None]:
        self._begin()
        begun_s = time.perf_counter()
        first_s: float | None = None
        try:
            self.response = await self._send()
            if self.response.status_code != 200:
                await self.response.aread()
                raise self._error(self.response.status_code)
            if not self._streams():
                yield self._ended(self._call.dialect.generation(_json(self.response)), begun_s, None)
                return
            reading = Reading(self._call, self._events)
            async for chunk in self.response.aiter_bytes():
                for piece in reading.feed(chunk):
                    first_s = first_s or time.perf_counter()
                    yield piece
            for piece in reading.end():
                yield piece
            yield self._ended(reading.generation(), begun_s, first_s)
        except Exception as error:
            self._failure = error
            raise
        finally:
            if self.response is not None:
                await self.response.aclose()


class Reading:
    """A stream of events, read: each piece is noted with the bytes it came in."""

    def __init__(self, call: Call, events: deque[tuple[bytes, bool]]) -> None:
        self._reader = call.dialect.reader()
        self._splitter = Splitter()
        self._events = events
        self._is_sound = True

    def feed(self, chunk: bytes) -> Iterator[Piece]:
        return self._pieces(self._splitter.feed(chunk))

    def end(self) -> Iterator[Piece]:
        return self._pieces(self._splitter.end())

    def generation(self) -> Generation:
        made = self._reader.generation()
        return made if self._is_sound else Generation(made.text, made.finish_reason, made.usage, is_text=False)

    def _pieces(self, events: Iterator[Event]) -> Iterator[Piece]:
        for event in events:
            try:
                piece = self._reader.feed(event)
            except (KeyError, TypeError, ValueError, AttributeError):  # not of its dialect: passed on, and not kept
                self._is_sound, piece = False, None
            self._events.append((event.raw, piece is not None))
            if piece is not None:
                yield piece


def _json(response: Any) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None
