"""What only the store on disk can get wrong: restarts, damage, a bad medium, other processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import shutil
import sqlite3
import threading
import time
import warnings
from pathlib import Path

import diskcache
import pytest

from cachestack.entries import Selector
from cachestack.errors import StoreError
from cachestack.keys import Partition
from cachestack.stores.codec import charged_bytes, encode_entry
from cachestack.stores.disk import DiskStore
from cachestack.stores.layout import EXACT, entry_key
from cachestack.stores.tenant_file import TenantFile
from cachestack.stores.tenants import folder_name

ACME = Partition("acme")


def database(disk: DiskStore, tmp_path: Path, tenant: str = "acme") -> Path:
    return tmp_path / "entries" / folder_name(tenant) / "cache.db"


def edit(path: Path, statement: str, *values) -> int:
    with sqlite3.connect(path) as connection:
        num_rows = connection.execute(statement, values).rowcount
    connection.close()
    return num_rows


# restart


def test_everything_is_there_after_a_restart(disk, make_entry, tmp_path, clock):
    entries = [make_entry(), make_entry(partition=Partition("acme", user="u")), make_entry(tenant="other")]
    for entry in entries:
        disk.put(entry)
    number = disk.latest(ACME)
    disk.close()
    again = DiskStore(tmp_path / "entries", clock)
    for entry in entries:
        assert again.find_exact(entry.partition, entry.exact) == entry
    assert again.latest(ACME) == number
    assert again.size().num_entries == 3
    assert again.tenants() == ["acme", "other"]
    assert again.problems() == []
    again.close()


def test_uses_survive_a_restart(disk, make_entry, tmp_path, clock):
    for name in ("a", "b", "c"):
        disk.put(make_entry(entry_id=name))
        clock.tick()
    disk.touch(ACME, "a", clock.tick())
    disk.close()
    again = DiskStore(tmp_path / "entries", clock)
    new = make_entry(entry_id="new")
    again.put(new, max_bytes=2 * charged_bytes(encode_entry(new)) + 50)
    assert {e.entry_id for e in again.entries(ACME)} == {"a", "new"}
    again.close()


def test_uses_are_written_at_most_once_a_second_and_with_the_next_write(disk, make_entry, tmp_path, clock):
    disk.put(make_entry(entry_id="e"))
    key = entry_key(ACME, "e")

    def last_use() -> float:
        with sqlite3.connect(database(disk, tmp_path)) as connection:
            found = connection.execute("SELECT access_time FROM Cache WHERE key = ?", (key,)).fetchone()[0]
        connection.close()
        return found

    start = clock()
    disk.touch(ACME, "e", clock.tick(0.5))
    assert last_use() == start
    disk.touch(ACME, "e", clock.tick(0.5))
    assert last_use() == start + 1.0
    disk.touch(ACME, "e", clock.tick(0.25))
    assert last_use() == start + 1.0
    disk.put(make_entry())
    assert last_use() == start + 1.25


def test_reading_and_removing_create_nothing(disk, tmp_path):
    disk.get(ACME, "x")
    disk.invalidate(Selector(tenant="acme", tag="t"))
    disk.touch(ACME, "x", 1.0)
    disk.purge(0.0)
    disk.close()
    assert not (tmp_path / "entries").exists()


def test_a_short_change_record_says_when_it_does_not_reach_back(tmp_path, make_entry, clock):
    store = DiskStore(tmp_path / "entries", clock, journal_length=3)
    store.put(make_entry())
    start = store.latest(ACME)
    for _ in range(3):
        store.put(make_entry())
    assert store.changes(ACME, start).complete
    assert len(store.changes(ACME, start).changes) == 3
    store.put(make_entry())
    assert not store.changes(ACME, start).complete
    assert store.changes(ACME, start + 1).complete
    store.close()


def test_purging_forgets_the_change_record_of_an_empty_partition_but_not_its_number(disk, make_entry, clock):
    disk.put(make_entry(ttl_s=1))
    kept = make_entry(partition=Partition("acme", user="u"))
    disk.put(kept)
    start = disk.latest(ACME)
    assert disk.purge(clock.tick(5)) == 1
    assert disk.latest(ACME) == start + 1
    assert not disk.changes(ACME, start).complete
    assert disk.changes(ACME, start + 1).complete
    assert disk.changes(kept.partition, disk.latest(kept.partition) - 1).complete


# damage


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "garbage", "text", "null"])
def test_a_damaged_entry_is_counted_removed_and_absent(disk, make_entry, tmp_path, damage):
    broken, whole = make_entry("broken", vector=b"\1" * 64), make_entry("whole")
    disk.put(broken)
    disk.put(whole)
    data = bytearray(encode_entry(broken))
    data[len(data) // 2] ^= 1
    values = {
        "flip": bytes(data),
        "cut": bytes(data[:-5]),
        "empty": b"",
        "garbage": os.urandom(200),
        "text": "text",
        "null": None,
    }
    statement = "UPDATE Cache SET value = ? WHERE key = ?"
    assert edit(database(disk, tmp_path), statement, values[damage], entry_key(ACME, broken.entry_id)) == 1
    before = disk.latest(ACME)
    assert disk.find_exact(ACME, broken.exact) is None
    assert disk.num_corrupt == 1
    assert disk.get(ACME, broken.entry_id) is None
    assert list(disk.entries(ACME)) == [whole]
    assert disk.num_corrupt == 1, "it was removed, so it is counted once"
    assert not disk.changes(ACME, before).complete, "whoever followed must read the partition again"
    assert disk.size().num_entries == 1
    assert disk.problems() == []
    disk.put(broken)
    assert disk.find_exact(ACME, broken.exact) == broken


@pytest.mark.parametrize("how", ["get", "entries", "invalidate", "evict", "replace"])
def test_a_damaged_entry_is_met_on_every_path(disk, make_entry, tmp_path, clock, how):
    broken = make_entry("broken")
    disk.put(broken)
    clock.tick()
    key = entry_key(ACME, broken.entry_id)
    edit(database(disk, tmp_path), "UPDATE Cache SET value = x'00' WHERE key = ?", key)
    kept = make_entry("broken" if how == "replace" else "kept")
    if how == "get":
        assert disk.get(ACME, broken.entry_id) is None
    elif how == "entries":
        assert list(disk.entries(ACME)) == []
    elif how == "invalidate":
        assert disk.invalidate(Selector(entry_id=broken.entry_id)) == 0
    disk.put(kept, max_bytes=charged_bytes(encode_entry(kept)) if how == "evict" else None)
    assert list(disk.entries(ACME)) == [kept]
    assert disk.find_exact(ACME, kept.exact) == kept
    assert disk.problems() == []


def test_an_entry_of_another_version_is_not_read(disk, make_entry, tmp_path, monkeypatch):
    entry = make_entry()
    monkeypatch.setattr("cachestack.entries.ENTRY_VERSION", 2)
    data = encode_entry(entry)
    monkeypatch.undo()
    disk.put(entry)
    edit(database(disk, tmp_path), "UPDATE Cache SET value = ? WHERE key = ?", data, entry_key(ACME, entry.entry_id))
    assert disk.get(ACME, entry.entry_id) is None
    assert disk.num_corrupt == 1


def test_an_entry_in_the_wrong_place_is_not_served(disk, make_entry, tmp_path):
    """Whatever moved it there: a partition is a wall even then."""
    theirs, ours = make_entry("q", partition=Partition("acme", user="u")), make_entry("q")
    disk.put(theirs)
    disk.put(ours)
    where = entry_key(ACME, ours.entry_id)
    edit(database(disk, tmp_path), "UPDATE Cache SET value = ? WHERE key = ?", encode_entry(theirs), where)
    assert disk.get(ACME, ours.entry_id) is None
    assert disk.find_exact(ACME, ours.exact) is None


def fill(disk, make_entry, num=30):
    for _ in range(num):
        disk.put(make_entry(answer="x" * 2000))


@pytest.mark.parametrize("damage", ["head", "middle", "everything", "other program's"])
@pytest.mark.parametrize("while_open", [False, True])
def test_a_damaged_file_is_moved_aside_and_begun_anew(disk, make_entry, tmp_path, clock, damage, while_open):
    fill(disk, make_entry)
    disk.put(make_entry("here", entry_id="here"))
    theirs = make_entry(tenant="other")
    disk.put(theirs)
    number = disk.latest(ACME)
    path = database(disk, tmp_path)
    store = disk
    if not while_open:
        disk.close()
        store = DiskStore(tmp_path / "entries", clock)
    else:
        edit(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    with path.open("r+b") as file:
        if damage == "head":
            file.write(os.urandom(100))
        elif damage == "middle":
            for page in range(1, size // 4096):
                file.seek(page * 4096)
                file.write(os.urandom(64))
        elif damage == "everything":
            file.write(os.urandom(size))
    if damage == "other program's":
        path.unlink()
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
        edit(path, "CREATE TABLE Settings (key, value)")
    assert store.get(ACME, "here") is None
    assert store.find_exact(ACME, "nothing") is None
    assert list(store.entries(ACME)) == []
    assert store.changes(ACME, number).complete is False
    assert store.get(theirs.partition, theirs.entry_id) == theirs, "the other tenant loses nothing"
    fresh = make_entry()
    store.put(fresh)
    assert list(store.entries(ACME)) == [fresh]
    assert not store.changes(ACME, number).complete, "numbers of the lost file do not continue in the new one"
    assert store.problems() == []
    if damage != "other program's" or not while_open:
        assert store.num_corrupt >= 1
        assert len(list((tmp_path / "entries").glob("*.corrupt-1/cache.db"))) == 1
    assert store.size().num_entries == 2
    store.close()


def test_a_second_damaged_file_gets_the_next_number(disk, make_entry, tmp_path):
    for number in (1, 2):
        disk.put(make_entry())
        disk._tenants._opened.clear()
        database(disk, tmp_path).write_bytes(b"not a database, and long enough to look at" * 100)
        for extra in ("cache.db-wal", "cache.db-shm"):
            database(disk, tmp_path).with_name(extra).unlink(missing_ok=True)
        assert disk.get(ACME, "x") is None
        assert (tmp_path / "entries" / f"{folder_name('acme')}.corrupt-{number}").is_dir()
    assert disk.num_corrupt == 2
    assert disk.size().num_entries == 0
    assert disk.tenants() == []


def test_what_others_put_into_the_folder_is_left_alone(disk, make_entry, tmp_path):
    disk.put(make_entry())
    (tmp_path / "entries/notes").mkdir()
    (tmp_path / "entries/notes/cache.db").write_text("not ours")
    (tmp_path / "entries" / ("ab" * 20)).mkdir()
    assert disk.tenants() == ["acme"]
    assert disk.size().num_entries == 1
    assert (tmp_path / "entries/notes/cache.db").read_text() == "not ours"


def test_a_deleted_folder_is_noticed(disk, make_entry, tmp_path):
    disk.put(make_entry(entry_id="gone"))
    shutil.rmtree(tmp_path / "entries")
    assert disk.get(ACME, "gone") is None
    entry = make_entry()
    disk.put(entry)
    assert list(disk.entries(ACME)) == [entry]


# never pickle


class Trap:
    def __reduce__(self):
        return (os.system, ("touch /nonexistent/never",))


def test_pickled_values_are_neither_written_nor_read(disk, make_entry, tmp_path):
    disk.put(make_entry())
    path = database(disk, tmp_path)
    file = TenantFile(path.parent, 1.0)
    for bad in ({"a": 1}, None, 1.5, "text", Trap()):
        with pytest.raises(TypeError, match="must be bytes"):
            file.set(b"key", bad)
        with pytest.raises(TypeError, match="must be bytes"):
            file.set(bad, b"value")
    edit(
        path,
        "INSERT INTO Cache(key, raw, size, mode, value) VALUES (?, 1, 0, 4, ?)",
        entry_key(ACME, "trap"),
        pickle.dumps(Trap()),
    )
    with pytest.raises(sqlite3.DatabaseError, match="pickled"):
        file.get(entry_key(ACME, "trap"))
    file.close_all()
    assert disk.get(ACME, "trap") is None
    assert disk.num_corrupt == 1


def test_the_file_is_a_sound_diskcache(disk, make_entry, tmp_path):
    for _ in range(5):
        disk.put(make_entry("x" * 100_000))
    disk.invalidate(Selector(tag="none"))
    disk.put(make_entry(), max_bytes=400_000)
    cache = diskcache.Cache(str(database(disk, tmp_path).parent))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.check() == []
    cache.close()
    assert not list(tmp_path.rglob("*.val")), "values beside the database would not be part of a transaction"


# a bad medium


def place_under_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "entries"


@pytest.mark.parametrize("folder", [place_under_a_file, lambda tmp_path: Path("/proc/cachestack")])
def test_a_folder_that_cannot_be_made_is_a_store_error_at_once(tmp_path, make_entry, clock, folder):
    store = DiskStore(folder(tmp_path), clock)
    start = time.monotonic()
    with pytest.raises(StoreError, match=r"cannot be used: .*; check that the folder can be written"):
        store.put(make_entry())
    assert time.monotonic() - start < 1.0
    store.close()


def test_a_full_disk_is_a_store_error_and_what_was_there_stays(disk, make_entry, tmp_path):
    kept = make_entry()
    disk.put(kept)
    connection = disk._tenants._opened[folder_name("acme")].tenant.file._con
    (num_pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {num_pages + 2}")
    with pytest.raises(StoreError, match="full"):
        disk.put(make_entry("q", answer="x" * 100_000))
    assert list(disk.entries(ACME)) == [kept]
    assert disk.problems() == []
    connection.execute("PRAGMA max_page_count = 1000000")
    more = make_entry("q", answer="x" * 100_000)
    disk.put(more)
    assert disk.get(ACME, more.entry_id) == more


def test_a_put_that_breaks_off_leaves_what_was_there(disk, make_entry, monkeypatch):
    """Trap 11. Fails where an entry and its exact key are not written in one transaction."""
    kept = make_entry("q")
    disk.put(kept)
    write = TenantFile.write

    def full_at_the_exact_key(file, key, *args, **kwargs):
        if key.startswith(EXACT):
            raise sqlite3.OperationalError("database or disk is full")
        write(file, key, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(TenantFile, "write", full_at_the_exact_key)
        with pytest.raises(StoreError, match="full"):
            disk.put(make_entry("q"))
    assert list(disk.entries(ACME)) == [kept]
    assert disk.find_exact(ACME, kept.exact) == kept
    assert disk.problems() == []


def test_a_read_only_file_can_be_read_and_not_written(disk, make_entry):
    entry = make_entry()
    disk.put(entry)
    connection = disk._tenants._opened[folder_name("acme")].tenant.file._con
    connection.execute("PRAGMA query_only = 1")
    assert disk.find_exact(ACME, entry.exact) == entry
    with pytest.raises(StoreError, match="readonly"):
        disk.put(make_entry())
    with pytest.raises(StoreError, match="readonly"):
        disk.invalidate(Selector(tenant="acme"))
    assert disk.get(ACME, entry.entry_id) == entry


def test_another_process_that_holds_the_lock_costs_the_timeout_and_no_more(tmp_path, make_entry, clock):
    store = DiskStore(tmp_path / "entries", clock, timeout_s=0.2)
    entry = make_entry()
    store.put(entry)
    other = sqlite3.connect(tmp_path / "entries" / folder_name("acme") / "cache.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    with pytest.raises(StoreError, match="locked"):
        store.put(make_entry())
    assert 0.1 < time.monotonic() - start < 2.0
    assert store.get(ACME, entry.entry_id) == entry, "readers do not wait for writers"
    fresh = DiskStore(tmp_path / "entries", clock, timeout_s=0.2)
    start = time.monotonic()
    with pytest.raises(StoreError, match="locked"):
        fresh.put(make_entry())
    assert time.monotonic() - start < 2.0
    other.execute("ROLLBACK")
    other.close()
    store.put(make_entry())
    fresh.close()
    store.close()


# threads, tenants, processes


def test_connections_of_ended_threads_are_closed(disk, make_entry):
    """At once, not when the garbage collector comes round."""
    disk.put(make_entry(entry_id="e"))
    gc.disable()
    try:
        for _ in range(20):
            thread = threading.Thread(target=disk.get, args=(ACME, "e"))
            thread.start()
            thread.join()
        assert len(disk._tenants._opened[folder_name("acme")].tenant.file._keepers) <= 2
    finally:
        gc.enable()
    assert disk.get(ACME, "e") is not None


def test_only_so_many_tenants_stay_open(tmp_path, make_entry, clock):
    store = DiskStore(tmp_path / "entries", clock, max_open=3)
    tenants = [f"tenant-{i}" for i in range(8)]
    for tenant in tenants:
        store.put(make_entry(entry_id=tenant, tenant=tenant))
    num_files = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for tenant in tenants:
        assert store.get(Partition(tenant), tenant).entry_id == tenant
    assert len(store._tenants._opened) == 3
    if num_files:
        assert len(os.listdir("/proc/self/fd")) <= num_files + 3
    assert store.size().num_entries == 8
    assert store.invalidate(Selector(created_before_s=clock.tick())) == 8
    store.close()


def _other_process(folder, pipe):
    """Does what it is told over the pipe, with a store of its own."""
    store = DiskStore(folder)
    while (message := pipe.recv()) is not None:
        method, *arguments = message
        result = getattr(store, method)(*arguments)
        pipe.send(list(result) if method == "entries" else result)
    store.close()


@pytest.fixture(params=["spawn", "fork"])
def other(request, disk, make_entry):
    """A second process on the same folder; under `fork`, of a parent that had the file open."""
    disk.put(make_entry("warm", entry_id="warm"))
    context = multiprocessing.get_context(request.param)
    ours, theirs = context.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads, which the tests do not use here
        process = context.Process(target=_other_process, args=(disk._tenants._folder, theirs))
        process.start()

    def call(*message):
        ours.send(message)
        return ours.recv()

    yield call
    ours.send(None)
    process.join(10)
    assert process.exitcode == 0


def test_two_processes_see_each_other_at_once(disk, other, make_entry, clock):
    """The stated bound is one second; here the very next call sees it."""
    first, second = make_entry("one"), make_entry("two")
    assert other("find_exact", ACME, first.exact) is None
    disk.put(first)
    assert other("find_exact", ACME, first.exact) == first
    seen = disk.latest(ACME)
    other("put", second)
    assert disk.find_exact(ACME, second.exact) == second
    assert [c.entry_id for c in disk.changes(ACME, seen).changes] == [second.entry_id]
    assert other("latest", ACME) == disk.latest(ACME)
    assert disk.invalidate(Selector(entry_id=first.entry_id)) == 1
    assert other("get", ACME, first.entry_id) is None
    assert other("invalidate", Selector(tenant="acme")) == 2
    assert list(disk.entries(ACME)) == []
    assert disk.size() == other("size", "acme")
    assert disk.problems() == []


def test_two_processes_share_one_byte_budget(disk, other, make_entry, clock):
    entries = [make_entry(entry_id=f"e{i}") for i in range(4)]
    budget = sum(charged_bytes(encode_entry(e)) for e in entries[:2]) + 100
    for entry, put in zip(entries, (disk.put, lambda e, b: other("put", e, b)) * 2, strict=True):
        put(entry, budget)
    assert disk.size("acme").num_entries == 2
    assert disk.size("acme").num_bytes <= budget


def _write_many(folder, barrier, mine):
    store = DiskStore(folder)
    barrier.wait()
    for entry in mine:
        store.put(entry)
    store.close()


def test_processes_that_start_together_on_a_new_folder_lose_nothing(tmp_path, make_entry, clock):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    lots = [[make_entry(entry_id=f"{p}-{i}") for i in range(40)] for p in range(2)]
    processes = [context.Process(target=_write_many, args=(tmp_path / "entries", barrier, lot)) for lot in lots]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [p.exitcode for p in processes] == [0, 0]
    store = DiskStore(tmp_path / "entries", clock)
    assert {e.entry_id for e in store.entries(ACME)} == {e.entry_id for lot in lots for e in lot}
    assert store.changes(ACME, store.latest(ACME) - 80).complete
    assert store.problems() == []
    store.close()


def test_a_clock_that_goes_back_does_not_make_the_new_entry_the_oldest(disk, make_entry, clock):
    disk.put(make_entry(entry_id="old"))
    clock.tick(-3600)
    new = make_entry(entry_id="new")
    disk.put(new, max_bytes=charged_bytes(encode_entry(new)))
    assert [e.entry_id for e in disk.entries(ACME)] == ["new"]
