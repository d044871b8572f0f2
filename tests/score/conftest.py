"""Stacks without a semantic layer over tiny random models, and what the tests of `classify` use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.prefix.rows import LogitRows
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores.disk import DiskStore
from tests.classify.conftest import (
    engine,
    make_engine,
    make_model,
    make_tokenizer,
    one_thread,
    passes,
    system,
    tokenizer,
)

__all__ = ["engine", "make_engine", "make_model", "make_tokenizer", "one_thread", "passes", "system", "tokenizer"]


def until(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Returns when a condition holds that another thread brings about and has no event of its own for."""
    deadline_s, pause = time.monotonic() + timeout_s, threading.Event()
    while not is_so():
        assert time.monotonic() < deadline_s, "what was waited for did not come"
        pause.wait(0.0005)


@pytest.fixture
def make_stack(tmp_path: Path, engine: Any) -> Iterator[Callable[..., CacheStack]]:
    made: list[CacheStack] = []

    def make(policies: str = "", *, row_bytes: int = 1_000_000, engine: Any = engine) -> CacheStack:
        stack = CacheStack(
            engines={"local": engine},
            store=DiskStore(tmp_path / f"entries-{len(made)}", lambda: 1_000_000.0),
            index=None,
            encoder=None,
            prefix=PrefixLayer(BlockPool(max_bytes=64 * 1024 * 1024), secret=b"test"),
            rows=LogitRows(row_bytes, secret=b"test") if row_bytes else None,
            policies=PolicySet.parse(policies, "test policy"),
            stats=Stats(),
        )
        made.append(stack)
        return stack

    yield make
    for stack in made:
        stack.close()


@pytest.fixture
def stack(make_stack: Callable[..., CacheStack]) -> CacheStack:
    return make_stack()
