"""The contract of an entry store.

- A partition is an argument of every read and write: a wall, never a filter.
- `put` is one atomic step: after a crash an entry is there whole or not at all, and so are the exact key and the
  change record that lead to it. It replaces an older entry of the same exact key.
- `invalidate` also holds for answers that are being made: `put` refuses an entry that was asked for before it. (A
  tenant that has no entries yet knows only of the invalidations of its own process.)
- Reads return expired entries too: the caller decides what an expired entry may still do. `purge` removes those whose
  `stale_until_s` has passed.
- A corrupt entry is never returned: it is counted in `num_corrupt`, removed, and reads as absent.
- `changes` makes the writes of other processes visible: whoever keeps something derived from entries (an index) asks
  for what happened since the number it last saw.
- Any failure of the medium raises StoreError. The caller goes on uncached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from cachestack.entries import Entry, Selector
from cachestack.keys import Partition


@dataclass(frozen=True, slots=True)
class Change:
    """One write of a partition, in order."""

    number: int
    kind: Literal["put", "remove"]
    entry_id: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened since a number. `complete` is False when the record does not reach back that far: start over."""

    latest: int
    complete: bool
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreSize:
    num_entries: int
    num_bytes: int


class NotNow(Enum):
    """What cannot be had without waiting for a file, a lock or another process."""

    NOT_NOW = "not now"


NOT_NOW = NotNow.NOT_NOW


class AtOnce(Protocol):
    """What a store may offer besides, for callers that must not wait. Both raise StoreError."""

    def find_exact_at_once(self, partition: Partition, exact: str, moment: object = None) -> Entry | NotNow | None:
        """As `find_exact` would answer now, or NOT_NOW.

        `moment`: callers that give the same object may be answered as at the first of these calls.
        """
        ...

    def touch_at_once(self, partition: Partition, entry_id: str, now_s: float) -> bool:
        """As `touch`, or False: then nothing was noted."""
        ...


class Claim(Protocol):
    """The right to answer a question, among all processes."""

    def end(self, *, is_kept: bool) -> None:
        """`is_kept`: the answer is in the store now. Never waits, and never fails."""
        ...


class Taken(Enum):
    """Another process answers this question now."""

    TAKEN = "taken"


TAKEN = Taken.TAKEN


class Claiming(Protocol):
    """What a store may offer besides, where several processes share it."""

    def claim(self, partition: Partition, exact: str) -> Claim | Taken | None:
        """None: there is nothing to wait for, and who asks goes on by itself. Raises StoreError."""
        ...


class EntryStore(Protocol):
    """See the module's text. All methods may be called from several threads and from several processes."""

    @property
    def num_corrupt(self) -> int: ...

    def find_exact(self, partition: Partition, exact: str) -> Entry | None: ...

    def get(self, partition: Partition, entry_id: str) -> Entry | None: ...

    def entries(self, partition: Partition) -> Iterator[Entry]: ...

    def select(self, selector: Selector) -> Iterator[Entry]:
        """What matches, of all partitions, expired entries too; every entry for a selector without a condition.

        In no particular order. What is put or removed meanwhile may be seen or not.
        """
        ...

    def put(self, entry: Entry, max_bytes: int | None = None, *, keep_newer: bool = False) -> bool:
        """Publish `entry`; then evict the tenant's least recently used entries until its entries fit `max_bytes`.

        False, and nothing happens, where an invalidation since `entry.created_at_s` would have removed it, or, with
        `keep_newer`, where there is an entry of the same question, or the same id, that is as new or newer.
        """
        ...

    def touch(self, partition: Partition, entry_id: str, now_s: float) -> None:
        """Note a use, for eviction. May be written later; losing it costs only order."""
        ...

    def prolong(self, partition: Partition, entry_id: str, now_s: float, sliding_s: float) -> bool:
        """Move the entry's end as `Entry.used` does; False if it has gone. Nothing else changes, its age least."""
        ...

    def latest(self, partition: Partition) -> int: ...

    def changes(self, partition: Partition, since: int) -> Changes: ...

    def invalidate(self, selector: Selector) -> int:
        """Remove what matches, in all processes; returns how many entries were removed."""
        ...

    def purge(self, now_s: float) -> int: ...

    def size(self, tenant: str | None = None) -> StoreSize: ...

    def close(self) -> None: ...
