"""A stack over a real store, matched exactly only, with an engine that answers what it is told."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachestack.engines.base import Engine
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Generation, Request, Usage
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores.disk import DiskStore
from cachestack.stores.sums import SumsFile

MakeStack = Callable[..., CacheStack]


class Engine135:
    """Answers with fixed usage and times, or fails."""

    name = "fixed"
    model = "fixed-1"

    def __init__(self) -> None:
        self.error: Exception | None = None

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        if self.error is not None:
            raise self.error
        yield "an "
        yield "answer"
        return Generation("an answer", "stop", Usage(100, 40, 11), ttft_s=0.2, decode_s=1.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine() -> Engine135:
    return Engine135()


@pytest.fixture
def make_stack(tmp_path: Path, clock: Clock, engine: Engine135) -> Iterator[MakeStack]:
    made: list[CacheStack] = []

    def make(policies: str = "default: {fallback: {engine_error: [raise]}}", **options: Any) -> CacheStack:
        engines: dict[str, Engine] = {"e": engine}
        stack = CacheStack(
            engines=engines,
            store=options.get("store") or DiskStore(tmp_path / "entries", clock),
            index=None,
            encoder=None,
            prefix=PrefixLayer(BlockPool(max_bytes=1024 * 1024), secret=b"test"),
            policies=PolicySet.parse(policies, "test policy"),
            stats=options.get("stats") or Stats(SumsFile(tmp_path / "stats")),
            clock=clock,
        )
        made.append(stack)
        return stack

    yield make
    for stack in made:
        stack.close()
