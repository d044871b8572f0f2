"""Entries that were read a short while ago, for callers that must not wait for a file.

They follow the store's change record: before an entry is given, the changes of its partition since it was read are
looked at, so that a write, an eviction or an invalidation by any process is seen as by a read. While SQLite's number
of the file's state is the same, nothing was written and nothing needs to be looked at.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass

from cachestack.entries import Entry
from cachestack.keys import Partition
from cachestack.stores.base import NOT_NOW, NotNow
from cachestack.stores.peeking import Version
from cachestack.stores.tenant import Tenant

_MAX_ENTRY_BYTES = 64 * 1024
_MAX_CHANGES = 64
"""More than these are not read by someone who must not wait: the partition's entries are read anew."""


@dataclass(slots=True, eq=False)
class _Room:
    """What is known of a partition in one file, as of change `number`, which was the latest when the file was at
    `version`: the exact keys of its entries by their ids."""

    file: object
    number: int
    version: Version | None
    exact_of: dict[str, str]
    moment: object = None
    """The caller's moment at which that was last looked at."""


@dataclass(frozen=True, slots=True)
class _Read:
    room: _Room
    entry: Entry
    num_bytes: int


class WarmEntries:
    """The least recently used go first. Safe under threads."""

    def __init__(self, max_bytes: int = 32 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()  # held while a change record is read, too
        self._reads: OrderedDict[str, _Read] = OrderedDict()
        self._rooms: dict[Partition, _Room] = {}

    def find_known(self, partition: Partition, exact: str, moment: object) -> Entry | None:
        """Where its partition was looked at in this very moment; the file itself is not asked."""
        read = self._reads.get(exact)
        if read is None or read.room.moment is not moment or read.entry.partition != partition:
            return None
        return read.entry

    def find(self, tenant: Tenant, partition: Partition, exact: str, moment: object = None) -> Entry | NotNow:
        """Does not wait. NOT_NOW: it was not read yet, or has changed, or another thread is at it."""
        if not self._lock.acquire(blocking=False):
            return NOT_NOW
        try:
            read = self._reads.get(exact)
            if read is None or read.entry.partition != partition:
                return NOT_NOW
            if not self._follow(tenant, partition, read.room) or exact not in self._reads:
                return NOT_NOW
            self._reads.move_to_end(exact)
            read.room.moment = moment
            return read.entry
        finally:
            self._lock.release()

    def keep(self, tenant: Tenant, number: int, entry: Entry) -> None:
        """`number` was the latest change of the partition before the entry was read."""
        num_bytes = 1000 + len(entry.question) + len(entry.answer) + len(entry.vector or b"") + len(entry.states)
        if num_bytes > _MAX_ENTRY_BYTES:
            return
        with self._lock:
            room = self._rooms.get(entry.partition)
            if room is None or room.file is not tenant.identity or room.number != number:
                if room is not None:
                    if room.file is tenant.identity and room.number > number:
                        return  # something has changed since it was read
                    self._forget(entry.partition, room)
                room = _Room(tenant.identity, number, None, {})
            self._drop(entry.exact)
            self._rooms[entry.partition] = room
            self._reads[entry.exact] = _Read(room, entry, num_bytes)
            room.exact_of[entry.entry_id] = entry.exact
            self._num_bytes += num_bytes
            while self._num_bytes > self._max_bytes:
                self._drop(next(iter(self._reads)))

    def _follow(self, tenant: Tenant, partition: Partition, room: _Room) -> bool:
        """Drop what has changed. False: that could not be done now."""
        if room.file is not tenant.identity:
            self._forget(partition, room)
            return False
        try:
            version = tenant.peeking.version()  # before the changes: one that comes between is seen the next time
            if version == room.version:
                return True
            changes = tenant.changes(partition, room.number, tenant.peeking, at_most=_MAX_CHANGES)
        except sqlite3.Error:
            return False
        if not changes.complete:
            self._forget(partition, room)
            return False
        for change in changes.changes:
            exact = room.exact_of.get(change.entry_id)
            if exact is not None:
                self._drop(exact)
        room.number, room.version = changes.latest, version
        return True

    def _forget(self, partition: Partition, room: _Room) -> None:
        for exact in list(room.exact_of.values()):
            self._drop(exact)
        self._rooms.pop(partition, None)

    def _drop(self, exact: str) -> None:
        read = self._reads.pop(exact, None)
        if read is None:
            return
        self._num_bytes -= read.num_bytes
        exact_of = read.room.exact_of
        exact_of.pop(read.entry.entry_id, None)
        if not exact_of and self._rooms.get(read.entry.partition) is read.room:
            del self._rooms[read.entry.partition]
