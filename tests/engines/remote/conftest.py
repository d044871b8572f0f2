"""Engines on a scripted upstream; retries do not sleep, and time stands still until it is moved."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cachestack.engines.remote.anthropic import AnthropicEngine
from cachestack.engines.remote.engine import RemoteEngine
from cachestack.engines.remote.openai import OpenAIEngine
from cachestack.requests import Delta, Generation, Message, Piece, Request
from tests.upstream.server import Upstream


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Waits:
    """In place of asyncio.sleep: what would have been waited, with the clock moved by it."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: list[float] = []
        self._clock = clock

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self._clock.now_s += seconds


class TopOfRange(random.Random):
    """Draws the upper end: jitter at its longest."""

    def uniform(self, a: float, b: float) -> float:
        return b


MakeEngine = Callable[..., RemoteEngine]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def waits(clock: Clock) -> Waits:
    return Waits(clock)


@pytest.fixture
def make_engine(upstream: Upstream, clock: Clock, waits: Waits) -> Iterator[MakeEngine]:
    made: list[RemoteEngine] = []

    def make(kind: str = "openai", **options: Any) -> RemoteEngine:
        defaults = {"model": "scripted", "secret": b"test", "clock": clock, "sleep": waits, "rng": TopOfRange()}
        engine: RemoteEngine
        if kind == "anthropic":
            engine = AnthropicEngine("up", upstream.root_url, api_key="key", **(defaults | options))
        else:
            engine = OpenAIEngine("up", upstream.base_url, **({"provider": "vllm"} | defaults | options))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


def ask(text: str = "capital of France", **fields: Any) -> Request:
    return Request((Message("user", text),), **fields)


def as_body(dialect: str, body: dict[str, Any], text: str = "capital of France", **fields: Any) -> Request:
    """A request as the gateway makes one of a body."""
    return Request((Message("user", text),), dialect=dialect, body=body, **fields)


def run(engine: RemoteEngine, request: Request) -> tuple[list[Piece], Generation]:
    """The pieces and the answer; checks what the driver will: the text begins with what was streamed."""
    stream, pieces = engine.stream(request), []
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as stop:
            generation: Generation = stop.value
            break
    streamed = text_of(pieces)
    assert generation.text.startswith(streamed)
    return pieces, generation


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece for piece in pieces if isinstance(piece, str))


def deltas_of(pieces: list[Piece]) -> list[Any]:
    return [piece.body for piece in pieces if isinstance(piece, Delta)]
