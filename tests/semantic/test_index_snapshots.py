"""Snapshots of the index: they save reading, and nothing depends on them."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from cachestack.entries import Selector
from cachestack.semantic.index import FaissIndex
from cachestack.stores.disk import DiskStore

STORE_TESTS = Path(__file__).parents[1] / "stores"


def _load(name: str):
    spec = importlib.util.spec_from_file_location(f"store_{name}", STORE_TESTS / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crash = _load("test_crash")
writer = crash.writer
HERE, CONTRACT, ENCODER = writer.PARTITION, writer.CONTRACT, writer.ENCODER


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "entries", tmp_path / "indexes"


def open_both(folders, **settings):
    store = DiskStore(folders[0])
    return store, FaissIndex(store, snapshot_folder=folders[1], **({"snapshot_from": 1} | settings))


def fill(store, numbers):
    for number in numbers:
        store.put(writer.entry_of(number))


def found(index, number, num=3):
    return [c.entry.entry_id for c in index.search(HERE, CONTRACT, writer.vector_of(number), ENCODER, num)]


@pytest.fixture
def saved(folders):
    """Forty entries, and a snapshot of all of them."""
    store, index = open_both(folders)
    fill(store, range(40))
    expected = [found(index, number) for number in range(40)]
    index.close()
    store.close()
    assert len(list(folders[1].iterdir())) == 1
    return expected


def check(folders, expected, *, loads, used, rejected):
    store, index = open_both(folders)
    assert [found(index, number) for number in range(40)] == expected
    counts = index.counts()
    assert (counts.num_loads, counts.num_snapshots_used, counts.num_snapshots_rejected) == (loads, used, rejected)
    index.close()
    store.close()


def test_a_restart_uses_the_snapshot(folders, saved):
    check(folders, saved, loads=0, used=1, rejected=0)


def test_a_restart_without_one_reads_the_store(folders, saved):
    shutil.rmtree(folders[1])
    check(folders, saved, loads=1, used=0, rejected=0)


def test_changes_since_the_snapshot_are_taken_in(folders, saved):
    store = DiskStore(folders[0])
    store.invalidate(Selector(entry_id="entry-7"))
    fill(store, [100])
    store.close()
    store, index = open_both(folders)
    assert "entry-7" not in found(index, 7, num=100)
    assert found(index, 100, num=1) == ["entry-100"]
    assert index.counts().num_loads == 0
    index.close()
    store.close()


def test_a_snapshot_older_than_the_change_record_is_not_used(folders, saved):
    store = DiskStore(folders[0], journal_length=3)
    fill(store, range(100, 105))
    index = FaissIndex(store, snapshot_folder=folders[1])
    assert len(found(index, 0, num=100)) == 45
    assert (index.counts().num_loads, index.counts().num_snapshots_rejected) == (1, 1)
    store.close()


def test_a_snapshot_of_entries_that_are_lost_is_not_used(folders, saved):
    shutil.rmtree(folders[0])
    store, index = open_both(folders)
    fill(store, range(3))
    assert sorted(found(index, 0, num=100)) == ["entry-0", "entry-1", "entry-2"]
    assert index.counts().num_snapshots_rejected == 1
    store.close()


def edit_header(data: bytes, **fields) -> bytes:
    length = int.from_bytes(data[4:8], "little")
    header = json.dumps(json.loads(data[8 : 8 + length]) | fields).encode()
    return data[:4] + len(header).to_bytes(4, "little") + header + data[8 + length :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: b"",
        lambda d: d[:3],
        lambda d: d[: len(d) // 2],
        lambda d: d + b"\0",
        lambda d: d[:-1] + bytes([d[-1] ^ 1]),
        lambda d: d[: len(d) // 2] + bytes([d[len(d) // 2] ^ 1]) + d[len(d) // 2 + 1 :],
        lambda d: b"XXXX" + d[4:],
        lambda d: d[:4] + b"\xff\xff\xff\x7f" + d[8:],
        lambda d: edit_header(d, encoder="another"),
        lambda d: edit_header(d, partition="another"),
        lambda d: edit_header(d, dimension=4),
        lambda d: edit_header(d, num_vectors=39),
        lambda d: edit_header(d, num_vectors=-1),
        lambda d: edit_header(d, num_vectors="x"),
        lambda d: edit_header(d, names_bytes=10**12),
        lambda d: edit_header(d, latest=None),
        lambda d: edit_header(d, graphs=[{"contract": "x", "num_rows": 1, "num_dead": 0, "index_bytes": 0}]),
        lambda d: d.replace(b"CSV2", b"CSV1"),
    ],
)
def test_a_damaged_snapshot_is_counted_and_the_store_is_read(folders, saved, damage):
    (path,) = folders[1].iterdir()
    path.write_bytes(damage(path.read_bytes()))
    check(folders, saved, loads=1, used=0, rejected=1)
    check(folders, saved, loads=0, used=1, rejected=0)


def test_a_snapshot_with_wrong_vectors_cannot_make_a_wrong_similarity(folders, saved):
    """Even one that is sound in itself: what is returned is measured on the entry's own vector."""
    from cachestack.semantic.snapshots import Owner, Snapshot, read_snapshot, write_snapshot

    owner = Owner(HERE.digest, ENCODER, writer.DIMENSION)
    snapshot = read_snapshot(folders[1], owner)
    vectors = np.roll(snapshot.group.vectors, 1, axis=0)
    swapped = type(snapshot.group)(snapshot.group.ids, snapshot.group.contracts, snapshot.group.codes, vectors)
    write_snapshot(folders[1], owner, Snapshot(snapshot.latest, swapped))
    store, index = open_both(folders)
    query = np.frombuffer(writer.vector_of(7), "<f4")
    candidates = index.search(HERE, CONTRACT, writer.vector_of(7), ENCODER, 40)
    assert index.counts().num_snapshots_used == 1
    for candidate in candidates:
        assert candidate.similarity == pytest.approx(query @ np.frombuffer(candidate.entry.vector, "<f4"), abs=1e-6)
    assert candidates[0].entry.entry_id == "entry-7"
    store.close()


