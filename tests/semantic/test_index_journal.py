"""The journal: what is whole in it is read, what is torn is cut, and what does not lead on is left out."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachestack.entries import Selector
from cachestack.semantic import group_files
from cachestack.semantic.index import FaissIndex
from cachestack.semantic.journal import Found, Journal, Step, read_journals, remove_journals, steps_from
from cachestack.semantic.snapshots import Owner, snapshot_files
from cachestack.stores.memory import MemoryStore
from tests.semantic.index_support import CONTRACT, DIMENSION, OTHER_CONTRACT, clustered, entry_of, found

OWNER = Owner("a" * 64, "e" * 64, DIMENSION)
VECTORS = clustered(200)


def step_of(since: int, latest: int, *numbers: int, removed: tuple[str, ...] = ()) -> Step:
    ids = [f"entry-{number}" for number in numbers]
    contracts = [OTHER_CONTRACT if number % 2 else CONTRACT for number in numbers]
    return Step(since, latest, f"last-{latest}", removed, ids, contracts, VECTORS[list(numbers)])


def same(one: Step, other: Step) -> bool:
    fields = ("since", "latest", "last_id", "removed", "ids", "contracts")
    equal = all(
        list(getattr(one, f)) == list(getattr(other, f)) if f in fields[3:] else getattr(one, f) == getattr(other, f)
        for f in fields
    )
    return equal and np.array_equal(one.vectors, other.vectors)


STEPS = (step_of(0, 3, 0, 1, 2), step_of(3, 4, removed=("entry-1", "odd \ud800\nid")), step_of(4, 6, 3, 4))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    journal = Journal(tmp_path, OWNER)
    for step in STEPS:
        journal.append(step)
    journal.close()
    return journal.path


def test_steps_come_back_as_they_were(written):
    (journal,) = read_journals(written.parent, OWNER)
    assert not journal.is_torn
    assert all(same(a, b) for a, b in zip(journal.steps, STEPS, strict=True))


def test_a_file_that_ends_anywhere_gives_the_steps_before(written):
    """Fails without the length and the CRC of each record."""
    data = written.read_bytes()
    whole = set()
    for length in range(len(data)):
        written.write_bytes(data[:length])
        (journal,) = read_journals(written.parent, OWNER)
        assert all(same(a, b) for a, b in zip(journal.steps, STEPS, strict=False))
        assert journal.is_torn or len(journal.steps) < len(STEPS)
        whole.add(len(journal.steps))
    assert whole == {0, 1, 2}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_flipped_bit_gives_no_step_that_was_not_written(written, data):
    """Fails without the CRC."""
    content = bytearray(written.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    damaged = written.with_name(f"{OWNER.stem}.damaged.journal")
    damaged.write_bytes(content)
    try:
        journal = next(j for j in read_journals(written.parent, OWNER) if j.path == damaged)
    finally:
        damaged.unlink()
    assert journal.is_torn
    assert len(journal.steps) < len(STEPS)
    assert all(same(a, b) for a, b in zip(journal.steps, STEPS, strict=False))


def test_the_journal_of_another_owner_is_not_read(written):
    assert read_journals(written.parent, replace(OWNER, partition="b" * 64)) == []
    (journal,) = read_journals(written.parent, replace(OWNER, dimension=12))
    assert journal.steps == ()


def test_steps_of_several_processes_lead_on_by_their_numbers():
    a = Found(Path("a"), (step_of(10, 15), step_of(15, 20)), False)
    b = Found(Path("b"), (step_of(10, 12), step_of(12, 18), step_of(25, 30)), False)

    def numbers(since):
        return [step.latest for step in steps_from([a, b], since)]

    assert numbers(10) == [15, 20]
    assert numbers(13) == [18, 20]
    assert numbers(20) == []
    assert numbers(26) == [30], "it has all that changed since 25"
    assert numbers(9) == [], "a gap is not leapt over"


def test_what_a_snapshot_has_is_dropped(written, tmp_path):
    remove_journals(tmp_path, OWNER, 5)
    assert written.exists(), "it reaches further"
    remove_journals(tmp_path, OWNER, 6, but=written)
    assert written.exists(), "it is being written"
    remove_journals(tmp_path, OWNER, 6)
    assert not written.exists()


# within an index


def open_index(store, folder, **more) -> FaissIndex:
    return FaissIndex(store, snapshot_folder=folder, **({"snapshot_from": 5} | more))


@pytest.fixture
def store():
    made = MemoryStore(journal_length=50)
    yield made
    made.close()


def fill(store, numbers):
    for number in numbers:
        store.put(entry_of(number, VECTORS[number]))


def test_changes_that_the_store_no_longer_tells_are_in_the_journal(store, tmp_path):
    """More than the store's change record holds: without the journal, all entries would be read again."""
    index = open_index(store, tmp_path)
    fill(store, range(10))
    found(index, VECTORS[0])
    assert index.settle(60)
    for first in range(10, 130, 20):
        fill(store, range(first, first + 20))
        store.invalidate(Selector(entry_id=f"entry-{first}"))
        found(index, VECTORS[0])
    index = open_index(store, tmp_path)  # the first one was killed: nothing was closed
    assert set(found(index, VECTORS[0], 500)) == {f"entry-{i}" for i in range(130) if i < 10 or i % 20 != 10}
    counts = index.counts()
    assert (counts.num_loads, counts.num_snapshots_used, counts.num_journal_steps) == (0, 1, 6)


