"""Entries in this process's memory: for tests, for short-lived processes, and as the plain form of the contract.

The same answers as DiskStore for the same calls (one suite runs over both), in Python's own containers.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cachestack.entries import Entry, Selector
from cachestack.errors import StoreError
from cachestack.keys import Partition
from cachestack.stores.base import Change, Changes, StoreSize
from cachestack.stores.codec import charged_bytes, encode_entry, gone_at_s, with_vector
from cachestack.stores.fences import Fence, Fences, needs_fence
from cachestack.stores.limits import check_fits, check_selector


@dataclass(slots=True)
class _Kept:
    entry: Entry
    num_bytes: int
    used_at_s: float


@dataclass(slots=True)
class _Room:
    """A partition: entries by id, ids by exact key, the latest changes."""

    latest: int
    journal: deque[Change]
    entries: dict[str, _Kept] = field(default_factory=dict)
    exact: dict[str, str] = field(default_factory=dict)

    def log(self, change: Callable[[int], Change]) -> None:
        self.latest += 1
        self.journal.append(change(self.latest))


class MemoryStore:
    """An EntryStore whose entries end with the process. `journal_length` is as in DiskStore."""

    def __init__(self, clock: Callable[[], float] = time.time, *, journal_length: int = 8192) -> None:
        self._clock = clock
        self._journal_length = journal_length
        self._start = 1 + secrets.randbelow(2**48)  # as in DiskStore: numbers of two stores are not comparable
        self._lock = threading.RLock()
        self._fences = Fences()
        self._rooms: dict[Partition, _Room] = {}
        self._order: dict[str, OrderedDict[tuple[Partition, str], None]] = {}  # by tenant, oldest use first
        self._num_bytes: dict[str, int] = {}
        self._closed = False

    @property
    def num_corrupt(self) -> int:
        return 0

    def find_exact(self, partition: Partition, exact: str) -> Entry | None:
        with self._open():
            room = self._rooms.get(partition)
            entry_id = room.exact.get(exact) if room else None
            return room.entries[entry_id].entry if room and entry_id is not None else None

    def find_exact_at_once(self, partition: Partition, exact: str, moment: object = None) -> Entry | None:
        return self.find_exact(partition, exact)

    def get(self, partition: Partition, entry_id: str) -> Entry | None:
        with self._open():
            room = self._rooms.get(partition)
            kept = room.entries.get(entry_id) if room else None
            return kept.entry if kept else None

    def entries(self, partition: Partition) -> Iterator[Entry]:
        with self._open():
            room = self._rooms.get(partition)
            return iter([kept.entry for kept in room.entries.values()] if room else [])

    def select(self, selector: Selector) -> Iterator[Entry]:
        with self._open():
            kept = [kept.entry for room in self._rooms.values() for kept in room.entries.values()]
        return filter(selector.matches, kept)

    def put(self, entry: Entry, max_bytes: int | None = None, *, keep_newer: bool = False) -> bool:
        """As in DiskStore. Raises EntryTooLarge."""
        num_bytes = charged_bytes(encode_entry(entry))
        check_fits(num_bytes, max_bytes)
        with self._open():
            if self._fences.hold_back(entry, self._clock()):
                return False
            partition = entry.partition
            room = self._rooms.setdefault(partition, self._new_room())
            if keep_newer:
                there = [room.entries.get(found) for found in (room.exact.get(entry.exact), entry.entry_id) if found]
                if any(kept is not None and kept.entry.created_at_s >= entry.created_at_s for kept in there):
                    return False
            older = room.exact.get(entry.exact)
            if older is not None and older != entry.entry_id:
                self._remove(partition, older)
            before = room.entries.get(entry.entry_id)
            if before is not None and before.entry.exact != entry.exact:
                del room.exact[before.entry.exact]
            self._count(partition.tenant, num_bytes - (before.num_bytes if before else 0))
            room.entries[entry.entry_id] = _Kept(entry, num_bytes, self._clock())
            room.exact[entry.exact] = entry.entry_id
            order = self._order.setdefault(partition.tenant, OrderedDict())
            order[partition, entry.entry_id] = None
            order.move_to_end((partition, entry.entry_id))
            room.log(lambda number: Change(number, "put", entry.entry_id))
            if max_bytes is not None:
                self._evict(partition.tenant, max_bytes)
            return True

    def set_vector(self, partition: Partition, entry_id: str, vector: bytes, encoder: str, states: bytes = b"") -> bool:
        """As in DiskStore."""
        with self._open():
            room = self._rooms.get(partition)
            kept = room.entries.get(entry_id) if room else None
            if room is None or kept is None:
                return False
            entry = with_vector(kept.entry, vector, encoder, states)
            num_bytes = charged_bytes(encode_entry(entry))
            self._count(partition.tenant, num_bytes - kept.num_bytes)
            kept.entry, kept.num_bytes = entry, num_bytes
            room.log(lambda number: Change(number, "put", entry_id))
            return True

    def prolong(self, partition: Partition, entry_id: str, now_s: float, sliding_s: float) -> bool:
        """As in DiskStore."""
        with self._open():
            room = self._rooms.get(partition)
            kept = room.entries.get(entry_id) if room else None
            if kept is None:
                return False
            kept.entry = kept.entry.used(now_s, sliding_s)
            return True

    def touch(self, partition: Partition, entry_id: str, now_s: float) -> None:
        with self._open():
            order = self._order.get(partition.tenant, OrderedDict())
            if (partition, entry_id) in order:
                order.move_to_end((partition, entry_id))

    def touch_at_once(self, partition: Partition, entry_id: str, now_s: float) -> bool:
        self.touch(partition, entry_id, now_s)
        return True

    def latest(self, partition: Partition) -> int:
        with self._open():
            room = self._rooms.get(partition)
            return room.latest if room else 0

    def changes(self, partition: Partition, since: int) -> Changes:
        with self._open():
            room = self._rooms.get(partition)
            latest = room.latest if room else 0
            missing = latest - since
            if room is None or missing == 0:
                return Changes(latest, complete=missing == 0)
            if not 0 < missing <= len(room.journal):
                return Changes(latest, complete=False)
            return Changes(latest, complete=True, changes=tuple(room.journal)[-missing:])

    def invalidate(self, selector: Selector) -> int:
        check_selector(selector)
        with self._open():
            if needs_fence(selector):
                self._fences.add(Fence(self._clock(), selector))
            return self._remove_if(selector.matches)

    def purge(self, now_s: float) -> int:
        return self._remove_if(lambda entry: gone_at_s(entry) <= now_s)

    def size(self, tenant: str | None = None) -> StoreSize:
        with self._open():
            tenants = list(self._order) if tenant is None else [tenant]
            num_entries = sum(len(self._order.get(t, ())) for t in tenants)
            return StoreSize(num_entries, sum(self._num_bytes.get(t, 0) for t in tenants))

    def tenants(self) -> list[str]:
        """The tenants that have or had entries, sorted."""
        with self._open():
            return sorted(self._order)

    def close(self) -> None:
        """Drop everything. Later calls raise StoreError."""
        with self._lock:
            self._closed = True
            self._rooms.clear()
            self._order.clear()
            self._num_bytes.clear()

    def _open(self) -> threading.RLock:
        if self._closed:
            raise StoreError("the store was closed")
        return self._lock

    def _new_room(self) -> _Room:
        return _Room(self._start, deque(maxlen=self._journal_length))

    def _remove_if(self, matches: Callable[[Entry], bool]) -> int:
        with self._open():
            found = [
                (partition, entry_id)
                for partition, room in self._rooms.items()
                for entry_id, kept in room.entries.items()
                if matches(kept.entry)
            ]
            for partition, entry_id in found:
                self._remove(partition, entry_id)
            return len(found)

    def _evict(self, tenant: str, max_bytes: int) -> None:
        while self._num_bytes[tenant] > max_bytes:
            self._remove(*next(iter(self._order[tenant])))

    def _remove(self, partition: Partition, entry_id: str) -> None:
        room = self._rooms[partition]
        kept = room.entries.pop(entry_id)
        del room.exact[kept.entry.exact]
        del self._order[partition.tenant][partition, entry_id]
        self._count(partition.tenant, -kept.num_bytes)
        room.log(lambda number: Change(number, "remove", entry_id))

    def _count(self, tenant: str, num_bytes: int) -> None:
        self._num_bytes[tenant] = self._num_bytes.get(tenant, 0) + num_bytes
