"""The block pool: what is found, shared, leased, evicted and forgotten."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from cachestack.decisions import Reason
from cachestack.engines.base import KVRun
from cachestack.prefix.base import Label, Lease, Published
from cachestack.prefix.pool import BlockPool

SPACE = {"fingerprint": "model-a", "salt": b"tenant-a"}
TOKEN_BYTES = 10


def run(start: int, stop: int, payload: Any = None) -> KVRun:
    return KVRun(payload or f"{start}-{stop}", start, stop - start, TOKEN_BYTES * (stop - start))


def publish(pool: BlockPool, ids: Sequence[int], *edges: int, **options: Any) -> Published:
    """Runs between `edges`; one edge alone is the end of a run from token 0."""
    places = edges if len(edges) > 1 else (0, *edges)
    runs = [run(a, b) for a, b in pairwise(places)]
    report = pool.publish(ids, runs, **(SPACE | options))
    pool.check_integrity()
    return report


def match(pool: BlockPool, ids: Sequence[int], max_tokens: int | None = None, **space: Any) -> Lease | None:
    lease = pool.match(ids, max_tokens=len(ids) - 1 if max_tokens is None else max_tokens, **(SPACE | space))
    pool.check_integrity()
    return lease


def found(pool: BlockPool, ids: Sequence[int], max_tokens: int | None = None, **space: Any) -> list[tuple[Any, int]]:
    """Payloads and used tokens of the longest match, released again."""
    lease = match(pool, ids, max_tokens, **space)
    if lease is None:
        return []
    with lease:
        return [(r.payload, r.num_tokens) for r in lease.runs]


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(max_bytes=10**6, block_size=4)


IDS = tuple(range(100, 140))


def test_nothing_is_found_in_an_empty_pool(pool: BlockPool) -> None:
    assert match(pool, IDS) is None
    assert pool.peek(IDS, max_tokens=39, **SPACE) == 0


@pytest.mark.parametrize("length", [1, 3, 4, 5, 7, 8, 9, 12])
def test_a_hit_ends_exactly_where_the_prefix_was_published(pool: BlockPool, length: int) -> None:
    """Shorter than a block, as long as one, one more, one less."""
    report = publish(pool, IDS, length)
    assert report == Published(Reason.PUBLISHED, num_tokens=length, num_bytes=length * TOKEN_BYTES)
    assert found(pool, IDS) == [(f"0-{length}", length)]
    assert pool.peek(IDS, max_tokens=39, **SPACE) == length


@pytest.mark.parametrize("agreed", range(13))
def test_a_match_ends_where_the_tokens_part_ways(pool: BlockPool, agreed: int) -> None:
    publish(pool, IDS, 12)
    other = (*IDS[:agreed], *(t + 1000 for t in IDS[agreed:]))
    assert found(pool, other) == ([("0-12", agreed)] if agreed else [])


@pytest.mark.parametrize("max_tokens", [0, 1, 3, 4, 5, 8, 11, 12, 13])
def test_a_match_is_never_longer_than_asked(pool: BlockPool, max_tokens: int) -> None:
    publish(pool, IDS, 12)
    expected = min(max_tokens, 12)
    assert found(pool, IDS, max_tokens) == ([("0-12", expected)] if expected else [])


def test_a_prompt_that_is_all_there_leaves_a_token_to_compute(pool: BlockPool) -> None:
    publish(pool, IDS[:12], 12)
    assert found(pool, IDS[:12]) == [("0-12", 11)]
    publish(pool, IDS[:1], 1)
    assert found(pool, IDS[:1]) == []


@pytest.mark.parametrize("edges", [(0, 5, 11), (0, 4, 8), (0, 1, 2, 3, 4, 5), (0, 6, 7, 8, 30)])
def test_a_path_is_leased_run_by_run(pool: BlockPool, edges: tuple[int, ...]) -> None:
    publish(pool, IDS, *edges)
    expected = [(f"{a}-{b}", b - a) for a, b in pairwise(edges)]
    assert found(pool, IDS) == expected
    lease = match(pool, IDS)
    assert lease is not None
    assert [r.start for r in lease.runs] == list(edges[:-1])
    assert lease.num_tokens == edges[-1]


@pytest.mark.parametrize("at", [5, 7, 8, 9, 11])
def test_a_branch_within_a_run_uses_the_run_as_far_as_they_agree(pool: BlockPool, at: int) -> None:
    publish(pool, IDS, 12)
    branch = (*IDS[:at], *range(500, 520))
    publish(pool, branch, at, at + 6)
    assert found(pool, (*branch[: at + 6], 7)) == [("0-12", at), (f"{at}-{at + 6}", 6)]
    assert found(pool, IDS) == [("0-12", 12)]


def test_a_prefix_that_two_prompts_share_is_kept_once(pool: BlockPool) -> None:
    one, other = (*IDS[:10], 1, 2, 3), (*IDS[:10], 4, 5, 6)
    publish(pool, one, 0, 10, 13)
    report = publish(pool, other, 0, 10, 13)
    assert report == Published(Reason.PUBLISHED, num_tokens=3, num_shared_tokens=10, num_bytes=30)
    assert pool.num_bytes == 16 * TOKEN_BYTES
    assert publish(pool, other, 0, 10, 13).num_tokens == 0
    assert pool.sizes().num_segments == 3


def test_what_a_longer_run_holds_is_not_kept_again(pool: BlockPool) -> None:
    publish(pool, IDS, 12)
    assert publish(pool, IDS, 6).num_shared_tokens == 6
    assert pool.sizes().num_segments == 1


def test_tenants_and_models_never_see_each_other(pool: BlockPool) -> None:
    publish(pool, IDS, 12)
    assert found(pool, IDS, salt=b"tenant-b") == []
    assert found(pool, IDS, fingerprint="model-b") == []
    publish(pool, IDS, 12, salt=b"tenant-b")
    assert pool.sizes().num_segments == 2


def test_ids_are_compared_where_hashes_lie() -> None:
    def weak(ids: Sequence[int], size: int, fingerprint: str, salt: bytes) -> Iterator[bytes]:
        """Depends on nothing but the block's number."""
        for block in range(len(ids) // size):
            yield hashlib.sha256(bytes([block])).digest()

    pool = BlockPool(max_bytes=10**6, block_size=4, hasher=weak)
    other = (*IDS[:6], *range(900, 930))
    publish(pool, IDS, 12)
    publish(pool, tuple(range(700, 740)), 9)
    assert found(pool, other) == [("0-12", 6)]
    assert found(pool, tuple(range(700, 740))) == [("0-9", 9)]
    assert found(pool, tuple(range(800, 840))) == []


def test_a_run_that_is_mostly_there_is_refused_and_its_next_request_keeps_the_rest_alone(pool: BlockPool) -> None:
    publish(pool, IDS, 8)
    report = publish(pool, IDS, 15)  # 8 of its 15 tokens are there, and a run cannot begin later
    assert report == Published(Reason.MOSTLY_KEPT, num_refused_tokens=15)
    assert pool.num_bytes == 8 * TOKEN_BYTES
    assert publish(pool, IDS, 8, 15).num_tokens == 7  # what a request computes that found the 8
    assert pool.num_bytes == 15 * TOKEN_BYTES
    other = (*IDS[:7], *range(500, 520))
    assert publish(pool, other, 14).reason is Reason.PUBLISHED  # half of it is new
    assert publish(pool, (*other[:10], *range(700, 710)), 14).reason is Reason.MOSTLY_KEPT


def test_a_run_whose_beginning_is_not_there_is_refused(pool: BlockPool) -> None:
    report = publish(pool, IDS, 4, 8, 12)
    assert report == Published(Reason.PREFIX_GONE, num_refused_tokens=8)
    assert pool.num_bytes == 0


# --- leases


def test_a_lease_ends_once(pool: BlockPool) -> None:
    publish(pool, IDS, 12)
    lease = match(pool, IDS)
    assert lease is not None
    assert pool.sizes().num_leased == 1
    lease.release()
    lease.release()
    pool.check_integrity()
    assert pool.sizes().num_leased == 0


def test_what_is_leased_is_not_evicted(pool: BlockPool) -> None:
    small = BlockPool(max_bytes=12 * TOKEN_BYTES, block_size=4)
    publish(small, IDS, 0, 5, 10)
    other = tuple(range(500, 520))
    lease = match(small, IDS, 5)
    assert lease is not None
    assert publish(small, other, 8).reason is Reason.OVER_BUDGET  # only the leaf, 5 tokens, could go: 7 free
    assert small.sizes().num_evicted == 0  # and so it did not go either
    assert publish(small, other, 7).reason is Reason.PUBLISHED
    assert found(small, IDS) == [("0-5", 5)]
    assert [r.payload for r in lease.runs] == ["0-5"]
    lease.release()
    assert publish(small, other, 0, 7, 12).num_tokens == 5
    assert found(small, IDS) == []


def test_a_failed_reader_gives_its_lease_back(pool: BlockPool) -> None:
    publish(pool, IDS, 12)
    lease = match(pool, IDS)
    assert lease is not None
    with pytest.raises(RuntimeError), lease:
        raise RuntimeError
    assert pool.sizes().num_leased == 0


# --- the budget


def test_the_least_recently_used_leaf_goes_first() -> None:
    pool = BlockPool(max_bytes=30 * TOKEN_BYTES, block_size=4)
    prompts = [tuple(range(n, n + 20)) for n in (0, 100, 200)]
    for ids in prompts:
        publish(pool, ids, 10)
    found(pool, prompts[0])  # used
    publish(pool, tuple(range(300, 320)), 10)
    assert [bool(found(pool, ids)) for ids in prompts] == [True, False, True]


def test_a_peek_is_not_a_use() -> None:
    pool = BlockPool(max_bytes=20 * TOKEN_BYTES, block_size=4)
    publish(pool, IDS, 10)
    publish(pool, tuple(range(20)), 10)
    assert pool.peek(IDS, max_tokens=20, **SPACE) == 10
    publish(pool, tuple(range(500, 520)), 10)
    assert found(pool, IDS) == []


def test_a_parent_never_goes_before_its_children() -> None:
    pool = BlockPool(max_bytes=25 * TOKEN_BYTES, block_size=4)
    publish(pool, IDS, 0, 10, 20)
    publish(pool, tuple(range(500, 520)), 10)
    assert found(pool, IDS) == [("0-10", 10)]
    publish(pool, tuple(range(600, 620)), 10)
    assert pool.num_bytes <= 25 * TOKEN_BYTES


def test_what_is_larger_than_the_budget_is_not_kept_and_evicts_nothing() -> None:
    pool = BlockPool(max_bytes=15 * TOKEN_BYTES, block_size=4)
    publish(pool, IDS, 10)
    report = publish(pool, tuple(range(500, 540)), 0, 16, 20)
    assert report == Published(Reason.OVER_BUDGET, num_refused_tokens=20)
    assert found(pool, IDS) == [("0-10", 10)]


def test_what_still_fits_of_several_runs_is_kept() -> None:
    pool = BlockPool(max_bytes=15 * TOKEN_BYTES, block_size=4)
    report = publish(pool, IDS, 0, 10, 20, 22)
    assert report == Published(Reason.OVER_BUDGET, num_tokens=10, num_refused_tokens=12, num_bytes=100)
    assert found(pool, IDS) == [("0-10", 10)]  # it was not evicted for its own continuation


def test_a_budget_of_nothing_keeps_nothing() -> None:
    pool = BlockPool(max_bytes=0)
    assert publish(pool, IDS, 10).reason is Reason.OVER_BUDGET
    assert match(pool, IDS) is None


def test_under_memory_pressure_a_policy_may_skip_instead_of_evicting() -> None:
    pool = BlockPool(max_bytes=15 * TOKEN_BYTES, block_size=4)
    publish(pool, IDS, 10)
    other = tuple(range(500, 540))
    assert publish(pool, other, 6, memory_pressure="skip").reason is Reason.OVER_BUDGET
    assert publish(pool, other, 5, memory_pressure="skip").reason is Reason.PUBLISHED
    assert found(pool, IDS) == [("0-10", 10)]


def test_a_tenant_s_own_limit_evicts_its_own_only() -> None:
    pool = BlockPool(max_bytes=100 * TOKEN_BYTES, block_size=4)
    one, other = {"label": Label("one"), "salt": b"1"}, {"label": Label("other"), "salt": b"2"}
    publish(pool, IDS, 20, **other)
    prompts = [tuple(range(n, n + 20)) for n in (0, 300, 600)]
    for ids in prompts:
        publish(pool, ids, 10, max_label_bytes=25 * TOKEN_BYTES, **one)
    assert [bool(found(pool, ids, salt=b"1")) for ids in prompts] == [False, True, True]
    assert found(pool, IDS, salt=b"2") == [("0-20", 20)]
    report = publish(pool, tuple(range(900, 940)), 26, max_label_bytes=25 * TOKEN_BYTES, **one)
    assert report.reason is Reason.OVER_BUDGET
    assert [bool(found(pool, ids, salt=b"1")) for ids in prompts] == [False, True, True]


def test_an_evicted_segment_holds_no_memory_even_where_something_still_refers_to_it() -> None:
    class Payload:
        pass

    pool = BlockPool(max_bytes=10 * TOKEN_BYTES, block_size=4)
    payload = Payload()
    gone = weakref.ref(payload)
    pool.publish(IDS, [KVRun(payload, 0, 10, 100)], **SPACE)
    segments = list(pool._segments)
    del payload
    publish(pool, tuple(range(500, 540)), 10)
    assert segments[0].is_removed
    assert gone() is None


def test_both_limits_hold_at_once() -> None:
    pool = BlockPool(max_bytes=30 * TOKEN_BYTES, block_size=4)
    one, other = {"label": Label("one"), "salt": b"1"}, {"label": Label("other"), "salt": b"2"}
    publish(pool, IDS, 10, **one)
    publish(pool, IDS, 20, **other)
    report = publish(pool, tuple(range(40)), 15, max_label_bytes=15 * TOKEN_BYTES, **one)
    assert report.reason is Reason.PUBLISHED  # the own 10 went for the own limit, the other's 20 for the pool's
    assert pool.num_bytes == 15 * TOKEN_BYTES


# --- forgetting and showing


def test_a_tenant_is_forgotten_while_it_is_being_read() -> None:
    pool = BlockPool(max_bytes=20 * TOKEN_BYTES, block_size=4)
    publish(pool, IDS, 0, 6, 10, label=Label("gone"))
    publish(pool, IDS, 5, label=Label("stays"), salt=b"other")
    lease = match(pool, IDS)
    assert lease is not None
    assert pool.invalidate("gone") == 2
    pool.check_integrity()
    assert match(pool, IDS) is None
    assert [r.payload for r in lease.runs] == ["0-6", "6-10"]
    assert pool.num_bytes == 15 * TOKEN_BYTES  # the reader still holds the memory, so it still counts
    assert publish(pool, tuple(range(20)), 11).reason is Reason.OVER_BUDGET
    assert publish(pool, IDS, 10, 12).reason is Reason.PREFIX_GONE
    lease.release()
    pool.check_integrity()
    assert pool.num_bytes == 5 * TOKEN_BYTES
    assert found(pool, IDS, salt=b"other") == [("0-5", 5)]
    assert pool.invalidate("gone") == 0


def test_sizes_are_by_model_dtype_and_tenant(pool: BlockPool) -> None:
    publish(pool, IDS, 0, 10, 14, label=Label("t1", "m1", "float32"))
    publish(pool, IDS, 6, label=Label("t2", "m1", "bfloat16"), salt=b"2", fingerprint="other")
    sizes = pool.sizes()
    shown = [(g.tenant, g.model, g.dtype, g.num_segments, g.num_tokens, g.num_bytes) for g in sizes.groups]
    assert shown == [("t2", "m1", "bfloat16", 1, 6, 60), ("t1", "m1", "float32", 2, 14, 140)]
    assert (sizes.num_segments, sizes.num_tokens, sizes.num_bytes, sizes.max_bytes) == (3, 20, 200, 10**6)


def test_integrity_is_checked_for_real(pool: BlockPool) -> None:
    publish(pool, IDS, 0, 10, 14)
    pool._budget.num_bytes += 1
    with pytest.raises(AssertionError, match="141 bytes counted, 140 held"):
        pool.check_integrity()
    pool._budget.num_bytes -= 1
    root, leaf = pool._segments
    leaf.num_readers = 1
    with pytest.raises(AssertionError, match="readers miscounted"):
        pool.check_integrity()
    leaf.num_readers = 0
    leaf.num_pins = 1
    with pytest.raises(AssertionError, match="pins miscounted"):
        pool.check_integrity()
    leaf.num_pins = 0
    leaf.principals.add("ann", 14)
    root.principals.own_reach = 0
    root.principals.add("ben", 10)
    with pytest.raises(AssertionError, match="a principal of a child only"):
        pool.check_integrity()
    root.principals.add(None, 10)
    pool._budget._all.touch(leaf)
    pool._budget._all._leaves.pop(leaf)
    with pytest.raises(AssertionError, match="what goes next"):
        pool.check_integrity()
    pool._budget.update(leaf)
    pool.check_integrity()
    pool._index.remove(leaf)
    with pytest.raises(AssertionError, match="index of"):
        pool.check_integrity()


def test_a_path_may_have_more_segments_than_python_has_frames() -> None:
    pool = BlockPool(max_bytes=10**6)
    ids = tuple(range(1200))
    for i in range(len(ids)):
        pool.publish(ids[: i + 1], [run(i, i + 1)], **SPACE)
    assert pool.peek(ids, max_tokens=1200, **SPACE) == 1200
    assert pool.invalidate("") == 1200
    pool.check_integrity()


def test_looking_up_a_long_prompt_walks_blocks_not_segments() -> None:
    pool = BlockPool(max_bytes=10**9)
    ids = tuple(range(2000))
    publish(pool, ids, 1990)
    calls: list[int] = []

    def counting(ids: Sequence[int], size: int, fingerprint: str, salt: bytes) -> Iterator[bytes]:
        from cachestack.keys import block_hashes

        for block_hash in block_hashes(ids, size, fingerprint, salt):
            calls.append(1)
            yield block_hash

    pool._index._hasher = counting
    other = (*ids[:33], *range(5000, 6000))
    assert found(pool, other, salt=b"tenant-a") == [("0-1990", 33)]
    assert len(calls) < 2000  # check_integrity hashes too
    calls.clear()
    assert pool.peek(other, max_tokens=1000, **SPACE) == 33
    assert len(calls) == 3  # two blocks that are there, and the first that is not


def test_a_run_that_is_used_in_part_counts_the_bytes_of_that_part(pool: BlockPool) -> None:
    publish(pool, IDS[:20], 20)
    lease = match(pool, IDS, max_tokens=13)
    assert lease is not None
    with lease:
        assert [(r.num_tokens, r.num_bytes) for r in lease.runs] == [(13, 13 * TOKEN_BYTES)]


def test_prefixes_are_shown_by_what_they_save_and_never_by_what_they_say() -> None:
    now_s = 100.0
    pool = BlockPool(max_bytes=10**6, block_size=4, clock=lambda: now_s)
    options: dict[str, Any] = {"label": Label("t", "m", "float32"), "cost": lambda a, b: (b - a) / 1000, "user": "ann"}
    publish(pool, (*IDS[:10], 1, 2, 3), 0, 10, 13, **options)
    publish(pool, (*IDS[:10], 4, 5, 6), 0, 10, 13, **options)
    publish(pool, tuple(range(500, 530)), 25, **options)
    for user in ("ann", "ben"):
        lease = pool.match(IDS[:10], max_tokens=10, user=user, **SPACE)
        assert lease is not None
        lease.release()
    now_s = 130.0
    used, root = pool.sizes().prefixes  # leaves that nobody has used are not shown
    assert (used.tenant, used.model, used.num_tokens, used.num_own_tokens) == ("t", "m", 10, 10)
    assert (used.num_bytes, used.num_uses, used.idle_s, used.num_users) == (100, 2, 30.0, 2)
    assert used.saved_s == pytest.approx(0.01)
    assert (root.num_tokens, root.num_uses, root.is_leased) == (25, 0, False)
    reading = match(pool, (*IDS[:10], 4, 5, 6), 12)
    assert reading is not None
    with reading:
        leaf = next(p for p in pool.sizes().prefixes if p.num_tokens == 13)
    assert (leaf.num_own_tokens, leaf.num_bytes, leaf.is_leased, leaf.num_users) == (3, 130, True, None)
    assert str(IDS[5]) not in str(pool.sizes().prefixes)
