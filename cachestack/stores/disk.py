"""Entries on disk, shared by all processes that open the same folder.

Each tenant has a folder of its own, named by a digest, with one diskcache (SQLite) file in it: tenants do not wait for
each other's writes, and a damaged file costs one tenant its entries. Readers never wait for writers. Another process
sees a write at its next call. A write is safe from kill -9 when the call returns; after a power cut the last writes
may be missing, but none is partial. Put the folder on a local disk: SQLite's shared memory does not work over NFS.

Uses (`touch`) are kept in memory and written with the next write, at most once a second, or at `close`: another
process does not see them at once, and a kill loses them. Only the order of eviction depends on them.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from cachestack.entries import Entry, Selector
from cachestack.errors import StoreError
from cachestack.keys import Partition
from cachestack.stores.base import NOT_NOW, Changes, NotNow, StoreSize
from cachestack.stores.codec import charged_bytes, encode_entry, gone_at_s, with_vector
from cachestack.stores.examining import decoded, examine
from cachestack.stores.fences import Fence, Fences, decode_fence, needs_fence
from cachestack.stores.layout import ENTRY, FENCE, ID_OFFSET, entry_key, text_digest, wall
from cachestack.stores.limits import check_fits, check_selector
from cachestack.stores.steady import SteadyFile
from cachestack.stores.tenant import BATCH, Page, Tenant
from cachestack.stores.tenants import Tenants, folder_name
from cachestack.stores.warm import WarmEntries

USE_INTERVAL_S = 1.0
_Uses = dict[tuple[Partition, str], float]


class DiskStore:
    """An EntryStore. Nothing is created before the first `put`, and nothing is opened before it is needed.

    `timeout_s` bounds the wait for another writer; `max_open` tenants keep their file open (three descriptors for
    each thread that uses it). `journal_length` is how many changes of a partition are remembered.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.time,
        *,
        timeout_s: float = 2.0,
        max_open: int = 32,
        journal_length: int = 8192,
    ) -> None:
        self._clock = clock
        self._tenants = Tenants(folder, timeout_s=timeout_s, max_open=max_open, journal_length=journal_length)
        self._fences = Fences()
        self._warm: WarmEntries | None = None  # from the first time on that somebody asks who must not wait
        self._lock = threading.Lock()  # guards the two below
        self._uses: defaultdict[str, _Uses] = defaultdict(dict)
        self._uses_written_s: dict[str, float] = {}

    @property
    def num_corrupt(self) -> int:
        """Damaged entries and files that this process has found."""
        return self._tenants.num_corrupt

    def find_exact(self, partition: Partition, exact: str) -> Entry | None:
        warm = self._warm

        def find(tenant: Tenant) -> Entry | None:
            if warm is None:
                return tenant.find_exact(partition, exact)
            number = tenant.latest(partition)
            entry = tenant.find_exact(partition, exact)
            if entry is not None:
                warm.keep(tenant, number, entry)
            return entry

        return self._tenants.run(folder_name(partition.tenant), find, absent=None)

    def find_exact_at_once(self, partition: Partition, exact: str, moment: object = None) -> Entry | NotNow:
        """An entry that was read before and has not changed; for others SQLite might wait for the disk."""
        if self._warm is None:
            self._warm = WarmEntries()
        if moment is not None and (known := self._warm.find_known(partition, exact, moment)) is not None:
            return known
        tenant = self._tenants.opened(folder_name(partition.tenant))
        return NOT_NOW if tenant is None else self._warm.find(tenant, partition, exact, moment)

    def get(self, partition: Partition, entry_id: str) -> Entry | None:
        return self._tenants.run(folder_name(partition.tenant), lambda t: t.get(partition, entry_id), absent=None)

    def entries(self, partition: Partition) -> Iterator[Entry]:
        """In no particular order. What is put or removed meanwhile may be seen or not."""
        return (entry for _, entry in self._walk(folder_name(partition.tenant), ENTRY + wall(partition)))

    def select(self, selector: Selector) -> Iterator[Entry]:
        names = self._tenants.names() if selector.tenant is None else [folder_name(selector.tenant)]
        for name in names:
            if selector.entry_id is None:
                entries = (entry for _, entry in self._walk(name, ENTRY))
            else:
                entries = (entry for keys in self._matching(name, selector) for entry in self._read(name, keys))
            yield from filter(selector.matches, entries)

    def at_one_moment(self, selector: Selector) -> Iterator[Entry]:
        """As `select`, of each tenant what was there at one and the same moment. Damaged entries are left out."""
        for name in self._tenants.names():
            if selector.tenant is None or name == folder_name(selector.tenant):
                with self._tenants.apart(name) as folder, SteadyFile(folder) as file:
                    entries = (decoded(row.value) for row in file.rows(ENTRY))
                    yield from (entry for entry in entries if entry is not None and selector.matches(entry))

    def partitions(self, selector: Selector) -> Iterator[Partition]:
        """Those that have entries, of the tenant that is asked for."""
        for name in self._tenants.names():
            if selector.tenant is None or name == folder_name(selector.tenant):
                with self._tenants.apart(name) as folder, SteadyFile(folder) as file:
                    found = list(file.firsts(ENTRY, ID_OFFSET))
                entries = (decoded(row.value) for row in found)
                yield from {entry.partition: None for entry in entries if entry is not None}

    def fences(self) -> list[Fence]:
        """The invalidations that are remembered, each once, the oldest first."""
        found: dict[Fence, None] = {}
        for name in self._tenants.names():
            with self._tenants.apart(name) as folder, SteadyFile(folder) as file:
                found |= {fence: None for row in file.rows(FENCE) if (fence := decode_fence(row.value)) is not None}
        return sorted(found, key=lambda fence: fence.at_s)

    def put(self, entry: Entry, max_bytes: int | None = None, *, keep_newer: bool = False) -> bool:
        """As the contract says. Raises EntryTooLarge, and changes nothing, where the entry alone exceeds the budget."""
        data = encode_entry(entry)
        check_fits(charged_bytes(data), max_bytes)
        name, now_s = folder_name(entry.partition.tenant), self._clock()
        if self._fences.hold_back(entry, now_s):
            return False
        uses = self._take_uses(name)
        return self._tenants.run(
            name,
            lambda t: t.put(entry, data, now_s, max_bytes, uses, keep_newer=keep_newer),
            absent=False,
            create_for=entry.partition.tenant,
            write=True,
        )

    def set_vector(self, partition: Partition, entry_id: str, vector: bytes, encoder: str, states: bytes = b"") -> bool:
        """Give an entry the vector and the states of another encoder; False if it has gone. Nothing else changes."""

        def encode(entry: Entry) -> bytes:
            return encode_entry(with_vector(entry, vector, encoder, states))

        name = folder_name(partition.tenant)
        return self._tenants.run(name, lambda t: t.set_vector(partition, entry_id, encode), absent=False, write=True)

    def prolong(self, partition: Partition, entry_id: str, now_s: float, sliding_s: float) -> bool:
        """As the contract says."""

        def encode(entry: Entry) -> bytes:
            return encode_entry(entry.used(now_s, sliding_s))

        name = folder_name(partition.tenant)
        return self._tenants.run(name, lambda t: t.prolong(partition, entry_id, encode), absent=False, write=True)

    def touch(self, partition: Partition, entry_id: str, now_s: float) -> None:
        name = folder_name(partition.tenant)
        with self._lock:
            self._uses[name][partition, entry_id] = now_s
            due = self._is_writing_due(name)
        if due:
            self._write_uses(name)

    def touch_at_once(self, partition: Partition, entry_id: str, now_s: float) -> bool:
        name = folder_name(partition.tenant)
        with self._lock:
            if self._is_writing_due(name):
                return False
            self._uses[name][partition, entry_id] = now_s
            return True

    def latest(self, partition: Partition) -> int:
        return self._tenants.run(folder_name(partition.tenant), lambda t: t.latest(partition), absent=0)

    def changes(self, partition: Partition, since: int) -> Changes:
        nothing = Changes(0, complete=since == 0)
        return self._tenants.run(folder_name(partition.tenant), lambda t: t.changes(partition, since), absent=nothing)

    def invalidate(self, selector: Selector) -> int:
        check_selector(selector)
        fence = Fence(self._clock(), selector)
        if needs_fence(selector):
            self._fences.add(fence)
        names = self._tenants.names() if selector.tenant is None else [folder_name(selector.tenant)]
        for name in names if needs_fence(selector) else ():
            self._add_fence(name, fence)
        return sum(
            self._remove_if(name, keys, selector.matches) for name in names for keys in self._matching(name, selector)
        )

    def has_fence_since(self, tenant: str, at_s: float) -> bool:
        """Whether any process has invalidated something of the tenant's after `at_s`, but for entries by their id."""
        now_s = self._clock()
        return self._tenants.run(folder_name(tenant), lambda t: t.has_fence_between(at_s, now_s), absent=False)

    def _add_fence(self, name: str, fence: Fence) -> None:
        self._tenants.run(name, lambda t: t.add_fence(fence), absent=None, write=True)

    def purge(self, now_s: float) -> int:
        num_removed = 0
        for name in self._tenants.names():
            before: list[bytes] = []
            while (keys := self._gone(name, now_s)) and keys != before:
                num_removed += self._remove_if(name, keys, lambda entry: gone_at_s(entry) <= now_s)
                before = keys
            self._tenants.run(name, Tenant.trim, absent=None, write=True)
        return num_removed

    def size(self, tenant: str | None = None) -> StoreSize:
        names = self._tenants.names() if tenant is None else [folder_name(tenant)]
        sizes = [self._tenants.run(name, Tenant.size, absent=StoreSize(0, 0)) for name in names]
        return StoreSize(sum(s.num_entries for s in sizes), sum(s.num_bytes for s in sizes))

    def tenants(self) -> list[str]:
        """The tenants that have or had entries, sorted."""
        names = [self._tenants.run(name, lambda t: t.name, absent="") for name in self._tenants.names()]
        return sorted(filter(None, names))

    def problems(self) -> list[str]:
        """What a full check of all files finds wrong; empty when all is well. Reads everything, each file as it is at
        one moment, and mends nothing: `cachestack doctor` does."""
        found = []
        for name in self._tenants.names():
            with self._tenants.apart(name) as folder:
                found += [f"{name}: {fault} ({num})" for fault, num in examine(folder).faults.items()]
        return found

    def close(self) -> None:
        """Write the uses that are still in memory and close all files. Later calls raise StoreError."""
        for name in list(self._uses):
            with suppress(StoreError):
                self._write_uses(name)
        self._tenants.close()

    def _is_writing_due(self, name: str) -> bool:
        now_s = self._clock()
        return not 0 <= now_s - self._uses_written_s.setdefault(name, now_s) < USE_INTERVAL_S

    # in batches, so that other writers get their turn

    def _matching(self, name: str, selector: Selector) -> Iterator[list[bytes]]:
        """Keys of entries that match now."""
        if selector.entry_id is not None:  # in any partition, found by the key index alone
            part = text_digest(selector.entry_id)
            nothing: list[bytes] = []
            yield self._tenants.run(name, lambda t: t.file.keys_where(ENTRY, ID_OFFSET, part), absent=nothing)
            return
        batch: list[bytes] = []
        for key, entry in self._walk(name, ENTRY):
            if selector.matches(entry):
                batch.append(key)
            if len(batch) == BATCH:
                yield batch
                batch = []
        yield batch

    def _gone(self, name: str, now_s: float) -> list[bytes]:
        nothing: list[bytes] = []
        return self._tenants.run(name, lambda t: t.file.gone(now_s, BATCH), absent=nothing)

    def _remove_if(self, name: str, keys: list[bytes], matches: Callable[[Entry], bool]) -> int:
        if not keys:
            return 0
        return self._tenants.run(name, lambda t: t.remove_if(keys, matches), absent=0, write=True)

    def _read(self, name: str, keys: list[bytes]) -> list[Entry]:
        nothing: list[Entry] = []
        return self._tenants.run(name, lambda t: t.read(keys), absent=nothing)

    def _walk(self, name: str, prefix: bytes) -> Iterator[tuple[bytes, Entry]]:
        start: bytes | None = prefix
        while start is not None:
            page = self._page(name, start, prefix)
            if page is None:
                return
            yield from page.entries
            start = page.next_key

    def _page(self, name: str, start: bytes, prefix: bytes) -> Page | None:
        return self._tenants.run(name, lambda t: t.page(start, prefix), absent=None)

    # uses

    def _take_uses(self, name: str) -> dict[bytes, float]:
        with self._lock:
            self._uses_written_s[name] = self._clock()
            uses = self._uses.pop(name, {})
        return {entry_key(*used): at_s for used, at_s in uses.items()}

    def _write_uses(self, name: str) -> None:
        uses = self._take_uses(name)
        if uses:
            self._tenants.run(name, lambda t: t.use(uses), absent=None, write=True)
