"""Entries from one store to another, while both are in use.

What is written at the source meanwhile is followed to the end, removals too. Invalidations that the source remembers
hold at the target as well. Nothing older replaces anything newer, so that a run that was cut off is simply repeated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cachestack.entries import Entry, Selector
from cachestack.errors import EntryTooLarge
from cachestack.keys import Partition
from cachestack.stores.base import EntryStore
from cachestack.stores.codec import gone_at_s
from cachestack.stores.disk import DiskStore
from cachestack.stores.redis.store import RedisStore
from cachestack.stores.tiered import TieredStore

_ROUNDS = 8
_REPORT_EVERY = 64
Movable = DiskStore | RedisStore


@dataclass(frozen=True, slots=True)
class Moved:
    """`skipped`: how many, by why: `there` (as new or newer), `expired`, `invalidated`, `too_large`. `removed`: entries
    taken out of the target again, as they went at the source meanwhile."""

    num_entries: int = 0
    moved: int = 0
    removed: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


def movable(store: DiskStore | TieredStore) -> Movable:
    return store.shared if isinstance(store, TieredStore) else store


def migrate(
    source: Movable,
    target: Movable,
    *,
    max_bytes_of: Callable[[str], int | None],
    clock: Callable[[], float],
    dry_run: bool = False,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Moved:
    """Copy all entries; those of the source stay. `max_bytes_of` gives a tenant's byte budget, and raises what a tenant
    without a policy deserves: then nothing is moved. Raises StoreError."""
    for tenant in source.tenants():
        max_bytes_of(tenant)
    migration = _Migration(source, target, max_bytes_of, clock, dry_run, advance, source.size().num_entries)
    migration.invalidate()
    done: set[Partition] = set()
    while new := [partition for partition in source.partitions(Selector()) if partition not in done]:
        for partition in new:
            migration.move(partition)
        done.update(new)
    migration.invalidate()
    counts = migration.counts
    skipped = {why: num for why, num in sorted(counts.items()) if why not in ("moved", "removed", "seen")}
    return Moved(counts["seen"], counts["moved"], counts["removed"], skipped)


@dataclass(slots=True)
class _Migration:
    source: Movable
    target: Movable
    max_bytes_of: Callable[[str], int | None]
    clock: Callable[[], float]
    dry_run: bool
    advance: Callable[[int, int], None]
    total: int
    counts: Counter[str] = field(default_factory=Counter)

    def invalidate(self) -> None:
        """What was invalidated at the source is gone at the target: entries from before that moment."""
        for fence in () if self.dry_run else self.source.fences():
            before_s = min(fence.at_s, fence.selector.created_before_s or math.inf)
            self.counts["removed"] += self.target.invalidate(replace(fence.selector, created_before_s=before_s))

    def move(self, partition: Partition) -> None:
        number = self.source.latest(partition)
        ids = self._copy(partition)
        for _ in range(0 if self.dry_run else _ROUNDS):
            changes = self.source.changes(partition, number)
            if changes.complete and not changes.changes:
                return
            if changes.complete:
                touched = {change.entry_id for change in changes.changes}
            else:  # what has changed is not known: everything is looked at again
                touched = ids
                ids |= self._copy(partition, again=True)
            number = changes.latest
            for entry_id in touched:
                entry = self.source.get(partition, entry_id)
                if entry is not None:
                    self._put(entry)
                    ids.add(entry_id)
                else:
                    self.counts["removed"] += self.target.invalidate(
                        Selector(tenant=partition.tenant, entry_id=entry_id)
                    )

    def _copy(self, partition: Partition, *, again: bool = False) -> set[str]:
        ids: set[str] = set()
        for entry in self.source.entries(partition):
            ids.add(entry.entry_id)
            why = self._put(entry)
            if not again:
                self.counts[why] += 1
                self.counts["seen"] += 1
                if self.counts["seen"] % _REPORT_EVERY == 0 or self.counts["seen"] >= self.total:
                    self.advance(self.counts["seen"], max(self.total, self.counts["seen"]))
        return ids

    def _put(self, entry: Entry) -> str:
        """What became of it."""
        if gone_at_s(entry) <= self.clock():
            return "expired"
        if self.dry_run:
            return "there" if _is_there(self.target, entry) else "moved"
        try:
            if self.target.put(entry, self.max_bytes_of(entry.partition.tenant), keep_newer=True):
                return "moved"
        except EntryTooLarge:
            return "too_large"
        return "there" if _is_there(self.target, entry) else "invalidated"


def _is_there(store: EntryStore, entry: Entry) -> bool:
    """Whether one of its question, or its id, is there that is as new or newer."""
    there = (store.find_exact(entry.partition, entry.exact), store.get(entry.partition, entry.entry_id))
    return any(e is not None and e.created_at_s >= entry.created_at_s for e in there)
