"""The block pool: keeps segments within a byte budget, leases and pins them. See base.py for the contract."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from cachestack.decisions import Reason
from cachestack.engines.base import KVRun
from cachestack.keys import block_hashes
from cachestack.prefix.base import (
    Eviction,
    Label,
    Lease,
    Pinned,
    PoolSizes,
    Pressure,
    Published,
    SavedSeconds,
    Space,
    unknown_cost,
)
from cachestack.prefix.budget import Budget
from cachestack.prefix.invalidations import Invalidations
from cachestack.prefix.listing import check_tree, sizes_of
from cachestack.prefix.pins import Pins
from cachestack.prefix.segments import Found, Hasher, Segment, SegmentIndex, path_ids

BLOCK_SIZE = 16


class BlockPool:
    """Thread-safe; every method is one step under one lock, and none computes on payloads. `clock`: seconds that only
    ever grow, for pins and for showing."""

    def __init__(
        self,
        max_bytes: int,
        block_size: int = BLOCK_SIZE,
        hasher: Hasher = block_hashes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._index = SegmentIndex(block_size, hasher)
        self._lock = threading.RLock()
        self._segments: dict[Segment, None] = {}  # in order of publication: a parent comes before its children
        self._doomed: set[Segment] = set()  # invalidated, but still being read
        self._leases: dict[Lease, tuple[Segment, ...]] = {}
        self._budget = Budget(max_bytes, self._remove)
        self._pins = Pins()
        self._invalidations = Invalidations()

    # --- reading

    def match(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int,
        fingerprint: str,
        salt: bytes,
        user: str | None = None,
        min_tokens: int = 1,
        is_use: bool = True,
    ) -> Lease | None:
        """A lease on the longest kept beginning of `ids[:max_tokens]`, or None. `user` becomes one of its principals.

        One of fewer than `min_tokens` is no use of anything: templates begin alike. `is_use=False`: nobody is saved
        anything, so that it does not count for what the beginning is worth.
        """
        with self._lock:
            found = self._index.longest(ids, max_tokens, Space(fingerprint, salt))
            if found is None or found.num_tokens < min_tokens:
                return None
            path = found.segment.path()
            for segment in path:
                segment.num_uses += is_use
            self._use(path, found.num_tokens, user)
            lease = Lease(_runs(path, found.num_tokens), self._release)
            for segment in path:
                segment.num_readers += 1
                self._budget.update(segment)
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
                if not segment.is_removed:
                    self._budget.update(segment)
                elif segment.num_readers == 0:
                    self._doomed.discard(segment)
                    self._budget.count(segment, -1)

    # --- writing

    @property
    def moment(self) -> int:
        """How far invalidations have come: taken before a look-up, it tells `publish` which came after."""
        return self._invalidations.moment

    def publish(
        self,
        ids: Sequence[int],
        runs: Sequence[KVRun],
        *,
        fingerprint: str,
        salt: bytes,
        label: Label = Label(),  # noqa: B008 - frozen
        user: str | None = None,
        cost: SavedSeconds = unknown_cost,
        max_label_bytes: int | None = None,
        min_match_tokens: int = 1,
        memory_pressure: Pressure = "evict",
        eviction: Eviction = "value",
        since: int | None = None,
    ) -> Published:
        """Keep `runs`: finished, finite KV of tokens of `ids`, in order, each beginning where the one before ends.

        The first must begin at 0 or where kept tokens end (a caller that leases them makes sure of that). A run that
        is kept already is not kept again, nor one of which more than half is, where a match of so few tokens is used:
        of at least `min_match_tokens`. One that does not fit, or whose beginning is gone, is refused, and so are those
        after it, and all of them where the tenant or the user was invalidated after the moment `since`.
        `max_label_bytes` limits all that `label.tenant` has. With `memory_pressure="skip"` nothing is evicted; else
        `eviction` says which leaves go first. `cost` says what a kept piece is worth (see SavedSeconds).
        """
        space = Space(fingerprint, salt)
        kept = shared = num_bytes = 0
        refused = sum(run.num_tokens for run in runs)
        reason = Reason.PUBLISHED
        with self._lock:
            self._expire()
            if since is not None and self._invalidations.came_after(since, label.tenant, user):
                return Published(Reason.INVALIDATED, num_refused_tokens=refused)
            for run in runs:
                stop = run.start + run.num_tokens
                assert run.start < stop <= len(ids), "a run stands for tokens of the prompt"
                found = self._index.longest(ids, stop, space)
                if found is not None and found.num_tokens == stop:
                    self._use(found.segment.path(), stop, user)
                    shared += run.num_tokens
                else:
                    parent = _owner(found, run.start)
                    if run.start and parent is None:  # invalidated since the caller found it
                        reason = Reason.PREFIX_GONE
                        break
                    known = 0 if found is None else found.num_tokens
                    if found is not None and known >= min_match_tokens and 2 * (known - run.start) > run.num_tokens:
                        self._use(found.segment.path(), known, user)
                        reason = Reason.MOSTLY_KEPT
                        break
                    segment = Segment(
                        run,
                        tuple(ids[run.start : stop]),
                        space,
                        label,
                        parent,
                        cost,
                        run.num_bytes,
                        used_s=self._clock(),
                    )
                    if not self._budget.make_room(segment, max_label_bytes, memory_pressure, eviction):
                        reason = Reason.OVER_BUDGET
                        break
                    self._insert(segment, ids, user)
                    kept += run.num_tokens
                    num_bytes += run.num_bytes
                refused -= run.num_tokens
        return Published(reason, kept, shared, refused, num_bytes)

    def invalidate(self, tenant: str | None = None, *, user: str | None = None) -> int:
        """Forget what a tenant has, or what only one user (of a tenant, or of all) has; the number of segments.

        Of what others share, the user's name goes, and what only that user's requests had in it is not found again.
        Open leases stay readable; pins hold nothing back.
        """
        assert tenant is not None or user is not None, "whose?"
        with self._lock:
            self._invalidations.note(tenant, user)
            num_gone = 0
            for segment in reversed(list(self._segments)):  # children first
                if tenant not in (None, segment.label.tenant):
                    continue
                if user is not None:
                    if segment.principals.reach.pop(user, None) is None:
                        continue
                    reach = segment.principals.furthest
                    if reach:
                        self._shorten(segment, min(reach, segment.stop))
                        continue
                self._remove(segment)
                num_gone += 1
            return num_gone

    # --- pins

    def pin(self, lease: Lease, *, for_s: float, max_label_bytes: int | None = None) -> Pinned:
        """Keep the leased path from eviction for `for_s` seconds. One that is pinned longer stays so.

        `max_label_bytes` limits what the tenant has pinned; all pins together hold at most half of the pool.
        """
        assert for_s > 0, "a pin lasts some time"
        with self._lock:
            self._expire()
            path = self._leases.get(lease, ())
            if not path or any(s.is_removed for s in path):
                return Pinned(Reason.PREFIX_GONE)
            own = self._pins.bytes_to_add(path)
            num_bytes = sum(s.num_bytes for s in path)
            if self._pins.num_bytes + own > self._budget.max_bytes // 2:
                return Pinned(Reason.PIN_OVER_BUDGET, num_bytes, self._budget.max_bytes // 2)
            pinned = self._pins.tenant_bytes[path[-1].label.tenant]
            if max_label_bytes is not None and pinned + own > max_label_bytes:
                return Pinned(Reason.PIN_OVER_BUDGET, num_bytes, max_label_bytes)
            now_s = self._clock()
            for segment in self._pins.add(path[-1], now_s + for_s):
                self._budget.update(segment)
            return Pinned(Reason.PINNED, num_bytes, for_s=self._pins.left_s(now_s)[path[-1]])

    def unpin(self, lease: Lease) -> bool:
        """End the pin of the leased path; whether there was one. Longer pinned paths keep what they share with it."""
        with self._lock:
            path = self._leases.get(lease, ())
            changed = self._pins.drop(path[-1]) if path else ()
            for segment in changed:
                self._budget.update(segment)
            return bool(changed)

    # --- showing

    @property
    def max_bytes(self) -> int:
        return self._budget.max_bytes

    @property
    def num_bytes(self) -> int:
        return self._budget.num_bytes

    def sizes(self) -> PoolSizes:
        with self._lock:
            self._expire()
            now_s = self._clock()
            shown = sizes_of(self._segments, self._pins.left_s(now_s), now_s)
            return replace(
                shown,
                max_bytes=self._budget.max_bytes,
                num_bytes=self._budget.num_bytes,
                num_leased=sum(s.num_readers > 0 for s in (*self._segments, *self._doomed)),
                num_evicted=self._budget.num_evicted,
                num_pinned_bytes=self._pins.num_bytes,
            )

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong. Hashes everything anew: for tests."""
        with self._lock:
            held = [*self._segments, *self._doomed]
            readers: Counter[Segment] = Counter(s for path in self._leases.values() for s in path)
            for segment in held:
                assert segment.num_readers == readers[segment], "readers miscounted"
            assert all(s.is_removed and s.num_readers for s in self._doomed), "a doomed segment has no reader"
            segments = set(self._segments)
            check_tree(self._segments)
            self._index.check(segments)
            self._pins.check(segments)
            assert self._pins.num_bytes <= self._budget.max_bytes // 2, "more than half of the pool is pinned"
            self._budget.check(segments, held)

    # --- inside, under the lock

    def _use(self, path: Sequence[Segment], num_tokens: int, user: str | None) -> None:
        """Note a use of a path's first `num_tokens` tokens."""
        ends = [*(s.start for s in path[1:]), num_tokens]
        now_s = self._clock()
        for segment, end in zip(reversed(path), reversed(ends), strict=True):  # a parent is used after its children
            segment.principals.add(user, end)
            segment.used_s = now_s
            self._budget.touch(segment)

    def _insert(self, segment: Segment, ids: Sequence[int], user: str | None) -> None:
        self._index.add(segment, ids)
        self._segments[segment] = None
        if segment.parent is not None:
            segment.parent.num_children += 1
        self._budget.count(segment, 1)
        self._use(segment.path(), segment.stop, user)
        self._budget.update(segment)
        if segment.parent is not None:
            self._budget.update(segment.parent)

    def _remove(self, segment: Segment) -> None:
        assert segment.num_children == 0, "children go first"
        for step in self._pins.drop(segment):
            self._budget.update(step)
        self._index.remove(segment)
        del self._segments[segment]
        segment.is_removed = True
        self._budget.update(segment)
        if segment.parent is not None:
            segment.parent.num_children -= 1
            self._budget.update(segment.parent)
        segment.run = replace(segment.run, payload=None)  # whatever still refers to the segment holds no memory
        if segment.num_readers:
            self._doomed.add(segment)
        else:
            self._budget.count(segment, -1)

    def _shorten(self, segment: Segment, stop: int) -> None:
        """Only the first tokens are found from now on. Their memory is that of all: payloads are the engine's."""
        if stop == segment.stop:
            return
        self._index.remove(segment)
        segment.run = _first_tokens(segment.run, stop - segment.start)
        segment.ids = segment.ids[: segment.run.num_tokens]
        self._index.add(segment, path_ids(segment))

    def _expire(self) -> None:
        for segment in self._pins.expired(self._clock()):
            self._budget.update(segment)


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
