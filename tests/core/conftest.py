"""A stack over a real store and the real encoder, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachestack.engines.base import Engine
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.index import FaissIndex
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores.disk import DiskStore
from cachestack.stores.sums import SumsFile


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


MakeStack = Callable[..., CacheStack]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def encoder(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


@pytest.fixture
def make_stack(tmp_path: Path, clock: Clock, encoder: SentenceEncoder) -> Iterator[MakeStack]:
    """Stacks on one home: each call is what another process, or the same after a restart, would open."""
    made: list[CacheStack] = []

    def make(
        policies: str = "", *, meaning: bool = True, home: Path = tmp_path, engines: dict[str, Engine] | None = None
    ) -> CacheStack:
        store = DiskStore(home / "entries", clock)
        stack = CacheStack(
            engines=engines or {},
            store=store,
            index=FaissIndex(store) if meaning else None,
            encoder=encoder if meaning else None,
            prefix=PrefixLayer(BlockPool(max_bytes=64 * 1024 * 1024), secret=b"test"),
            policies=PolicySet.parse(policies, "test policy"),
            stats=Stats(SumsFile(home / "stats")),
            clock=clock,
        )
        made.append(stack)
        return stack

    yield make
    for stack in made:
        stack.close()