def test_a_torn_journal_costs_the_torn_step_only(store, tmp_path):
    index = open_index(store, tmp_path)
    fill(store, range(10))
    found(index, VECTORS[0])
    assert index.settle(60)
    for number in range(10, 15):
        fill(store, [number])
        found(index, VECTORS[0])
    (path,) = tmp_path.glob("*.journal")
    path.write_bytes(path.read_bytes()[:-10])
    index = open_index(store, tmp_path)
    assert len(found(index, VECTORS[0], 500)) == 15
    counts = index.counts()
    assert (counts.num_loads, counts.num_journal_steps, counts.num_torn_journals) == (0, 4, 1)


def test_the_journal_is_bounded(store, tmp_path):
    """Fails without `is_due`'s look at the journal's bytes."""
    index = open_index(store, tmp_path, journal_bytes=3000)
    fill(store, range(10))
    found(index, VECTORS[0])
    assert index.settle(60)
    for number in range(10, 200):
        fill(store, [number])
        found(index, VECTORS[0])
        if number % 10 == 0:
            assert index.settle(60)
            assert sum(path.stat().st_size for path in tmp_path.glob("*.journal")) < 3000 + 10 * 600
    index.close()
    index = open_index(store, tmp_path)
    assert len(found(index, VECTORS[0], 500)) == 200
    assert index.counts().num_loads == 0


def test_a_journal_that_cannot_be_written_costs_time_only(store, tmp_path, monkeypatch):
    index = open_index(store, tmp_path)
    fill(store, range(10))
    found(index, VECTORS[0])
    assert index.settle(60)

    def full(self, step):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(group_files.Journal, "append", full)
    fill(store, range(10, 12))
    assert found(index, VECTORS[11], 1) == ["entry-11"]
    assert index.settle(60), "a snapshot mends the gap"
    index = open_index(store, tmp_path)
    assert len(found(index, VECTORS[0], 500)) == 12
    assert index.counts().num_snapshots_used == 1


def test_a_store_that_lost_its_last_writes_and_counted_on_is_noticed(store, tmp_path):
    """Trap 11, after a power cut: the same numbers, other changes. Fails without `last_id`: 5 and 6 would be missing,
    7 and 8 still be there."""
    fill(store, range(5))
    lost = MemoryStore()
    lost._rooms = {p: _copy_of(room) for p, room in store._rooms.items()}
    lost._order, lost._num_bytes = {t: o.copy() for t, o in store._order.items()}, dict(store._num_bytes)
    index = open_index(store, tmp_path)
    found(index, VECTORS[0])
    assert index.settle(60)
    fill(store, [7, 8])
    assert len(found(index, VECTORS[0], 500)) == 7
    fill(lost, [5, 6])
    assert lost.latest(entry_of(0, VECTORS[0]).partition) == store.latest(entry_of(0, VECTORS[0]).partition)
    index = open_index(lost, tmp_path)
    assert found(index, VECTORS[5], 1) == ["entry-5"]
    assert set(found(index, VECTORS[0], 500)) == {f"entry-{i}" for i in range(7)}
    assert index.counts().num_snapshots_rejected == 1


def _copy_of(room):
    return replace(room, journal=room.journal.copy(), entries=dict(room.entries), exact=dict(room.exact))


def test_headers_say_what_is_kept(store, tmp_path):
    index = open_index(store, tmp_path, graph_from=100)
    fill(store, range(150))
    store.put(entry_of(1000, VECTORS[0], OTHER_CONTRACT))
    found(index, VECTORS[0])
    assert index.settle(60)
    (file,) = snapshot_files(tmp_path)
    assert (file.num_vectors, file.num_in_graphs, file.num_flat, file.num_dead, file.num_builds) == (151, 150, 1, 0, 1)
    (tmp_path / "x.vectors").write_bytes(b"CSV2\xff\xff\xff\xff")
    assert snapshot_files(tmp_path) == [file]
    assert snapshot_files(tmp_path / "none") == []


def test_saving_and_searching_at_once_lose_nothing(store, tmp_path, monkeypatch):
    """A snapshot that is being written while more is put: the journal that was begun then goes on from it."""
    begun, go = threading.Event(), threading.Event()
    write = group_files.write_snapshot

    def slow(*arguments):
        begun.set()
        assert go.wait(60)
        return write(*arguments)

    monkeypatch.setattr(group_files, "write_snapshot", slow)
    index = open_index(store, tmp_path)
    fill(store, range(10))
    found(index, VECTORS[0])
    assert begun.wait(60)
    for number in range(10, 80):
        fill(store, [number])
        found(index, VECTORS[0])
    go.set()
    assert index.settle(60)
    index = open_index(store, tmp_path)
    assert len(found(index, VECTORS[0], 500)) == 80
    assert (index.counts().num_loads, index.counts().num_snapshots_used) == (0, 1)
