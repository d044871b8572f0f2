"""Where one group's vectors are kept between processes: a snapshot, and a journal of the steps since.

Snapshots are whole files and rare: the first when a group is large enough, then when a graph has been built, or when
the journal has grown to its bound. In between each step is appended to the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cachestack.keys import Partition
from cachestack.semantic.journal import Journal, Step, read_journals, remove_journals, steps_from
from cachestack.semantic.snapshots import Owner, Snapshot, read_snapshot, write_snapshot
from cachestack.semantic.vectors_group import Frozen, VectorGroup
from cachestack.stores.base import EntryStore

MIN_JOURNAL_BYTES = 16 * 2**20
MAX_JOURNAL_BYTES = 64 * 2**20
_REST_S = 60.0
"""How long nothing is saved after a save has failed."""


@dataclass(frozen=True, slots=True)
class Restored:
    vectors: VectorGroup
    latest: int
    last_id: str
    num_steps: int
    num_torn: int


def leads_on(store: EntryStore, partition: Partition, latest: int, last_id: str) -> bool:
    """Whether the store's change record reaches back to this point, and has the same change there."""
    if not last_id:
        return store.changes(partition, latest).complete
    record = store.changes(partition, latest - 1)
    return record.complete and bool(record.changes) and record.changes[0].entry_id == last_id


class GroupFiles:
    """Not thread-safe, but for `save`, which one thread at a time may call while others call `note`."""

    def __init__(self, folder: Path, owner: Owner, *, snapshot_from: int, journal_bytes: int | None = None) -> None:
        self._folder = folder
        self._owner = owner
        self._snapshot_from = snapshot_from
        self._journal_bytes = journal_bytes
        self._journal: Journal | None = None
        self._num_noted_bytes = 0  # in journals since the last snapshot
        self._snapshot_bytes = 0
        self._goes_on = False  # whether there is, or soon will be, a snapshot that a journal goes on from
        self._must_save = False
        self._rest_until_s = 0.0

    def restore(self, thaw: Callable[[Frozen], VectorGroup]) -> Restored | None:
        """What the files hold; None where there is no snapshot. Raises UnusableSnapshot, ValueError, or OSError."""
        snapshot = read_snapshot(self._folder, self._owner)
        if snapshot is None:
            return None
        vectors, latest, last_id = thaw(snapshot.group), snapshot.latest, snapshot.last_id
        journals = read_journals(self._folder, self._owner)
        num_steps = 0
        for step in steps_from(journals, latest):
            for entry_id in step.removed:
                vectors.remove(entry_id)
            vectors.put(step.ids, step.contracts, step.vectors)
            latest, last_id = step.latest, step.last_id
            num_steps += 1
        self._goes_on = True
        self._snapshot_bytes = (self._folder / self._owner.file_name).stat().st_size
        self._num_noted_bytes = sum(journal.num_bytes for journal in journals)
        return Restored(vectors, latest, last_id, num_steps, sum(journal.is_torn for journal in journals))

    def forget(self) -> None:
        """What the files hold is not of this store, or too old: the next snapshot begins anew."""
        self._snapshot_bytes, self._num_noted_bytes, self._goes_on = 0, 0, False
        self._drop_journal()
        remove_journals(self._folder, self._owner, None)

    def note(self, step: Step) -> bool:
        """Append to the journal. False where it is in no file: there is no snapshot to go on from, or writing failed.

        Then later steps do not lead on from the earlier ones, and are not read; a snapshot mends that.
        """
        if not self._goes_on:
            return False
        try:
            if self._journal is None:
                self._journal = Journal(self._folder, self._owner)
            before = self._journal.num_bytes
            self._journal.append(step)
            self._num_noted_bytes += self._journal.num_bytes - before
        except OSError:
            self._drop_journal()
            self._must_save = True
            return False
        return True

    def wants_snapshot(self) -> None:
        """A graph has been built, which no journal can say."""
        self._must_save = True

    def is_due(self, num_vectors: int) -> bool:
        """Whether a snapshot should be written now."""
        if num_vectors < self._snapshot_from or time.monotonic() < self._rest_until_s:
            return False
        return self._must_save or not self._snapshot_bytes or self._num_noted_bytes >= self._bound()

    def is_whole(self) -> bool:
        """Whether the files hold all that was noted."""
        return bool(self._snapshot_bytes) and not self._must_save

    def begin_save(self) -> None:
        """What is noted from now on is not in the snapshot that is about to be written."""
        self._drop_journal()
        self._must_save, self._goes_on, self._num_noted_bytes = False, True, 0

    def save(self, snapshot: Snapshot) -> None:
        """Raises OSError: then what was there is still there."""
        try:
            num_bytes = write_snapshot(self._folder, self._owner, snapshot)
        except OSError:
            self._must_save = True
            self._rest_until_s = time.monotonic() + _REST_S
            raise
        self._snapshot_bytes = num_bytes
        journal = self._journal
        remove_journals(self._folder, self._owner, snapshot.latest, None if journal is None else journal.path)

    def close(self) -> None:
        self._drop_journal()

    def _bound(self) -> int:
        if self._journal_bytes is not None:
            return self._journal_bytes
        return min(max(self._snapshot_bytes // 4, MIN_JOURNAL_BYTES), MAX_JOURNAL_BYTES)

    def _drop_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()
        self._journal = None
