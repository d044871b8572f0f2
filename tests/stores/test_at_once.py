"""What is given without waiting is what a read would give: after any write, by whatever process."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cachestack.entries import Entry, Selector
from cachestack.errors import StoreError
from cachestack.keys import Partition
from cachestack.stores.base import NOT_NOW
from cachestack.stores.disk import DiskStore
from tests.stores.conftest import Clock, MakeEntry


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> DiskStore:
    return DiskStore(tmp_path, clock)


@pytest.fixture
def other(tmp_path: Path, clock: Clock, store: DiskStore) -> DiskStore:
    """As another process has it."""
    return DiskStore(tmp_path, clock)


def at_once(store: DiskStore, entry: Entry) -> object:
    return store.find_exact_at_once(entry.partition, entry.exact)


def warm(store: DiskStore, entry: Entry) -> Entry:
    store.put(entry)
    assert at_once(store, entry) is NOT_NOW
    assert store.find_exact(entry.partition, entry.exact) == entry
    assert at_once(store, entry) == entry
    return entry


def test_what_was_read_is_there_at_once_and_stays_so_while_others_are_written(
    store: DiskStore, other: DiskStore, make_entry: MakeEntry
) -> None:
    entry = warm(store, make_entry())
    for by in (store, other):
        by.put(make_entry())
        assert at_once(store, entry) == entry
    assert at_once(store, make_entry()) is NOT_NOW


def test_a_use_leaves_it_there(store: DiskStore, make_entry: MakeEntry, clock: Clock) -> None:
    entry = warm(store, make_entry())
    assert store.touch_at_once(entry.partition, entry.entry_id, clock())
    clock.tick(5)
    assert not store.touch_at_once(entry.partition, entry.entry_id, clock()), "a write is due: that may wait"
    store.touch(entry.partition, entry.entry_id, clock())
    assert store.touch_at_once(entry.partition, entry.entry_id, clock())
    assert at_once(store, entry) == entry


@pytest.mark.parametrize("by", ["store", "other"])
@pytest.mark.parametrize("how", ["invalidate", "replace", "again", "evict", "vector", "purge", "many"])
def test_a_change_by_anybody_is_seen(
    store: DiskStore, other: DiskStore, make_entry: MakeEntry, clock: Clock, by: str, how: str
) -> None:
    entry = warm(store, make_entry("Which?"))
    writer = store if by == "store" else other
    match how:
        case "invalidate":
            writer.invalidate(Selector(tenant="acme"))
        case "replace":
            writer.put(replace(make_entry("Which?"), answer="newer"))
        case "again":
            writer.put(replace(entry, answer="newer"))
        case "evict":
            writer.put(make_entry(), max_bytes=2500)
        case "vector":
            writer.set_vector(entry.partition, entry.entry_id, b"\0" * 8, "another")
        case "purge":
            clock.tick(1e6)
            writer.purge(clock())
        case "many":
            for _ in range(70):
                writer.put(make_entry())
            writer.invalidate(Selector(entry_id=entry.entry_id))
    found = at_once(store, entry)
    assert found is NOT_NOW
    read = store.find_exact(entry.partition, entry.exact)
    assert read != entry
    assert at_once(store, entry) == (read if read is not None else NOT_NOW)


def test_a_damaged_neighbour_costs_nothing_but_a_read(store: DiskStore, make_entry: MakeEntry, tmp_path: Path) -> None:
    entry, damaged = warm(store, make_entry()), make_entry()
    store.put(damaged)
    (file,) = tmp_path.glob("*/cache.db")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE Cache SET value = zeroblob(40) WHERE size > 0 AND instr(value, ?)", (b"answer 1",))
    assert store.find_exact(damaged.partition, damaged.exact) is None
    assert at_once(store, entry) is NOT_NOW, "the record says: start over"
    assert store.find_exact(entry.partition, entry.exact) == entry
    assert at_once(store, entry) == entry


def test_walls_hold(store: DiskStore, make_entry: MakeEntry) -> None:
    entry = warm(store, make_entry())
    for partition in (Partition("globex"), Partition("acme", user="u"), Partition("acme", epoch=1)):
        assert store.find_exact_at_once(partition, entry.exact) is NOT_NOW


def test_a_file_that_was_taken_away_is_noticed(store: DiskStore, make_entry: MakeEntry, tmp_path: Path) -> None:
    entry = warm(store, make_entry())
    (folder,) = tmp_path.iterdir()
    folder.rename(tmp_path / "elsewhere")
    assert at_once(store, entry) is NOT_NOW
    store.put(replace(entry, answer="newer"))
    assert at_once(store, entry) is NOT_NOW
    store.close()
    with pytest.raises(StoreError):
        at_once(store, entry)


def test_a_lock_held_by_another_is_not_waited_for(store: DiskStore, make_entry: MakeEntry, tmp_path: Path) -> None:
    entry = warm(store, make_entry())
    (file,) = tmp_path.glob("*/cache.db")
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE Cache SET access_time = 0")
    assert at_once(store, entry) == entry, "who writes does not keep readers waiting, and has not committed"
    connection.execute("ROLLBACK")
    connection.close()


def test_memory_is_bounded_and_forgets_the_oldest_use(make_entry: MakeEntry, store: DiskStore) -> None:
    from cachestack.stores.warm import WarmEntries

    entries = [warm(store, make_entry()) for _ in range(4)]
    tenant = store._tenants.opened(store._tenants.names()[0])
    assert tenant is not None
    kept = WarmEntries(max_bytes=3200)
    number = tenant.latest(entries[0].partition)
    for entry in entries[:3]:
        kept.keep(tenant, number, entry)
    assert kept.find(tenant, entries[0].partition, entries[0].exact) == entries[0]
    kept.keep(tenant, number, entries[3])
    there = [kept.find(tenant, entry.partition, entry.exact) for entry in entries]
    assert there == [entries[0], NOT_NOW, entries[2], entries[3]]
    kept.keep(tenant, number, replace(entries[0], answer="x" * 100_000))
    assert kept.find(tenant, entries[0].partition, entries[0].exact) == entries[0]


def test_what_was_read_before_a_change_is_not_kept(store: DiskStore, make_entry: MakeEntry) -> None:
    entry = warm(store, make_entry())
    tenant = store._tenants.opened(store._tenants.names()[0])
    assert tenant is not None
    assert store._warm is not None
    old = tenant.latest(entry.partition)
    store.put(replace(entry, answer="newer"))
    store.find_exact(entry.partition, entry.exact)
    store._warm.keep(tenant, old, entry)
    assert getattr(at_once(store, entry), "answer", "newer") == "newer"


def test_threads_get_what_is_there_or_nothing(store: DiskStore, other: DiskStore, make_entry: MakeEntry) -> None:
    entry = warm(store, make_entry())
    number, wrong, start = 200, [], threading.Barrier(3)
    last = 0

    def write() -> None:
        nonlocal last
        start.wait()
        for n in range(1, number):
            other.put(replace(entry, answer=str(n)))
            last = n

    def read() -> None:
        start.wait()
        while last < number - 1:
            before = last
            found = at_once(store, entry)
            if isinstance(found, Entry) and found.answer.isdigit() and int(found.answer) < before:
                wrong.append((before, found.answer))
            store.find_exact(entry.partition, entry.exact)

    threads = [threading.Thread(target=work) for work in (write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_sees_changes_too(store: DiskStore, make_entry: MakeEntry, tmp_path: Path) -> None:
    entry = warm(store, make_entry())
    script = f"""
import sys
from pathlib import Path
from cachestack.entries import Selector
from cachestack.stores.disk import DiskStore
DiskStore(Path({str(tmp_path)!r})).invalidate(Selector(tenant="acme"))
"""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            same = at_once(store, entry) == entry
            subprocess.run([sys.executable, "-c", script], check=True)
            os.write(write_end, b"ok" if same and at_once(store, entry) is NOT_NOW else b"no")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read_end, 2) == b"ok"
    assert at_once(store, entry) is NOT_NOW
