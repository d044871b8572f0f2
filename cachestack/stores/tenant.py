"""One tenant's entries, as rows of one file; each method is one step for the other threads and processes.

The rows are drawn in `layout.py`. An entry, its exact key, its change record and the counters are written in one
transaction: after a crash all of them are there, or none. Change numbers start from a random number, so that those of
a file that was lost and begun anew are never taken for a continuation.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cachestack.entries import CLOCK_SLACK_S, Entry
from cachestack.keys import Partition
from cachestack.stores.base import Change, Changes, StoreSize
from cachestack.stores.codec import CorruptEntry, charged_bytes, decode_entry, gone_at_s
from cachestack.stores.fences import KEEP_S, Fence, decode_fence, encode_fence
from cachestack.stores.layout import (
    CHANGE,
    ENTRY,
    EXACT,
    FENCE,
    LATEST,
    TENANT,
    change_key,
    entry_key,
    exact_key,
    fence_key,
    pack_number,
    unpack_number,
    wall,
    wall_of,
)
from cachestack.stores.peeking import Peeking
from cachestack.stores.tenant_file import Row, TenantFile, after

BATCH = 256
_PUT, _REMOVE = b"+", b"-"


@dataclass(frozen=True, slots=True)
class Page:
    """Some entries with their keys; `next_key` is where the next page starts, None at the end."""

    entries: list[tuple[bytes, Entry]]
    next_key: bytes | None


class Tenant:
    """Raises sqlite3.Error or OSError when the medium fails. `on_corrupt` is called for each entry found damaged."""

    def __init__(
        self, folder: Path, tenant: str | None, timeout_s: float, journal_length: int, on_corrupt: Callable[[], None]
    ) -> None:
        """`tenant` is None for a file found in the folder: it knows its own, or UnfinishedFile is raised."""
        self.file = TenantFile(folder, timeout_s)
        self.identity = object()
        """Stands for this very file, without keeping it open."""
        self.peeking = Peeking(folder)
        self._journal_length = journal_length
        self._on_corrupt = on_corrupt
        head = self.file.read(TENANT)
        if head is None:
            if tenant is None:
                self.file.close_all()
                raise UnfinishedFile("the file does not say yet whose entries it holds")
            with self.file.atomic():
                head = self.file.read(TENANT)
                if head is None:
                    head = json.dumps([tenant, 1 + secrets.randbelow(2**48)]).encode()
                    self.file.write(TENANT, head)
        self.name, self._start = _parse_head(head)

    def close(self) -> None:
        """Close the connections of all threads."""
        self.file.close_all()
        self.peeking.close()

    # reading

    def find_exact(self, partition: Partition, exact: str) -> Entry | None:
        key = exact_key(partition, exact)
        data = self.file.follow(key)
        if data is None:
            return None
        entry = self._decode(data)
        if entry is None:
            target = self.file.read(key)
            if target is not None:
                self.drop_corrupt(target)
            return None
        return entry if entry.exact == exact and entry.partition == partition else None

    def get(self, partition: Partition, entry_id: str) -> Entry | None:
        key = entry_key(partition, entry_id)
        data = self.file.read(key)
        if data is None:
            return None
        entry = self._decode(data)
        if entry is None:
            self.drop_corrupt(key)
            return None
        return entry if entry.entry_id == entry_id and entry.partition == partition else None

    def read(self, keys: Iterable[bytes]) -> list[Entry]:
        """Those of the entries that are there and not damaged."""
        found = (self.file.read(key) for key in keys)
        return [entry for data in found if data is not None and (entry := self._decode(data)) is not None]

    def page(self, start: bytes, prefix: bytes) -> Page:
        """The entries under `prefix` from the key `start` on, a batch of them. Damaged ones are removed."""
        rows = self.file.rows(start, after(prefix), BATCH)
        entries = []
        for row in rows:
            entry = self._decode(row.value)
            if entry is None:
                self.drop_corrupt(row.key)
            else:
                entries.append((row.key, entry))
        return Page(entries, rows[-1].key + b"\0" if len(rows) == BATCH else None)

    def _all(self, prefix: bytes, start: bytes | None = None) -> Iterator[Row]:
        rows = self.file.rows(start or prefix, after(prefix), BATCH)
        while rows:
            yield from rows
            rows = self.file.rows(rows[-1].key + b"\0", after(prefix), BATCH)

    def size(self) -> StoreSize:
        return StoreSize(self.file.num_entries(), self.file.num_bytes())

    def latest(self, partition: Partition) -> int:
        return self._number(wall(partition))

    def changes(
        self, partition: Partition, since: int, by: Peeking | None = None, *, at_most: int | None = None
    ) -> Changes:
        """More than `at_most` are not complete, nor than are remembered. `by`: who reads, and waits for nothing."""
        file, where = by or self.file, wall(partition)
        latest = self._number(where, file)
        if since == latest:
            return Changes(latest, complete=True)
        missing = latest - since
        if not 0 < missing <= min(self._journal_length, at_most or self._journal_length):
            return Changes(latest, complete=False)
        rows = file.rows(change_key(where, since + 1), change_key(where, latest + 1), missing)
        try:
            changes = tuple(map(_parse_change, rows))
        except ValueError:
            return Changes(latest, complete=False)
        return Changes(latest, len(changes) == missing, changes if len(changes) == missing else ())

    def has_fence_between(self, at_s: float, now_s: float) -> bool:
        fences = (decode_fence(row.value) for row in self._all(FENCE, fence_key(at_s)))
        return any(fence is not None and at_s < fence.at_s <= now_s + CLOCK_SLACK_S for fence in fences)

    # writing: each of these is one transaction

    def put(
        self,
        entry: Entry,
        data: bytes,
        now_s: float,
        max_bytes: int | None,
        uses: Mapping[bytes, float],
        *,
        keep_newer: bool = False,
    ) -> bool:
        """False where an invalidation holds the entry back; with `keep_newer`, where one as new is there."""
        key, question = entry_key(entry.partition, entry.entry_id), exact_key(entry.partition, entry.exact)
        where = wall(entry.partition)
        with self.file.atomic():
            self._use(uses)
            if self._is_held_back(entry, now_s):
                return False
            older = self.file.read(question)
            if keep_newer and any(e.created_at_s >= entry.created_at_s for e in self.read({older or key, key})):
                return False
            if older is not None and older != key:
                self._remove(older)
            self._unlink_other_question(key, question)
            self.file.write(key, data, now_s=now_s, size=charged_bytes(data), gone_at_s=gone_at_s(entry))
            self.file.write(question, key)
            self._log(where, _PUT, entry.entry_id)
            if max_bytes is not None:
                self._evict(max_bytes, but=key)
        return True

    def add_fence(self, fence: Fence) -> None:
        """Remember an invalidation, and forget those that are too old, or from before the clock was set back."""
        with self.file.atomic():
            self.file.remove_range(FENCE, fence_key(fence.at_s - KEEP_S))
            self.file.remove_range(fence_key(fence.at_s + KEEP_S), after(FENCE))
            self.file.write(fence_key(fence.at_s, secrets.token_bytes(8)), encode_fence(fence))

    def set_vector(self, partition: Partition, entry_id: str, encode: Callable[[Entry], bytes]) -> bool:
        """Rewrite an entry in place, unless it has gone meanwhile; its last use stays."""
        with self.file.atomic():
            if not self._rewrite(partition, entry_id, encode):
                return False
            self._log(wall(partition), _PUT, entry_id)
            return True

    def prolong(self, partition: Partition, entry_id: str, encode: Callable[[Entry], bytes]) -> bool:
        """As `set_vector`, for an entry whose end a use has moved: nobody needs to read its vector again."""
        with self.file.atomic():
            return self._rewrite(partition, entry_id, encode)

    def remove_if(self, keys: Iterable[bytes], matches: Callable[[Entry], bool]) -> int:
        """Remove those of the entries that (still) match; returns how many."""
        num_removed = 0
        with self.file.atomic():
            for key in keys:
                data = self.file.read(key)
                entry = None if data is None else self._decode(data)
                if data is not None and (entry is None or matches(entry)):
                    self._remove(key)
                    num_removed += entry is not None
        return num_removed

    def use(self, uses: Mapping[bytes, float]) -> None:
        with self.file.atomic():
            self._use(uses)

    def drop_corrupt(self, key: bytes) -> None:
        """Remove a damaged entry. It was counted when it was read; a medium that cannot be written leaves it."""
        with suppress(sqlite3.OperationalError), self.file.atomic():
            data = self.file.read(key)
            if data is not None and _is_corrupt(data):
                self._remove(key)

    def drop(self, key: bytes) -> None:
        """Remove whatever is at the key of an entry, and the ways to it. Inside a transaction."""
        self._remove(key)

    def trim(self) -> None:
        """Forget the change records of partitions that have no entries: whoever asks starts over, from nothing."""
        key = LATEST
        while rows := self.file.rows(key + b"\0", after(LATEST), BATCH):
            with self.file.atomic():
                for row in rows:
                    where = row.key[1:]
                    if not self.file.rows(ENTRY + where, after(ENTRY + where), 1):
                        self.file.remove_range(CHANGE + where, after(CHANGE + where))
            key = rows[-1].key

    # inside a transaction

    def _rewrite(self, partition: Partition, entry_id: str, encode: Callable[[Entry], bytes]) -> bool:
        key = entry_key(partition, entry_id)
        data = self.file.read(key)
        entry = None if data is None else self._decode(data)
        if entry is None:
            return False
        fresh = encode(entry)
        self.file.rewrite(key, fresh, charged_bytes(fresh))
        return True

    def _use(self, uses: Mapping[bytes, float]) -> None:
        for key, used_at_s in uses.items():
            self.file.use(key, used_at_s)

    def _is_held_back(self, entry: Entry, now_s: float) -> bool:
        fences = (decode_fence(row.value) for row in self._all(FENCE, fence_key(entry.created_at_s)))
        return any(fence is not None and fence.holds_back(entry, now_s) for fence in fences)

    def _evict(self, max_bytes: int, but: bytes) -> None:
        excess = self.file.num_bytes() - max_bytes
        while excess > 0 and (rows := self.file.least_recently_used(but, 32)):
            for row in rows:
                if excess <= 0:
                    break
                self._remove(row.key)
                excess -= row.size

    def _remove(self, key: bytes) -> None:
        data = self.file.read(key)
        if data is None:
            return
        self.file.remove(key)
        where = wall_of(key)
        try:
            entry = decode_entry(data)
        except CorruptEntry:
            self.file.remove_pointers(EXACT + where, key)
            self.start_over(where)
            return
        question = exact_key(entry.partition, entry.exact)
        if self.file.read(question) == key:
            self.file.remove(question)
        self._log(where, _REMOVE, entry.entry_id)

    def _unlink_other_question(self, key: bytes, question: bytes) -> None:
        """An entry that is put again under the same id may answer another question now."""
        before = self.file.read(key)
        if before is None:
            return
        try:
            old = decode_entry(before)
        except CorruptEntry:
            self.file.remove_pointers(EXACT + wall_of(key), key)
            return
        old_question = exact_key(old.partition, old.exact)
        if old_question != question and self.file.read(old_question) == key:
            self.file.remove(old_question)

    def _number(self, where: bytes, by: Peeking | TenantFile | None = None) -> int:
        stored = (by or self.file).read(LATEST + where)
        number = None if stored is None else unpack_number(stored)
        return self._start if number is None else number

    def _log(self, where: bytes, kind: bytes, entry_id: str) -> None:
        number = self._number(where) + 1
        self.file.write(change_key(where, number), kind + entry_id.encode("utf-8", "surrogatepass"))
        self.file.remove(change_key(where, max(0, number - self._journal_length)))
        self.file.write(LATEST + where, pack_number(number))

    def start_over(self, where: bytes) -> None:
        """A change that cannot be described: readers must read the partition again."""
        number = self._number(where) + 1
        self.file.remove_range(CHANGE + where, after(CHANGE + where))
        self.file.write(LATEST + where, pack_number(number))

    def _decode(self, data: bytes) -> Entry | None:
        try:
            return decode_entry(data)
        except CorruptEntry:
            self._on_corrupt()
            return None


def _is_corrupt(data: bytes) -> bool:
    try:
        decode_entry(data)
    except CorruptEntry:
        return True
    return False


def _parse_change(row: Row) -> Change:
    number = int.from_bytes(row.key[-8:], "big")
    entry_id = row.value[1:].decode("utf-8", "surrogatepass")
    return Change(number, "put" if row.value[:1] == _PUT else "remove", entry_id)


def _parse_head(head: bytes) -> tuple[str, int]:
    try:
        name, start = json.loads(head)
        return str(name), int(start)
    except (ValueError, TypeError) as error:
        raise CorruptFile(f"the tenant's name cannot be read: {error}") from error


class UnfinishedFile(Exception):
    """A file without a single entry: its maker was killed, or is at it in this moment. It is left alone."""


class CorruptFile(Exception):
    """The file is a database, but not one of ours."""
