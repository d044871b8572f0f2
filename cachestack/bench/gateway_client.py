"""A client over HTTP/1.1 that costs little: kept connections, requests that are bytes already, httptools to read.

It is not the bottleneck: it takes a few hundredths of a millisecond for a request, in a process of its own, and says
how much of a core it used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, TypeVar, cast

import httptools
import uvloop

from cachestack.bench.gateway_material import Prepared

T = TypeVar("T")
ANSWER_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        host, _, port = url.removeprefix("http://").partition(":")
        return cls(host, int(port))


@dataclass(frozen=True, slots=True)
class Answer:
    """`seconds`: from sending the request to the end of the answer. Status 0: the connection ended before."""

    status: int
    body: bytes
    seconds: float


class Connection(asyncio.Protocol):
    """Sends one request at a time; `on_answer` hears of each answer."""

    def __init__(self, on_answer: Callable[[Answer], None]) -> None:
        self._on_answer = on_answer
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._sent_at = 0.0
        self._waits = False

    def send(self, data: bytes) -> None:
        assert self._transport is not None, "the connection is made"
        self._waits = True
        self._sent_at = time.perf_counter()
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waits:
            self._end(0)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._parser = httptools.HttpResponseParser(self)
        self._end(status)

    def _end(self, status: int) -> None:
        self._waits = False
        body, self._parts = b"".join(self._parts), []
        self._on_answer(Answer(status, body, time.perf_counter() - self._sent_at))


async def connect(address: Address, on_answer: Callable[[Answer], None]) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(on_answer), address.host, address.port)
    return connection


@dataclass(frozen=True, slots=True)
class Load:
    """`client_share`: of one core, used by this process meanwhile."""

    seconds: float
    latencies_s: tuple[float, ...]
    num_wrong: int
    client_share: float

    @property
    def per_second(self) -> float:
        return len(self.latencies_s) / self.seconds


async def load(
    address: Address,
    requests: Sequence[Prepared],
    num_connections: int,
    *,
    seconds: float = float("inf"),
    num_requests: int | None = None,
) -> Load:
    """As fast as it is answered, for so long or so many; each connection begins at another request."""
    latencies: list[float] = []
    num_wrong = 0
    num_left = num_requests if num_requests is not None else 2**62
    ended = asyncio.Event()
    num_busy = num_connections

    def worker(given: Iterator[Prepared]) -> tuple[Callable[[], None], Callable[[Answer], None]]:
        asked: Prepared

        def ask() -> None:
            nonlocal asked, num_busy, num_left
            if num_left <= 0 or time.perf_counter() >= until:
                num_busy -= 1
                if not num_busy:
                    ended.set()
                return
            num_left -= 1
            asked = next(given)
            connections[place].send(asked.data)

        def answered(answer: Answer) -> None:
            nonlocal num_wrong
            latencies.append(answer.seconds)
            num_wrong += answer.status != 200 or asked.mark not in answer.body
            if answer.status:
                ask()
            else:
                ended.set()

        place = len(starts)
        return ask, answered

    connections: list[Connection] = []
    starts: list[Callable[[], None]] = []
    for number in range(num_connections):
        first = number * len(requests) // num_connections
        ask, answered = worker(islice(cycle(requests), first, None))
        starts.append(ask)
        connections.append(await connect(address, answered))
    until = time.perf_counter() + seconds
    began, cpu = time.perf_counter(), time.process_time()
    for start in starts:
        start()
    await ended.wait()
    took, used = time.perf_counter() - began, time.process_time() - cpu
    for connection in connections:
        connection.close()
    return Load(took, tuple(latencies), num_wrong, used / took)


async def ask_one(address: Address, request: Prepared) -> Answer:
    (answer,) = await ask_all(address, [request])
    return answer


async def ask_all(address: Address, requests: Sequence[Prepared]) -> list[Answer]:
    """All at once, each on a connection of its own; all connections are made before the first request is sent."""
    loop = asyncio.get_running_loop()
    answers: list[asyncio.Future[Answer]] = [loop.create_future() for _ in requests]
    connections = [await connect(address, future.set_result) for future in answers]
    for connection, request in zip(connections, requests, strict=True):
        connection.send(request.data)
    try:
        async with asyncio.timeout(ANSWER_WAIT_S):
            return await asyncio.gather(*answers)
    finally:
        for connection in connections:
            connection.close()


def run(work: Callable[[], Awaitable[T]]) -> T:
    """In an event loop as the gateway's."""

    async def main() -> T:
        return await work()

    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(main())


def _new_loop() -> Any:
    return uvloop.new_event_loop()
