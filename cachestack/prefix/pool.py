"""The block pool: keeps segments within a byte budget and leases them. See base.py for the contract."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from cachestack.decisions import Reason
from cachestack.engines.base import KVRun
from cachestack.keys import block_hashes
from cachestack.prefix.base import Label, Lease, PoolSize, PoolSizes, Published, Space
from cachestack.prefix.segments import Found, Hasher, Segment, SegmentIndex

BLOCK_SIZE = 16
Pressure = Literal["evict", "skip"]


class BlockPool:
    """Thread-safe; every method is one step under one lock, and none computes on payloads."""

    def __init__(self, max_bytes: int, block_size: int = BLOCK_SIZE, hasher: Hasher = block_hashes) -> None:
        self._max_bytes = max_bytes
        self._index = SegmentIndex(block_size, hasher)
        self._lock = threading.RLock()
        # Oldest use first. A path is touched from its leaf to its root, so a parent always comes after its children.
        self._order: OrderedDict[Segment, None] = OrderedDict()
        self._doomed: set[Segment] = set()  # invalidated, but still being read
        self._leases: dict[Lease, tuple[Segment, ...]] = {}
        self._num_bytes = 0
        self._tenant_bytes: Counter[str] = Counter()
        self._num_evicted = 0

    # --- reading

    def match(self, ids: Sequence[int], *, max_tokens: int, fingerprint: str, salt: bytes) -> Lease | None:
        """A lease on the longest kept beginning of `ids[:max_tokens]`, or None."""
        with self._lock:
            found = self._index.longest(ids, max_tokens, Space(fingerprint, salt))
            if found is None:
                return None
            path = found.segment.path()
            lease = Lease(_runs(path, found.num_tokens), self._release)
            for segment in reversed(path):
                segment.num_readers += 1
                self._order.move_to_end(segment)
            self._leases[lease] = path
            return lease

    def peek(self, ids: Sequence[int], *, max_tokens: int, fingerprint: str, salt: bytes) -> int:
        """How many tokens `match` would find. Leases nothing, and does not count as a use."""
        with self._lock:
            found = self._index.longest(ids, max_tokens, Space(fingerprint, salt))
            return 0 if found is None else found.num_tokens

    def _release(self, lease: Lease) -> None:
        with self._lock:
            for segment in self._leases.pop(lease, ()):
                segment.num_readers -= 1
                if segment.is_removed and segment.num_readers == 0:
                    self._doomed.discard(segment)
                    self._count(segment, -1)

    # --- writing

    def publish(
        self,
        ids: Sequence[int],
        runs: Sequence[KVRun],
        *,
        fingerprint: str,
        salt: bytes,
        label: Label = Label(),  # noqa: B008 - frozen
        max_label_bytes: int | None = None,
        memory_pressure: Pressure = "evict",
    ) -> Published:
        """Keep `runs`: finished, finite KV of tokens of `ids`, in order, each beginning where the one before ends.

        The first must begin at 0 or where kept tokens end (a caller that leases them makes sure of that). A run that
        is kept already is not kept again. One that does not fit, or whose beginning is gone, is refused, and so are
        those after it.
        `max_label_bytes` limits all that `label.tenant` has. With `memory_pressure="skip"` nothing is evicted.
        """
        space = Space(fingerprint, salt)
        kept = shared = num_bytes = 0
        refused = sum(run.num_tokens for run in runs)
        reason = Reason.PUBLISHED
        with self._lock:
            for run in runs:
                stop = run.start + run.num_tokens
                assert run.start < stop <= len(ids), "a run stands for tokens of the prompt"
                found = self._index.longest(ids, stop, space)
                if found is not None and found.num_tokens == stop:
                    self._touch(found.segment)
                    shared += run.num_tokens
                else:
                    parent = _owner(found, run.start)
                    if run.start and parent is None:  # invalidated since the caller found it
                        reason = Reason.PREFIX_GONE
                        break
                    segment = Segment(run, tuple(ids[run.start : stop]), space, label, parent)
                    if not self._make_room(segment, max_label_bytes, memory_pressure):
                        reason = Reason.OVER_BUDGET
                        break
                    self._insert(segment, ids)
                    kept += run.num_tokens
                    num_bytes += run.num_bytes
                refused -= run.num_tokens
        return Published(reason, kept, shared, refused, num_bytes)

    def invalidate(self, tenant: str) -> int:
        """Forget all that a tenant has; returns the number of segments. Open leases stay readable."""
        with self._lock:
            gone = [s for s in self._order if s.label.tenant == tenant]
            for segment in gone:  # children come first
                self._remove(segment)
            return len(gone)

    # --- showing

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def sizes(self) -> PoolSizes:
        with self._lock:
            groups: defaultdict[tuple[str, str, str], list[Segment]] = defaultdict(list)
            for segment in self._order:
                groups[(segment.label.model, segment.label.dtype, segment.label.tenant)].append(segment)
            return PoolSizes(
                groups=tuple(
                    PoolSize(*key, len(of), sum(s.run.num_tokens for s in of), sum(s.run.num_bytes for s in of))
                    for key, of in sorted(groups.items())
                ),
                max_bytes=self._max_bytes,
                num_bytes=self._num_bytes,
                num_tokens=sum(s.run.num_tokens for s in self._order),
                num_segments=len(self._order),
                num_leased=sum(s.num_readers > 0 for s in (*self._order, *self._doomed)),
                num_evicted=self._num_evicted,
            )

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong. Hashes everything anew: for tests."""
        with self._lock:
            held = [*self._order, *self._doomed]
            num_bytes = sum(s.run.num_bytes for s in held)
            assert self._num_bytes == num_bytes, f"{self._num_bytes} bytes counted, {num_bytes} held"
            assert self._num_bytes <= self._max_bytes, f"{self._num_bytes} bytes held, {self._max_bytes} allowed"
            tenants: Counter[str] = Counter()
            children: Counter[Segment] = Counter()
            readers: Counter[Segment] = Counter(s for path in self._leases.values() for s in path)
            seen: set[Segment] = set()
            for segment in held:
                tenants[segment.label.tenant] += segment.run.num_bytes
                assert len(segment.ids) == segment.run.num_tokens, "a segment's ids and run differ in length"
                assert segment.num_readers == readers[segment], "readers miscounted"
            for segment in self._order:
                parent = segment.parent
                assert not segment.is_removed, "a removed segment can still be found"
                if parent is None:
                    assert segment.start == 0, "a path does not begin at token 0"
                    continue
                children[parent] += 1
                assert parent in self._order, "a segment outlived its parent"
                assert parent.space == segment.space, "a path crosses models or tenants"
                assert parent.label.tenant == segment.label.tenant, "a path is counted for two tenants"
                assert parent.start < segment.start <= parent.stop, "a segment does not begin on its parent"
            for segment in self._order:
                assert segment.num_children == children[segment], "children miscounted"
                assert segment.parent not in seen, "a parent would be evicted before its child"
                seen.add(segment)
            assert all(s.is_removed and s.num_readers for s in self._doomed), "a doomed segment has no reader"
            assert +tenants == +self._tenant_bytes, "bytes by tenant miscounted"
            self._index.check(self._order)

    # --- inside, under the lock

    def _insert(self, segment: Segment, ids: Sequence[int]) -> None:
        self._index.add(segment, ids)
        self._order[segment] = None
        if segment.parent is not None:
            segment.parent.num_children += 1
        self._count(segment, 1)
        self._touch(segment)

    def _remove(self, segment: Segment) -> None:
        assert segment.num_children == 0, "children go first"
        self._index.remove(segment)
        del self._order[segment]
        if segment.parent is not None:
            segment.parent.num_children -= 1
        segment.is_removed = True
        if segment.num_readers:
            self._doomed.add(segment)
        else:
            self._count(segment, -1)

    def _make_room(self, segment: Segment, max_label_bytes: int | None, pressure: Pressure) -> bool:
        """Evict until the segment fits both limits. False, and nothing evicted, where it cannot be made to fit."""
        need, tenant = segment.run.num_bytes, segment.label.tenant
        over = self._num_bytes + need - self._max_bytes
        over_own = 0 if max_label_bytes is None else self._tenant_bytes[tenant] + need - max_label_bytes
        if over <= 0 and over_own <= 0:
            return True
        path = () if segment.parent is None else segment.parent.path()
        free = [s for s in self._order if s.num_readers == 0 and s not in path]
        own = [s for s in free if s.label.tenant == tenant]
        if pressure == "skip" or sum(s.run.num_bytes for s in free) < over:
            return False
        if sum(s.run.num_bytes for s in own) < over_own:
            return False
        over -= self._evict(own, over_own)
        self._evict([s for s in free if not s.is_removed], over)
        return True

    def _evict(self, free: Sequence[Segment], num_bytes: int) -> int:
        """Remove the oldest until `num_bytes` are free. All children of a free segment are free, and come first."""
        freed = 0
        for segment in free:
            if freed >= num_bytes:
                break
            self._remove(segment)
            self._num_evicted += 1
            freed += segment.run.num_bytes
        return freed

    def _touch(self, segment: Segment) -> None:
        for step in reversed(segment.path()):
            self._order.move_to_end(step)

    def _count(self, segment: Segment, sign: int) -> None:
        self._num_bytes += sign * segment.run.num_bytes
        self._tenant_bytes[segment.label.tenant] += sign * segment.run.num_bytes


def _runs(path: Sequence[Segment], num_tokens: int) -> tuple[KVRun, ...]:
    """The runs of a path up to `num_tokens`: each as far as the next one begins."""
    ends = [*(s.start for s in path[1:]), num_tokens]
    return tuple(_first_tokens(s.run, end - s.start) for s, end in zip(path, ends, strict=True))


def _first_tokens(run: KVRun, num_tokens: int) -> KVRun:
    """A run of which only the first tokens are meant, with the bytes of those."""
    return replace(run, num_tokens=num_tokens, num_bytes=run.num_bytes * num_tokens // run.num_tokens)


def _owner(found: Found | None, position: int) -> Segment | None:
    """The segment on the found path that holds the token before `position`, or None where the path ends before."""
    if found is None or position == 0 or found.num_tokens < position:
        return None
    return next(s for s in reversed(found.segment.path()) if s.start < position)
