"""Which segment goes first, by value and by last use, and what that saves."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cachestack.engines.base import KVRun
from cachestack.prefix import eviction
from cachestack.prefix.base import Eviction
from cachestack.prefix.pool import BlockPool
from tests.prefix import workloads
from tests.prefix.workloads import Turn, cost, replay

SPACE: dict[str, Any] = {"fingerprint": "m", "salt": b"s"}


def put(pool: BlockPool, first: int, num_tokens: int, num_bytes: int = 100, order: Eviction = "value") -> None:
    ids = (first, *range(1, num_tokens))
    pool.publish(ids, [KVRun("kv", 0, num_tokens, num_bytes)], cost=cost, eviction=order, **SPACE)
    pool.check_integrity()


def use(pool: BlockPool, first: int, num_tokens: int) -> bool:
    lease = pool.match((first, *range(1, num_tokens)), max_tokens=num_tokens, **SPACE)
    if lease is not None:
        lease.release()
    return lease is not None


def kept(pool: BlockPool) -> set[int]:
    return {n for n in range(1000, 1010) if pool.peek((n,), max_tokens=1, **SPACE)}


def test_what_saves_the_fewest_seconds_a_byte_goes_first() -> None:
    pool = BlockPool(300)
    for n, num_tokens in ((1000, 90), (1001, 30), (1002, 60)):  # all of 100 bytes
        put(pool, n, num_tokens)
    put(pool, 1003, 50)
    assert kept(pool) == {1000, 1002, 1003}
    put(pool, 1004, 80, order="lru")
    assert kept(pool) == {1002, 1003, 1004}


def test_what_is_used_outlives_what_would_save_more_at_once() -> None:
    pool = BlockPool(200)
    put(pool, 1000, 30)
    put(pool, 1001, 40)
    for _ in range(3):
        assert use(pool, 1000, 30)
    put(pool, 1002, 40)
    assert kept(pool) == {1000, 1002}


def test_what_is_never_used_again_ages_however_dear_it_was() -> None:
    pool = BlockPool(200)
    put(pool, 1000, 900)
    for n in range(60):
        put(pool, 2000 + n, 90)
    assert kept(pool) == set()


def test_later_tokens_are_worth_more_than_as_many_early_ones() -> None:
    pool = BlockPool(1000)
    ids = tuple(range(5000, 9000))
    pool.publish(
        ids, [KVRun("a", 0, 100, 100), KVRun("b", 100, 3800, 300), KVRun("c", 3900, 100, 100)], cost=cost, **SPACE
    )
    put(pool, 1000, 100)
    put(pool, 1001, 100, 500)
    assert kept(pool) == {1001}, "the late hundred stay, the early hundred go"


def test_segments_of_unknown_cost_go_by_tokens() -> None:
    pool = BlockPool(200)
    for n, num_tokens in ((1000, 60), (1001, 30), (1002, 40)):
        ids = (n, *range(1, num_tokens))
        pool.publish(ids, [KVRun("kv", 0, num_tokens, 100)], **SPACE)
    assert kept(pool) == {1000, 1002}


@pytest.mark.parametrize(
    ("turns", "max_tokens", "gain"),
    [
        (lambda: workloads.zipf(1, num_prefixes=40, num_turns=500, one_off_share=0.3), 2500, 1.05),
        (lambda: workloads.zipf(2, num_prefixes=40, num_turns=500, one_off_share=0.8), 5000, 1.1),
        (lambda: workloads.shifting(1, num_turns=600), 3000, 1.0),
        (lambda: workloads.scan(1, num_turns=200), 12000, 1.0),
        (lambda: workloads.conversations(1, num_turns=400), 3000, 0.97),  # LRU's own ground
    ],
)
def test_value_saves_at_least_what_lru_saves(turns: Callable[[], Iterator[Turn]], max_tokens: int, gain: float) -> None:
    by_value, _ = replay(turns(), "value", max_tokens)
    by_use, _ = replay(turns(), "lru", max_tokens)
    assert by_value >= gain * by_use


def test_evicting_looks_at_few_segments_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BlockPool(3000 * 100)
    for n in range(3000):
        pool.publish((n, *range(1, 20)), [KVRun("kv", 0, 20, 100)], cost=cost, **SPACE)
    popped = 0

    def counted(heap: list[Any]) -> Any:
        nonlocal popped
        popped += 1
        return heappop(heap)

    heappop = heapq.heappop
    monkeypatch.setattr(eviction.heapq, "heappop", counted)
    monkeypatch.setattr(eviction.heapq, "heapify", lambda heap: pytest.fail("all segments were looked at"))
    for n in range(3000, 3050):
        pool.publish((n, *range(1, 20)), [KVRun("kv", 0, 20, 100)], cost=cost, **SPACE)
    assert 0 < popped <= 200
    monkeypatch.undo()
    assert pool.sizes().num_evicted == 50
