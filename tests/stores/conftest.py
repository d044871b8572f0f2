from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cachestack.entries import Entry
from cachestack.keys import Partition, digest
from cachestack.stores.disk import DiskStore
from cachestack.stores.memory import MemoryStore
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.store import RedisStore
from tests.redis_server import RedisServer

Store = DiskStore | MemoryStore | RedisStore
MakeEntry = Callable[..., Entry]


@dataclass
class Clock:
    """Stands still until it is told."""

    now_s: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s

    def tick(self, seconds: float = 1.0) -> float:
        self.now_s += seconds
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_entry(clock: Clock) -> MakeEntry:
    """A new entry at each call; keyword arguments replace fields."""
    numbers = itertools.count()

    def make(question: str | None = None, *, tenant: str = "acme", ttl_s: float = 60.0, **fields: Any) -> Entry:
        number = next(numbers)
        question = f"question {number}" if question is None else question
        partition = fields.get("partition", Partition(tenant))
        now = clock()
        entry = Entry(
            entry_id=f"entry-{number}",
            partition=partition,
            contract=digest(b"contract"),
            exact=digest(partition.digest.encode(), question.encode("utf-8", "surrogatepass")),
            question=question,
            answer=f"answer {number}",
            finish_reason="stop",
            prompt_tokens=11,
            completion_tokens=7,
            model="a-model",
            created_at_s=now,
            expires_at_s=now + ttl_s,
            stale_until_s=now + ttl_s,
        )
        return replace(entry, **fields)

    return make


@pytest.fixture(params=["memory", "disk", "redis", "redis in 3 slots"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore(clock)
    elif request.param == "disk":
        made = DiskStore(tmp_path / "entries", clock)
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        num_slots = 3 if "slots" in request.param else 1
        made = RedisStore(Link(server.url), clock, prefix=server.new_prefix(), num_slots=num_slots)
    yield made
    made.close()


@pytest.fixture
def disk(tmp_path: Path, clock: Clock) -> Iterator[DiskStore]:
    made = DiskStore(tmp_path / "entries", clock)
    yield made
    made.close()
