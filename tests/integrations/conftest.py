"""A stack on a folder of its own, with the real encoder; and one whose engine is a function."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Generation, Request, Usage
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.index import FaissIndex
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores.disk import DiskStore

MakeStack = Callable[..., CacheStack]


@dataclass
class Echo:
    """A TextEngine that answers the same questions alike and remembers what it was asked."""

    name: str = "echo"
    model: str = "echo-1"
    asked: list[Request] = field(default_factory=list)

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.asked.append(request)
        words = f"You said: {request.question}".split(" ")
        for i, word in enumerate(words):
            yield word if i == 0 else f" {word}"
        return Generation(" ".join(words), usage=Usage(7, 0, len(words)))


@pytest.fixture(scope="session")
def encoder(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def make_stack(tmp_path: Path, encoder: SentenceEncoder, echo: Echo) -> Iterator[MakeStack]:
    made: list[CacheStack] = []

    def make(policies: str = "", *, clock: Callable[[], float] = time.time) -> CacheStack:
        store = DiskStore(tmp_path / "entries", clock)
        stack = CacheStack(
            engines={"echo": echo},
            store=store,
            index=FaissIndex(store),
            encoder=encoder,
            prefix=PrefixLayer(BlockPool(max_bytes=1024 * 1024), secret=b"test"),
            policies=PolicySet.parse(policies, "test policy"),
            stats=Stats(),
            clock=clock,
        )
        made.append(stack)
        return stack

    yield make
    for stack in made:
        stack.close()


@pytest.fixture
def stack(make_stack: MakeStack) -> CacheStack:
    return make_stack()
