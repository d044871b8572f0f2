"""Whose requests a segment is of, and what is left when one of them is removed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from cachestack.engines.base import KVRun
from cachestack.prefix.base import Label
from cachestack.prefix.pool import BlockPool

IDS = tuple(range(100, 200))
SPACE: dict[str, Any] = {"fingerprint": "m", "salt": b"s"}


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(10**6, block_size=4)


def publish(pool: BlockPool, ids: tuple[int, ...], *edges: int, user: str | None = None, tenant: str = "t") -> None:
    runs = [KVRun("kv", a, b - a, b - a) for a, b in pairwise(edges)]
    pool.publish(ids, runs, user=user, label=Label(tenant), **(SPACE | {"salt": tenant.encode()}))
    pool.check_integrity()


def use(pool: BlockPool, ids: tuple[int, ...], num_tokens: int, user: str | None) -> int:
    lease = pool.match(ids, max_tokens=num_tokens, user=user, **(SPACE | {"salt": b"t"}))
    assert lease is not None
    lease.release()
    pool.check_integrity()
    return lease.num_tokens


def forget(pool: BlockPool, user: str, tenant: str | None = "t") -> int:
    num_gone = pool.invalidate(tenant, user=user)
    pool.check_integrity()
    return num_gone


def has(pool: BlockPool, ids: tuple[int, ...], tenant: str = "t") -> int:
    return pool.peek(ids, max_tokens=len(ids), **(SPACE | {"salt": tenant.encode()}))


def test_what_only_one_user_has_goes_and_what_is_shared_stays(pool: BlockPool) -> None:
    ann, ben = (*IDS[:20], *range(300, 320)), (*IDS[:20], *range(400, 420))
    publish(pool, ann, 0, 20, 40, user="ann")
    publish(pool, ben, 0, 20, 40, user="ben")
    assert forget(pool, "ann") == 1
    assert (has(pool, ann), has(pool, ben)) == (20, 40)
    assert forget(pool, "ann") == 0
    assert forget(pool, "ben") == 2
    assert pool.num_bytes == 0


def test_a_request_without_a_user_makes_it_the_tenant_s_own(pool: BlockPool) -> None:
    publish(pool, IDS, 0, 20, 40, user="ann")
    use(pool, IDS, 20, None)
    assert forget(pool, "ann") == 1
    assert has(pool, IDS) == 20
    assert pool.invalidate("t") == 1


def test_who_matched_it_has_it_too_as_far_as_the_match_went(pool: BlockPool) -> None:
    publish(pool, IDS, 0, 20, 40, user="ann")
    assert use(pool, (*IDS[:30], 1, 2), 32, "ben") == 30
    assert forget(pool, "ann") == 0
    assert has(pool, IDS) == 30, "the last ten tokens were only ann's"
    assert pool.num_bytes == 40, "their memory goes with the rest of the run"
    publish(pool, IDS, 0, 20, 30, 50, user="ben")
    assert has(pool, IDS) == 50
    assert forget(pool, "ben") == 3
    assert pool.num_bytes == 0


def test_a_branch_within_a_run_keeps_what_it_continues(pool: BlockPool) -> None:
    publish(pool, IDS, 0, 40, user="ann")
    ben = (*IDS[:25], *range(500, 540))
    use(pool, ben, 25, "ben")
    publish(pool, ben, 25, 45, user="ben")
    assert forget(pool, "ann") == 0
    assert (has(pool, IDS), has(pool, ben)) == (25, 45)


def test_users_of_one_name_in_two_tenants_are_two(pool: BlockPool) -> None:
    publish(pool, IDS, 0, 20, user="ann")
    publish(pool, IDS, 0, 20, user="ann", tenant="u")
    assert forget(pool, "ann", "t") == 1
    assert has(pool, IDS, "u") == 20
    publish(pool, IDS, 0, 20, user="ann")
    assert forget(pool, "ann", None) == 2


def test_with_many_users_no_name_is_kept(pool: BlockPool) -> None:
    publish(pool, IDS, 0, 20, user="user 0")
    for n in range(1, 64):
        use(pool, IDS, 20, f"user {n}")
    assert pool.sizes().prefixes[0].num_users == 64
    use(pool, IDS, 20, "user 64")
    assert pool.sizes().prefixes[0].num_users is None
    (segment,) = pool._segments
    assert segment.principals.reach == {}
    for n in range(65):
        forget(pool, f"user {n}")
    assert has(pool, IDS) == 20


def test_an_open_lease_stays_readable_when_its_user_is_removed(pool: BlockPool) -> None:
    publish(pool, IDS, 0, 20, 40, user="ann")
    lease = pool.match(IDS, max_tokens=40, user="ann", **(SPACE | {"salt": b"t"}))
    assert lease is not None
    assert forget(pool, "ann") == 2
    assert [run.payload for run in lease.runs] == ["kv", "kv"]
    assert pool.num_bytes == 40
    lease.release()
    pool.check_integrity()
    assert pool.num_bytes == 0


def test_many_invalidations_are_remembered_in_bounded_space(pool: BlockPool) -> None:
    before = pool.moment
    for n in range(2000):
        pool.invalidate("t", user=f"user {n}")
    assert len(pool._invalidations._last) <= 1024
    runs = [KVRun("kv", 0, 20, 20)]
    report = pool.publish(IDS, runs, user="user 0", label=Label("t"), since=before, **SPACE)
    assert report.num_refused_tokens == 20, "forgotten is no excuse"
    assert "user" not in "".join(pool._invalidations._last)
