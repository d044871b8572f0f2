"""The index by meaning: for each partition and encoder a group of vectors, made from the store's entries.

The store is the truth. A group is loaded at the first search of its partition, and at every search it first takes in
what the store's change record tells, so that it sees the writes of this and of other processes at once. What a search
returns is read from the store again, and its similarity is computed from the vector found there: an entry that has
gone is not returned, and neither a snapshot nor a lost update can make a wrong similarity.

Locks: one for the table of groups, one a group. Nobody takes a second group's lock while holding one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from cachestack.entries import Candidate, Entry
from cachestack.keys import Partition
from cachestack.semantic.base import Encoder
from cachestack.semantic.reembed import VectorStore, is_foreign, reembed
from cachestack.semantic.snapshots import Owner, Snapshot, UnusableSnapshot, read_snapshot, write_snapshot
from cachestack.semantic.vectors import Floats, VectorGroup, are_unit, cosine, to_vector
from cachestack.stores.base import EntryStore

_BATCH = 2048


class IndexedStore(EntryStore, VectorStore, Protocol):
    """What an index is made from."""


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """What happened since the index was made. `num_bytes` is what its vectors take in memory now, about."""

    num_groups: int = 0
    num_vectors: int = 0
    num_bytes: int = 0
    num_bad_vectors: int = 0
    num_loads: int = 0
    num_snapshots_used: int = 0
    num_snapshots_rejected: int = 0
    num_snapshots_failed: int = 0
    num_reembedded: int = 0


@dataclass(slots=True)
class _Group:
    """`seen` is the number of the last change of the store that is in `vectors`."""

    partition: Partition
    encoder: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    vectors: VectorGroup | None = None
    seen: int = 0
    num_unsaved: int = 0


class FaissIndex:
    """An Index over `store`. Raises StoreError where the store does.

    A query vector that is not finite, or not of length 1, finds nothing. At most `max_groups` partitions and about
    `max_bytes` of vectors stay in memory; the least recently searched go first. With `snapshot_folder`, a group of at
    least `snapshot_from` vectors is saved there every `snapshot_every` changes, when it leaves memory, and at
    `close`; a snapshot holds vectors and ids of removed entries until it is next written. With `encoder`, up to
    `max_reembedded` entries that another encoder made are encoded anew when their partition is loaded, in the
    searching thread; the others stay exact-only.
    """

    def __init__(
        self,
        store: IndexedStore,
        *,
        snapshot_folder: Path | None = None,
        encoder: Encoder | None = None,
        max_groups: int = 1024,
        max_bytes: int = 2**30,
        snapshot_from: int = 2000,
        snapshot_every: int = 4000,
        max_reembedded: int = 256,
    ) -> None:
        self._store = store
        self._snapshot_folder = snapshot_folder
        self._encoder = encoder
        self._max_groups = max_groups
        self._max_bytes = max_bytes
        self._snapshot_from = snapshot_from
        self._snapshot_every = snapshot_every
        self._max_reembedded = max_reembedded
        self._lock = threading.Lock()  # guards the two below
        self._groups: OrderedDict[tuple[str, str], _Group] = OrderedDict()
        self._counts = IndexCounts()

    def search(
        self, partition: Partition, contract: str, vector: bytes, encoder: str, num_candidates: int
    ) -> list[Candidate]:
        query = to_vector(vector, len(vector) // 4)
        if query is None:
            self._count("num_bad_vectors")
            return []
        group = self._group(partition, encoder)
        with group.lock:
            before = group.seen
            vectors = self._up_to_date(group, len(query))
            ids = vectors.nearest(contract, query, num_candidates)
            has_changed = group.seen != before
        if has_changed or len(self._groups) > self._max_groups:
            self._forget_oldest()
        found = (self._candidate(partition, contract, encoder, entry_id, query) for entry_id in ids)
        return sorted((c for c in found if c is not None), key=lambda c: -c.similarity)

    def counts(self) -> IndexCounts:
        with self._lock:
            held = [g.vectors for g in self._groups.values() if g.vectors is not None]
            return replace(
                self._counts,
                num_groups=len(held),
                num_vectors=sum(map(len, held)),
                num_bytes=sum(vectors.num_bytes for vectors in held),
            )

    def close(self) -> None:
        """Save what is not saved and let go of all memory. A later search loads again."""
        with self._lock:
            groups = list(self._groups.values())
            self._groups.clear()
        for group in groups:
            with group.lock:
                self._save(group)

    def _candidate(
        self, partition: Partition, contract: str, encoder: str, entry_id: str, query: Floats
    ) -> Candidate | None:
        """None where the entry has gone, or has become another one, since the group took it in."""
        entry = self._store.get(partition, entry_id)
        if entry is None or entry.contract != contract or entry.encoder != encoder:
            return None
        vector = to_vector(entry.vector, len(query))
        return None if vector is None else Candidate(entry, cosine(query, vector))

    # the table of groups

    def _group(self, partition: Partition, encoder: str) -> _Group:
        key = (partition.digest, encoder)
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(partition, encoder)
            self._groups.move_to_end(key)
            return group

    def _forget_oldest(self) -> None:
        """Called without any group's lock. A thread that still uses a forgotten group finishes with it."""
        while (group := self._take_oldest_in_excess()) is not None:
            with group.lock:
                self._save(group)

    def _take_oldest_in_excess(self) -> _Group | None:
        with self._lock:
            num_bytes = sum(g.vectors.num_bytes for g in self._groups.values() if g.vectors is not None)
            excess = len(self._groups) > self._max_groups or num_bytes > self._max_bytes
            return self._groups.popitem(last=False)[1] if excess and len(self._groups) > 1 else None

    def _count(self, name: str, more: int = 1) -> None:
        with self._lock:
            self._counts = replace(self._counts, **{name: getattr(self._counts, name) + more})

    # one group, under its lock

    def _up_to_date(self, group: _Group, dimension: int) -> VectorGroup:
        vectors = group.vectors
        if vectors is None or vectors.dimension != dimension:
            vectors = self._load(group, dimension)
        if self._store.latest(group.partition) != group.seen:
            vectors = self._catch_up(group, vectors)
        if group.num_unsaved >= self._snapshot_every:
            self._save(group)
        return vectors

    def _catch_up(self, group: _Group, vectors: VectorGroup) -> VectorGroup:
        changes = self._store.changes(group.partition, group.seen)
        if not changes.complete:
            return self._read_all(group, vectors.dimension)
        touched = dict.fromkeys(change.entry_id for change in changes.changes)  # the last state of each is what counts
        entries = [self._store.get(group.partition, entry_id) for entry_id in touched]
        for entry_id in touched:
            vectors.remove(entry_id)
        self._add(group, vectors, (entry for entry in entries if entry is not None))
        group.seen = changes.latest
        group.num_unsaved += len(changes.changes)
        return vectors

    def _load(self, group: _Group, dimension: int) -> VectorGroup:
        snapshot = self._snapshot(Owner(group.partition.digest, group.encoder, dimension))
        if snapshot is not None and not self._store.changes(group.partition, snapshot.latest).complete:
            self._count("num_snapshots_rejected")  # too old, or of entries that are lost
        elif snapshot is not None:
            self._count("num_snapshots_used")
            group.vectors, group.seen, group.num_unsaved = VectorGroup.thaw(snapshot.group), snapshot.latest, 0
            return group.vectors
        return self._read_all(group, dimension)

    def _read_all(self, group: _Group, dimension: int) -> VectorGroup:
        """Begin anew from the store's entries. The number is read first: what comes meanwhile is told again later."""
        self._count("num_loads")
        seen = self._store.latest(group.partition)
        vectors = VectorGroup(dimension)
        foreign: list[Entry] = []
        entries = self._store.entries(group.partition)
        while batch := list(islice(entries, _BATCH)):
            self._add(group, vectors, batch)
            foreign += [e for e in batch if is_foreign(e, group.encoder)][: self._max_reembedded - len(foreign)]
        group.vectors, group.seen, group.num_unsaved = vectors, seen, len(vectors)
        if foreign and self._encoder is not None and self._encoder.fingerprint == group.encoder:
            self._count("num_reembedded", reembed(self._store, self._encoder, foreign).num_done)
        return vectors

    def _add(self, group: _Group, vectors: VectorGroup, entries: Iterable[Entry]) -> None:
        """Take in those that this encoder made; those whose vector is not usable are counted and left out."""
        ours = [e for e in entries if e.vector is not None and e.encoder == group.encoder]
        whole = [e for e in ours if len(e.vector or b"") == 4 * vectors.dimension]
        rows = np.frombuffer(b"".join(e.vector or b"" for e in whole), dtype="<f4").reshape(-1, vectors.dimension)
        usable = are_unit(rows)
        good = [entry for entry, ok in zip(whole, usable, strict=True) if ok]
        if len(good) < len(ours):
            self._count("num_bad_vectors", len(ours) - len(good))
        if good:
            vectors.put([e.entry_id for e in good], [e.contract for e in good], rows[usable])

    # snapshots

    def _snapshot(self, owner: Owner) -> Snapshot | None:
        if self._snapshot_folder is None:
            return None
        try:
            return read_snapshot(self._snapshot_folder, owner)
        except (UnusableSnapshot, OSError):
            self._count("num_snapshots_rejected")
            return None

    def _save(self, group: _Group) -> None:
        """A snapshot that cannot be written costs time at the next start, nothing else."""
        vectors = group.vectors
        if self._snapshot_folder is None or vectors is None or not group.num_unsaved:
            return
        if len(vectors) < self._snapshot_from:
            return
        owner = Owner(group.partition.digest, group.encoder, vectors.dimension)
        try:
            write_snapshot(self._snapshot_folder, owner, Snapshot(group.seen, vectors.freeze()))
        except OSError:
            self._count("num_snapshots_failed")
        group.num_unsaved = 0
