"""Pins: what they keep, for how long, how much, and what ends them."""

from __future__ import annotations

from typing import Any

import pytest

from cachestack.decisions import Reason
from cachestack.engines.base import KVRun
from cachestack.prefix.base import Label, Pinned
from cachestack.prefix.pool import BlockPool

IDS = tuple(range(100, 200))
SPACE: dict[str, Any] = {"fingerprint": "m", "salt": b"s"}


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> BlockPool:
    return BlockPool(100, block_size=4, clock=clock)


def publish(pool: BlockPool, ids: tuple[int, ...], *stops: int, **options: Any) -> Reason:
    at, runs = 0, []
    for stop in stops:
        runs.append(KVRun("kv", at, stop - at, stop - at))
        at = stop
    report = pool.publish(ids, runs, **(SPACE | options))
    pool.check_integrity()
    return report.reason


def pin(pool: BlockPool, ids: tuple[int, ...], num_tokens: int, for_s: float = 60, **options: Any) -> Pinned:
    lease = pool.match(ids, max_tokens=num_tokens, **SPACE)
    assert lease is not None
    assert lease.num_tokens == num_tokens
    with lease:
        pinned = pool.pin(lease, for_s=for_s, **options)
    pool.check_integrity()
    return pinned


def unpin(pool: BlockPool, ids: tuple[int, ...], num_tokens: int) -> bool:
    lease = pool.match(ids, max_tokens=num_tokens, **SPACE)
    assert lease is not None
    with lease:
        done = pool.unpin(lease)
    pool.check_integrity()
    return done


def fill(pool: BlockPool, first: int, num_tokens: int = 20) -> Reason:
    return publish(pool, tuple(range(first, first + num_tokens)), num_tokens)


def has(pool: BlockPool, ids: tuple[int, ...]) -> int:
    return pool.peek(ids, max_tokens=len(ids), **SPACE)


@pytest.mark.parametrize("eviction", ["value", "lru"])
def test_a_pinned_path_is_not_evicted_until_its_time_is_over(pool: BlockPool, clock: Clock, eviction: str) -> None:
    publish(pool, IDS, 20, 40)
    assert pin(pool, IDS, 40) == Pinned(Reason.PINNED, 40, for_s=60)
    for n in range(10):
        assert publish(pool, tuple(range(1000 * n, 1000 * n + 30)), 30, eviction=eviction) is Reason.PUBLISHED
    assert has(pool, IDS) == 40
    assert fill(pool, 50_000, 61) is Reason.OVER_BUDGET
    clock.now_s += 60
    assert publish(pool, tuple(range(90_000, 90_090)), 90, eviction=eviction) is Reason.PUBLISHED
    assert has(pool, IDS) == 0
    assert pool.sizes().num_pinned_bytes == 0


def test_all_pins_together_hold_at_most_half_of_the_pool(pool: BlockPool) -> None:
    publish(pool, IDS, 40)
    other = tuple(range(500, 600))
    publish(pool, other, 11)
    assert pin(pool, IDS, 40).reason is Reason.PINNED
    assert pin(pool, other, 11) == Pinned(Reason.PIN_OVER_BUDGET, 11, 50)
    assert unpin(pool, IDS, 40)
    assert pin(pool, other, 11).reason is Reason.PINNED


def test_a_tenant_s_own_cap_counts_only_what_it_pins(pool: BlockPool) -> None:
    publish(pool, IDS, 20, 30, label=Label("t"))
    assert pin(pool, IDS, 30, max_label_bytes=29) == Pinned(Reason.PIN_OVER_BUDGET, 30, 29)
    assert pin(pool, IDS, 20, max_label_bytes=29).reason is Reason.PINNED
    assert pin(pool, IDS, 30, max_label_bytes=29) == Pinned(Reason.PIN_OVER_BUDGET, 30, 29)
    assert pin(pool, IDS, 30, max_label_bytes=30).reason is Reason.PINNED  # 20 of them are pinned already
    assert pool.sizes().num_pinned_bytes == 30


def test_a_second_pin_prolongs_the_first_and_never_shortens_it(pool: BlockPool, clock: Clock) -> None:
    publish(pool, IDS, 20)
    pin(pool, IDS, 20, for_s=60)
    assert pin(pool, IDS, 20, for_s=10).for_s == 60
    assert pin(pool, IDS, 20, for_s=100).for_s == 100
    clock.now_s += 99
    (prefix,) = pool.sizes().prefixes
    assert prefix.pinned_for_s == 1
    clock.now_s += 1
    assert pool.sizes().num_pinned_bytes == 0
    pool.check_integrity()


def test_paths_that_share_a_beginning_are_pinned_and_let_go_apart(pool: BlockPool, clock: Clock) -> None:
    one, other = (*IDS[:20], *range(300, 310)), (*IDS[:20], *range(400, 410))
    publish(pool, one, 20, 30)
    publish(pool, other, 20, 30)
    pin(pool, one, 30, for_s=10)
    pin(pool, other, 30, for_s=20)
    assert pool.sizes().num_pinned_bytes == 40
    clock.now_s += 10
    assert pool.sizes().num_pinned_bytes == 30
    assert not unpin(pool, one, 30)
    assert not unpin(pool, IDS, 20), "the beginning has no pin of its own"
    assert unpin(pool, other, 30)
    assert pool.sizes().num_pinned_bytes == 0


def test_an_invalidation_beats_a_pin(pool: BlockPool) -> None:
    publish(pool, IDS, 20, 30, label=Label("t"), user="ann")
    lease = pool.match(IDS, max_tokens=30, user="ann", **SPACE)
    assert lease is not None
    assert pool.pin(lease, for_s=60).reason is Reason.PINNED
    assert pool.invalidate("t", user="ann") == 2
    assert pool.pin(lease, for_s=60).reason is Reason.PREFIX_GONE
    lease.release()
    pool.check_integrity()
    assert (pool.num_bytes, pool.sizes().num_pinned_bytes) == (0, 0)


def test_a_pinned_segment_can_be_leased_and_continued(pool: BlockPool, clock: Clock) -> None:
    publish(pool, IDS, 20)
    pin(pool, IDS, 20)
    publish(pool, IDS, 20, 30)
    lease = pool.match(IDS, max_tokens=30, **SPACE)
    assert lease is not None
    clock.now_s += 60
    assert fill(pool, 1000, 80) is Reason.OVER_BUDGET  # leased still
    lease.release()
    assert fill(pool, 1000, 80) is Reason.PUBLISHED


def test_pinning_again_and_again_leaves_nothing_behind(pool: BlockPool, clock: Clock) -> None:
    publish(pool, IDS, 20)
    for _ in range(200):
        clock.now_s += 1
        pin(pool, IDS, 20)
        assert len(pool._pins._expiry) < 70
    for _ in range(200):
        pin(pool, IDS, 20)
        unpin(pool, IDS, 20)
    assert len(pool._pins._expiry) < 70
