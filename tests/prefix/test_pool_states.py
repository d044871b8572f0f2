"""The pool against a naive model, after every step of random histories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from cachestack.decisions import Reason
from cachestack.engines.base import KVRun
from cachestack.prefix.base import Label, Lease
from cachestack.prefix.pool import BlockPool

BLOCK = 4
MAX_BYTES = 36
TENANTS = ("one", "two")
USERS = ("ann", "ben", None)
# Few tokens and few lengths, so that prompts share beginnings and end at, before and after block edges.
prompts = st.lists(st.integers(0, 1), min_size=2, max_size=14).map(tuple)
tenants = st.sampled_from(TENANTS)
users = st.sampled_from(USERS)
Ids = tuple[int, ...]


def cost(start: int, stop: int) -> float:
    return (stop - start) + 0.1 * (stop * stop - start * start)


class PoolMachine(RuleBasedStateMachine):
    """A payload is the tuple of all token ids up to the run's end, so that a wrong one shows.

    The naive model is `published`: for each tenant and user all beginnings that this user's requests published or
    matched, since the user or the tenant was last forgotten. Nothing else may be found.
    """

    leases = Bundle("leases")
    has_limits = True

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.pool = self.new_pool()
        self.published: dict[tuple[str, str | None], set[Ids]] = {(t, u): set() for t in TENANTS for u in USERS}
        self.open: list[Lease] = []
        self.pins: dict[tuple[str, Ids], float] = {}

    def new_pool(self) -> BlockPool:
        return BlockPool(MAX_BYTES, BLOCK, clock=lambda: self.now_s)

    def space(self, tenant: str) -> dict[str, Any]:
        return {"fingerprint": "model", "salt": tenant.encode()}

    @rule(
        target=leases,
        tenant=tenants,
        user=users,
        ids=prompts,
        fractions=st.lists(st.floats(0, 1), max_size=2),
        limit=st.none() | st.none() | st.integers(0, 40),
        pressure=st.sampled_from(["evict", "evict", "skip"]),
        eviction=st.sampled_from(["value", "lru"]),
        keeps_lease=st.booleans(),
        fate=st.sampled_from(["ends", "ends", "ends", "is cancelled", "was cold when it began"]),
    )
    def serve(
        self,
        tenant: str,
        user: str | None,
        ids: Ids,
        fractions: Sequence[float],
        limit: int | None,
        pressure: str,
        eviction: str,
        keeps_lease: bool,
        fate: str,
    ) -> object:
        """A request as the layer makes it: match, compute the rest in some runs, publish, release.

        One that was cold when it began computes all again: another has published meanwhile.
        """
        limit = limit if self.has_limits else None
        lease = None
        if fate != "was cold when it began":
            lease = self.pool.match(ids, max_tokens=len(ids) - 1, user=user, **self.space(tenant))
        matched = 0 if lease is None else lease.num_tokens
        assert matched <= self.longest_ever(tenant, ids[:-1]), "matched what was never published, or was forgotten"
        if lease is not None:
            self.check(lease, ids)
            self.published[tenant, user].add(ids[:matched])
        if fate != "is cancelled":
            self.publish(tenant, user, ids, matched, fractions, limit, pressure, eviction)
        if lease is None:
            return multiple()
        if keeps_lease:
            self.open.append(lease)
            return lease
        lease.release()
        return multiple()

    def publish(
        self,
        tenant: str,
        user: str | None,
        ids: Ids,
        matched: int,
        fractions: Sequence[float],
        limit: int | None,
        pressure: str,
        eviction: str,
    ) -> None:
        edges = sorted({matched, len(ids), *(matched + int(f * (len(ids) - matched)) for f in fractions)})
        runs = [KVRun(ids[:b], a, b - a, b - a) for a, b in pairwise(edges)]
        found_before = self.pool.peek(ids, max_tokens=len(ids), **self.space(tenant))
        before = self.pool.sizes()
        report = self.pool.publish(
            ids,
            runs,
            label=Label(tenant),
            user=user,
            cost=cost,
            max_label_bytes=limit,
            memory_pressure=pressure,  # type: ignore[arg-type]
            eviction=eviction,  # type: ignore[arg-type]
            since=self.pool.moment,
            **self.space(tenant),
        )
        after = self.pool.sizes()
        total = report.num_tokens + report.num_shared_tokens + report.num_refused_tokens
        assert total == len(ids) - matched
        assert (report.reason in (Reason.OVER_BUDGET, Reason.MOSTLY_KEPT)) == (report.num_refused_tokens > 0)
        assert report.num_bytes == report.num_tokens
        if pressure == "skip":
            assert after.num_evicted == before.num_evicted
            assert after.num_bytes == before.num_bytes + report.num_bytes
        # Stored once: of each run that came new, at most half was there already.
        assert report.num_tokens <= 2 * max(0, len(ids) - max(matched, found_before))
        kept = matched + report.num_tokens + report.num_shared_tokens
        self.published[tenant, user].add(ids[:kept])
        if report.reason is Reason.MOSTLY_KEPT:
            self.published[tenant, user].add(ids[: self.pool.peek(ids, max_tokens=len(ids), **self.space(tenant))])
        assert self.pool.peek(ids, max_tokens=len(ids), **self.space(tenant)) >= kept
        if limit is not None and report.num_tokens:
            assert sum(g.num_bytes for g in after.groups if g.tenant == tenant) <= limit

    @rule(lease=consumes(leases))
    def release(self, lease: Lease) -> None:
        lease.release()
        lease.release()
        self.open.remove(lease)

    @rule(tenant=tenants, ids=prompts, for_s=st.integers(1, 20), cap=st.none() | st.integers(0, 20))
    def pin(self, tenant: str, ids: Ids, for_s: int, cap: int | None) -> None:
        lease = self.pool.match(ids, max_tokens=len(ids), **self.space(tenant))
        if lease is None:
            return
        self.published[tenant, None].add(ids[: lease.num_tokens])
        with lease:
            pinned = self.pool.pin(lease, for_s=for_s, max_label_bytes=cap)
        if pinned.reason is Reason.PINNED:
            key = (tenant, ids[: lease.num_tokens])
            self.pins[key] = max(self.pins.get(key, 0.0), self.now_s + for_s)
            assert pinned.for_s >= for_s
        else:
            assert pinned.reason is Reason.PIN_OVER_BUDGET

    @rule(tenant=tenants, ids=prompts)
    def unpin(self, tenant: str, ids: Ids) -> None:
        lease = self.pool.match(ids, max_tokens=len(ids), **self.space(tenant))
        if lease is None:
            return
        self.published[tenant, None].add(ids[: lease.num_tokens])
        with lease:
            done = self.pool.unpin(lease)
        if done:  # a pin holds whole segments: which of the model's pins it was is not to be told from outside
            self.pins = {k: until for k, until in self.pins.items() if k[0] != tenant}

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds
        self.pins = {k: until for k, until in self.pins.items() if until > self.now_s}

    @rule(tenant=tenants)
    def invalidate(self, tenant: str) -> None:
        self.pool.invalidate(tenant)
        for user in USERS:
            self.published[tenant, user].clear()
        self.pins = {k: until for k, until in self.pins.items() if k[0] != tenant}
        for ids in ((0,) * 14, (1,) * 14, (0, 1) * 7):
            assert self.pool.peek(ids, max_tokens=14, **self.space(tenant)) == 0

    @rule(tenant=st.none() | tenants, user=st.sampled_from(["ann", "ben"]))
    def invalidate_user(self, tenant: str | None, user: str) -> None:
        self.pool.invalidate(tenant, user=user)
        for of in TENANTS if tenant is None else (tenant,):
            forgotten, self.published[of, user] = self.published[of, user], set()
            for ids in forgotten:
                expected = self.longest_ever(of, ids)
                assert self.pool.peek(ids, max_tokens=len(ids), **self.space(of)) <= expected, (
                    "a user was not forgotten"
                )
        self.pins = {(t, ids): until for (t, ids), until in self.pins.items() if self.longest_ever(t, ids) == len(ids)}

    @invariant()
    def holds_together(self) -> None:
        self.pool.check_integrity()
        assert self.pool.num_bytes <= MAX_BYTES

    @invariant()
    def pinned_stays(self) -> None:
        for tenant, ids in self.pins:
            assert self.pool.peek(ids, max_tokens=len(ids), **self.space(tenant)) == len(ids), "a pin did not hold"

    @invariant()
    def leases_stay_readable(self) -> None:
        for lease in self.open:
            ids = lease.runs[-1].payload[: lease.num_tokens]
            self.check(lease, ids)

    def longest_ever(self, tenant: str, ids: Ids) -> int:
        """The naive model: the longest beginning that any prompt of the tenant has had kept."""
        return max((_shared(ids, kept) for user in USERS for kept in self.published[tenant, user]), default=0)

    def check(self, lease: Lease, ids: Sequence[int]) -> None:
        at = 0
        for run in lease.runs:
            assert run.start == at
            at += run.num_tokens
            assert run.payload[:at] == tuple(ids[:at]), "a run stands for other tokens"
        assert at == lease.num_tokens


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


class RoomyPoolMachine(PoolMachine):
    """With room for all, the longest match is exactly what the naive model says."""

    has_limits = False

    def new_pool(self) -> BlockPool:
        return BlockPool(10**9, BLOCK, clock=lambda: self.now_s)

    @rule(tenant=tenants, ids=prompts)
    def match(self, tenant: str, ids: Ids) -> None:
        expected = self.longest_ever(tenant, ids)
        assert self.pool.peek(ids, max_tokens=len(ids), **self.space(tenant)) == expected

    @invariant()
    def holds_together(self) -> None:
        self.pool.check_integrity()


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestRoomyPool = RoomyPoolMachine.TestCase
TestRoomyPool.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
