"""The index by meaning: for each partition and encoder a group of vectors, made from the store's entries.

The store is the truth. A group is loaded at the first search of its partition, and at every search it first takes in
what the store's change record tells, so that it sees the writes of this and of other processes at once. What a search
returns is read from the store again, and its similarity is computed from the vector found there: an entry that has
gone is not returned, and neither a snapshot nor a lost update nor a graph can make a wrong similarity.

Locks: one for the table of groups, one a group. Nobody takes a second group's lock while holding one. Graphs are built
and snapshots written by one thread in the background, without a lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from cachestack.entries import Candidate, Entry
from cachestack.keys import Partition
from cachestack.semantic.background import Background, ShouldStop
from cachestack.semantic.base import Encoder
from cachestack.semantic.group_files import GroupFiles, Restored, leads_on
from cachestack.semantic.index_counts import IndexCounts
from cachestack.semantic.journal import Step
from cachestack.semantic.reembed import VectorStore, is_foreign, reembed
from cachestack.semantic.snapshots import Owner, Snapshot, UnusableSnapshot
from cachestack.semantic.vectors import Floats, are_unit, cosine, to_vector
from cachestack.semantic.vectors_group import GRAPH_FROM, MAX_TAIL, VectorGroup, build
from cachestack.stores.base import Changes, EntryStore

log = logging.getLogger("cachestack")
SNAPSHOT_FROM = 2000
_BATCH = 2048
_REST_S = 600.0
"""How long no graph is built for a group after a build has failed."""


class IndexedStore(EntryStore, VectorStore, Protocol):
    """What an index is made from."""


@dataclass(slots=True)
class _Group:
    """`seen` is the number of the last change of the store that is in `vectors`, `last_id` the entry that it was of (""
    where that is not known)."""

    partition: Partition
    encoder: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    vectors: VectorGroup | None = None
    files: GroupFiles | None = None
    seen: int = 0
    last_id: str = ""
    is_kept: bool = False
    """Whether all of it is in its files."""
    rest_until_s: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return self.partition.digest, self.encoder


class FaissIndex:
    """An Index over `store`. Raises StoreError where the store does.

    A query vector that is not finite, or not of length 1, finds nothing. At most `max_groups` partitions and about
    `max_bytes` of vectors stay in memory; the least recently searched go first. A contract of `graph_from` vectors gets
    a graph, and another one when `max_tail` more have been written. With `snapshot_folder`, a group of at least
    `snapshot_from` vectors is kept there, as a snapshot and a journal of at most about `journal_bytes`; both hold
    vectors and ids of removed entries until the next snapshot. With `encoder`, up to `max_reembedded` entries that
    another encoder made are encoded anew when their partition is loaded, in the searching thread; the others stay
    exact-only.
    """

    def __init__(
        self,
        store: IndexedStore,
        *,
        snapshot_folder: Path | None = None,
        encoder: Encoder | None = None,
        max_groups: int = 1024,
        max_bytes: int = 2**30,
        graph_from: int = GRAPH_FROM,
        max_tail: int = MAX_TAIL,
        snapshot_from: int = SNAPSHOT_FROM,
        journal_bytes: int | None = None,
        max_reembedded: int = 256,
    ) -> None:
        self._store = store
        self._snapshot_folder = snapshot_folder
        self._encoder = encoder
        self._max_groups = max_groups
        self._max_bytes = max_bytes
        self._new_vectors = partial(VectorGroup, graph_from=graph_from, max_tail=max_tail)
        self._thaw = partial(VectorGroup.thaw, graph_from=graph_from, max_tail=max_tail)
        self._new_files = partial(GroupFiles, snapshot_from=snapshot_from, journal_bytes=journal_bytes)
        self._max_reembedded = max_reembedded
        self._background = Background(self._background_failed)
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
            if has_changed:
                self._order_work(group, vectors)
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
                num_in_graphs=sum(vectors.num_in_graphs for vectors in held),
                num_graphs=sum(vectors.num_graphs for vectors in held),
                num_tombstones=sum(vectors.num_dead for vectors in held),
                num_bytes=sum(vectors.num_bytes for vectors in held),
            )

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until graphs are built and snapshots written; False where that took longer."""
        return self._background.wait(timeout_s)

    def close(self) -> None:
        """Stop what is being built, save what is in no file and let go of all memory. A later search loads again."""
        self._background.close()
        with self._lock:
            groups = list(self._groups.values())
            self._groups.clear()
        for group in groups:
            if not group.is_kept:
                self._save(group)
            with group.lock:
                if group.files is not None:
                    group.files.close()

    def _candidate(
        self, partition: Partition, contract: str, encoder: str, entry_id: str, query: Floats
    ) -> Candidate | None:
        """None where the entry has gone, or has become another one, since the group took it in."""
        entry = self._store.get(partition, entry_id)
        if entry is None or entry.group != contract or entry.encoder != encoder:
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
            if not group.is_kept:
                self._background.submit(("save", group.key), partial(self._save_job, group))

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
        return vectors

    def _catch_up(self, group: _Group, vectors: VectorGroup) -> VectorGroup:
        changes = self._store.changes(group.partition, group.seen)
        if not changes.complete:
            return self._read_all(group, vectors.dimension)
        touched = dict.fromkeys(change.entry_id for change in changes.changes)  # the last state of each is what counts
        entries = [self._store.get(group.partition, entry_id) for entry_id in touched]
        living = self._usable(group, vectors.dimension, (entry for entry in entries if entry is not None))
        removed = [entry_id for entry_id in touched if entry_id not in living.index]
        for entry_id in removed:
            vectors.remove(entry_id)
        vectors.put(living.ids, living.contracts, living.vectors)
        step = Step(
            group.seen, changes.latest, _last_id(changes), removed, living.ids, living.contracts, living.vectors
        )
        group.seen, group.last_id = step.latest, step.last_id
        if group.files is not None:
            group.is_kept = group.files.note(step) and group.is_kept
        return vectors

    def _load(self, group: _Group, dimension: int) -> VectorGroup:
        restored = self._restored(group, dimension)
        if restored is None:
            return self._read_all(group, dimension)
        self._count("num_snapshots_used")
        self._count("num_journal_steps", restored.num_steps)
        group.vectors, group.seen, group.last_id = restored.vectors, restored.latest, restored.last_id
        group.is_kept = True
        return restored.vectors

    def _restored(self, group: _Group, dimension: int) -> Restored | None:
        """What the group's files hold, if the store goes on from there: it may have lost entries, or counted on."""
        if self._snapshot_folder is None:
            return None
        owner = Owner(group.partition.digest, group.encoder, dimension)
        if group.files is not None:
            group.files.close()
        group.files = self._new_files(self._snapshot_folder, owner)
        try:
            restored = group.files.restore(self._thaw)
        except (UnusableSnapshot, ValueError, OSError):
            self._count("num_snapshots_rejected")
            group.files.forget()
            return None
        if restored is None:
            return None
        self._count("num_torn_journals", restored.num_torn)
        if not leads_on(self._store, group.partition, restored.latest, restored.last_id):
            self._count("num_snapshots_rejected")
            group.files.forget()
            return None
        return restored

    def _read_all(self, group: _Group, dimension: int) -> VectorGroup:
        """Begin anew from the store's entries. The number is read first: what comes meanwhile is told again later."""
        self._count("num_loads")
        seen = self._store.latest(group.partition)
        record = self._store.changes(group.partition, seen - 1)
        vectors = self._new_vectors(dimension)
        foreign: list[Entry] = []
        entries = self._store.entries(group.partition)
        while batch := list(islice(entries, _BATCH)):
            living = self._usable(group, dimension, batch)
            vectors.put(living.ids, living.contracts, living.vectors)
            foreign += [e for e in batch if is_foreign(e, group.encoder)][: self._max_reembedded - len(foreign)]
        group.vectors, group.seen, group.is_kept = vectors, seen, False
        group.last_id = record.changes[0].entry_id if record.changes else ""
        if group.files is not None:
            group.files.forget()
        if foreign and self._encoder is not None and self._encoder.fingerprint == group.encoder:
            self._count("num_reembedded", reembed(self._store, self._encoder, foreign).num_done)
        return vectors

    def _usable(self, group: _Group, dimension: int, entries: Iterable[Entry]) -> _Usable:
        """Those that this encoder made; those whose vector is not usable are counted and left out."""
        ours = [e for e in entries if e.vector is not None and e.encoder == group.encoder]
        whole = [e for e in ours if len(e.vector or b"") == 4 * dimension]
        rows = np.frombuffer(b"".join(e.vector or b"" for e in whole), dtype="<f4").reshape(-1, dimension)
        usable = are_unit(rows)
        good = [entry for entry, ok in zip(whole, usable, strict=True) if ok]
        if len(good) < len(ours):
            self._count("num_bad_vectors", len(ours) - len(good))
        ids = [e.entry_id for e in good]
        return _Usable(ids, [e.group for e in good], rows[usable], frozenset(ids))

    # in the background

    def _order_work(self, group: _Group, vectors: VectorGroup) -> None:
        contract = vectors.due()
        if contract is not None and time.monotonic() >= group.rest_until_s:
            self._background.submit(("build", group.key), partial(self._build_job, group, contract))
        if group.files is not None and group.files.is_due(len(vectors)):
            self._background.submit(("save", group.key), partial(self._save_job, group))

    def _build_job(self, group: _Group, contract: str, should_stop: ShouldStop) -> None:
        with group.lock:
            vectors = group.vectors
            if vectors is None:
                return
            group.rest_until_s = time.monotonic() + _REST_S  # until it has gone well
            building = vectors.begin(contract)
        made = None
        try:
            made = build(building, should_stop)
        finally:
            with group.lock:
                vectors.end(building, made)
        self._count("num_builds")
        with group.lock:
            group.rest_until_s = 0.0
            if made is None or group.vectors is not vectors:
                return
            if group.files is not None and not building.extends:  # what extended it is in the journal
                group.files.wants_snapshot()
            self._order_work(group, vectors)

    def _save_job(self, group: _Group, should_stop: ShouldStop) -> None:
        if not should_stop():
            self._save(group)

    def _save(self, group: _Group) -> None:
        """A snapshot that cannot be written costs time at the next start, nothing else."""
        with group.lock:
            vectors, files = group.vectors, group.files
            if vectors is None or files is None or not files.is_due(len(vectors)):
                return
            files.begin_save()
            snapshot = Snapshot(group.seen, vectors.freeze(), group.last_id)
            group.is_kept = True
        try:
            files.save(snapshot)
        except OSError:
            group.is_kept = False
            self._count("num_snapshots_failed")

    def _background_failed(self, error: Exception) -> None:
        self._count("num_background_failures")
        log.warning("work on the index in the background has failed; searches go on without it: %r", error)


@dataclass(frozen=True, slots=True)
class _Usable:
    ids: list[str]
    contracts: list[str]
    vectors: Floats
    index: frozenset[str]


def _last_id(changes: Changes) -> str:
    return changes.changes[-1].entry_id if changes.changes else ""
