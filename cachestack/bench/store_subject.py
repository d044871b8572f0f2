"""The stores that `cachestack bench store` compares, each opened as the product opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachestack.semantic.base import Index
from cachestack.semantic.index import FaissIndex
from cachestack.stores.disk import DiskStore
from cachestack.stores.memory import MemoryStore

PREFIX = "cachestack-bench:"
"""Of all keys that the benchmark makes in a Redis."""
NAMES = ("memory", "disk", "redis", "redis + memory")
SHARED = ("disk", "redis", "redis + memory")
"""Those that several processes can open at once."""


@dataclass(frozen=True, slots=True)
class Subject:
    """`num_trips` gives the commands or pipelines that were sent to a server so far; 0 where there is none."""

    name: str
    store: Any
    index: Index
    num_trips: Callable[[], int]


@contextmanager
def opened(name: str, folder: Path, redis_url: str | None) -> Iterator[Subject]:
    if name.startswith("redis"):
        from cachestack.semantic.redis_index import RedisIndex
        from cachestack.stores.redis.link import Link
        from cachestack.stores.redis.store import RedisStore
        from cachestack.stores.tiered import TieredStore

        assert redis_url is not None, "a Redis store needs a server"
        link = Link(redis_url, deadline_s=30.0)
        shared = RedisStore(link, prefix=PREFIX)
        subject = Subject(
            name, shared if name == "redis" else TieredStore(shared), RedisIndex(shared), lambda: link.num_trips
        )
    else:
        store = MemoryStore() if name == "memory" else DiskStore(folder / "entries")
        subject = Subject(name, store, FaissIndex(store, max_bytes=2**40), lambda: 0)
    try:
        yield subject
    finally:
        close = getattr(subject.index, "close", None)
        if close is not None:
            close()
        subject.store.close()
