"""The pool against a naive model, after every step of random histories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from cachestack.decisions import Reason
from cachestack.engines.base import KVRun
from cachestack.prefix.base import Label, Lease
from cachestack.prefix.pool import BlockPool

BLOCK = 4
MAX_BYTES = 60
TENANTS = ("one", "two")
# Few tokens and few lengths, so that prompts share beginnings and end at, before and after block edges.
prompts = st.lists(st.integers(0, 1), min_size=2, max_size=14).map(tuple)
tenants = st.sampled_from(TENANTS)


class PoolMachine(RuleBasedStateMachine):
    """A payload is the tuple of all token ids up to the run's end, so that a wrong one shows."""

    leases = Bundle("leases")
    has_limits = True

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(MAX_BYTES, BLOCK)
        self.published: dict[str, set[tuple[int, ...]]] = {t: set() for t in TENANTS}
        self.open: list[Lease] = []

    def space(self, tenant: str) -> dict[str, object]:
        return {"fingerprint": "model", "salt": tenant.encode()}

    @rule(
        target=leases,
        tenant=tenants,
        ids=prompts,
        fractions=st.lists(st.floats(0, 1), max_size=2),
        limit=st.none() | st.integers(0, 40),
        pressure=st.sampled_from(["evict", "evict", "skip"]),
        keeps_lease=st.booleans(),
    )
    def serve(
        self,
        tenant: str,
        ids: tuple[int, ...],
        fractions: Sequence[float],
        limit: int | None,
        pressure: str,
        keeps_lease: bool,
    ) -> object:
        """A request as the layer makes it: match, compute the rest in some runs, publish, release."""
        limit = limit if self.has_limits else None
        lease = self.pool.match(ids, max_tokens=len(ids) - 1, **self.space(tenant))  # type: ignore[arg-type]
        matched = 0 if lease is None else lease.num_tokens
        assert matched <= self.longest_ever(tenant, ids[:-1]), "matched what was never published"
        if lease is not None:
            self.check(lease, ids)
        edges = sorted({matched, len(ids), *(matched + int(f * (len(ids) - matched)) for f in fractions)})
        runs = [KVRun(ids[:b], a, b - a, b - a) for a, b in pairwise(edges)]
        held_before = self.pool.num_bytes
        evicted_before = self.pool.sizes().num_evicted
        report = self.pool.publish(
            ids,
            runs,
            label=Label(tenant),
            max_label_bytes=limit,
            memory_pressure=pressure,  # type: ignore[arg-type]
            **self.space(tenant),  # type: ignore[arg-type]
        )
        total = report.num_tokens + report.num_shared_tokens + report.num_refused_tokens
        assert total == len(ids) - matched
        assert (report.reason is Reason.OVER_BUDGET) == (report.num_refused_tokens > 0)
        if pressure == "skip":
            assert self.pool.sizes().num_evicted == evicted_before
            assert self.pool.num_bytes == held_before + report.num_bytes
        kept = matched + report.num_tokens + report.num_shared_tokens
        if kept:
            self.published[tenant].add(ids[:kept])
        assert self.pool.peek(ids, max_tokens=len(ids), **self.space(tenant)) >= kept  # type: ignore[arg-type]
        if limit is not None and report.num_tokens:
            assert sum(g.num_bytes for g in self.pool.sizes().groups if g.tenant == tenant) <= limit
        if lease is None:
            return multiple()
        if keeps_lease:
            self.open.append(lease)
            return lease
        lease.release()
        return multiple()

    @rule(lease=consumes(leases))
    def release(self, lease: Lease) -> None:
        lease.release()
        lease.release()
        self.open.remove(lease)

    @rule(tenant=tenants)
    def invalidate(self, tenant: str) -> None:
        self.pool.invalidate(tenant)
        self.published[tenant].clear()
        for ids in ((0,) * 14, (1,) * 14, (0, 1) * 7):
            assert self.pool.peek(ids, max_tokens=14, **self.space(tenant)) == 0  # type: ignore[arg-type]

    @invariant()
    def holds_together(self) -> None:
        self.pool.check_integrity()
        assert self.pool.num_bytes <= MAX_BYTES

    @invariant()
    def leases_stay_readable(self) -> None:
        for lease in self.open:
            ids = lease.runs[-1].payload[: lease.num_tokens]
            self.check(lease, ids)

    def longest_ever(self, tenant: str, ids: tuple[int, ...]) -> int:
        """The naive model: the longest beginning that any prompt of the tenant has had kept."""
        return max((_shared(ids, kept) for kept in self.published[tenant]), default=0)

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

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(10**9, BLOCK)

    @rule(tenant=tenants, ids=prompts)
    def match(self, tenant: str, ids: tuple[int, ...]) -> None:
        expected = self.longest_ever(tenant, ids)
        assert self.pool.peek(ids, max_tokens=len(ids), **self.space(tenant)) == expected  # type: ignore[arg-type]

    @invariant()
    def holds_together(self) -> None:
        self.pool.check_integrity()


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestRoomyPool = RoomyPoolMachine.TestCase
TestRoomyPool.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