def test_small_groups_are_not_saved_and_large_ones_once_with_a_journal_after(folders):
    store, index = open_both(folders, snapshot_from=5)
    fill(store, range(4))
    found(index, 0)
    index.close()
    assert not folders[1].exists()
    fill(store, range(4, 12))
    found(index, 0)
    assert index.settle(60)
    (path,) = folders[1].iterdir()
    first = path.read_bytes()
    fill(store, range(12, 22))
    found(index, 0)
    assert index.settle(60)
    assert path.read_bytes() == first
    assert sorted(p.suffix for p in folders[1].iterdir()) == [".journal", ".vectors"], "nothing else is beside it"
    store.close()


def test_a_group_that_leaves_memory_is_saved(folders):
    store, index = open_both(folders, max_groups=1)
    fill(store, range(10))
    found(index, 0)
    index.search(writer.SMALL, CONTRACT, writer.vector_of(0), ENCODER, 1)
    assert index.settle(60)
    assert index.counts().num_groups == 1
    assert len(list(folders[1].iterdir())) == 1
    assert found(index, 3, num=1) == ["entry-3"]
    assert index.counts().num_snapshots_used == 1
    store.close()


def test_a_folder_that_cannot_be_written_costs_nothing_else(folders, tmp_path):
    (tmp_path / "indexes").write_text("a file where a folder should be")
    store, index = open_both(folders)
    fill(store, range(20))
    assert found(index, 3, num=1) == ["entry-3"]
    assert found(index, 4, num=1) == ["entry-4"]
    index.close()
    assert index.counts().num_snapshots_failed >= 1
    store.close()


def test_index_and_entries_agree_after_kills(folders):
    """Trap 11. The writer searches after each of its steps, which writes journals, snapshots and graphs; kills come at
    any moment. Fails without the change numbers in `_catch_up` and `_leads_on`, and where snapshots are not renamed."""
    rng, state, first = random.Random(5), {}, 0
    num_used = num_steps = 0
    for _ in range(6):
        run = crash.run_and_kill(rng, folders[0], first, folders[1])
        store, index = open_both(folders, graph_from=12, max_tail=5)
        state = crash.check(store, state, run)
        assert sorted(found(index, 0, num=len(state) + 10)) == sorted(state)
        for entry in random.Random(first).sample(sorted(state.values(), key=lambda e: e.entry_id), min(10, len(state))):
            best = index.search(HERE, CONTRACT, entry.vector, ENCODER, 1)[0]
            assert best.entry == entry
        counts = index.counts()
        assert counts.num_snapshots_rejected == 0, "a snapshot is there whole or not at all"
        num_used += counts.num_snapshots_used
        num_steps += counts.num_journal_steps
        index.settle(60)
        store.close()
        first = run.last_number + 1
    assert num_used > 0
    assert num_steps > 0
