"""The doctor on entries on disk: it finds each fault, mends it without losing what is good, and is then content."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pytest

from cachestack.entries import Selector
from cachestack.keys import Partition
from cachestack.stores.codec import encode_entry
from cachestack.stores.layout import entry_key, exact_key, wall
from cachestack.upkeep import entry_files
from cachestack.upkeep.findings import Severity
from tests.upkeep.conftest import Home, make_entry

ACME = Partition("acme")


def change(home: Home, statement: str, *values: object, tenant: str = "acme") -> None:
    with closing(sqlite3.connect(home.file_of(tenant))) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


def test_a_home_that_is_well_is_clean(home):
    home.put(*(make_entry() for _ in range(5)), make_entry(tenant="other"))
    done = home.look()
    assert (done.findings, done.failures, done.status) == ((), (), 0)


def test_an_empty_home_is_clean(home):
    assert home.look().findings == ()
    assert [*home.folder.iterdir()] == [], "looking creates nothing"


FAULTS = (
    "damaged",
    "misplaced",
    "no way",
    "lost way",
    "wrong way",
    "charged",
    "sum",
    "changes",
    "number",
    "fence",
    "foreign",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_mended_and_the_rest_stays(home, fault):
    victim, *others = [make_entry() for _ in range(6)]
    home.put(victim, *others)
    key, way = entry_key(ACME, victim.entry_id), exact_key(ACME, victim.exact)
    kept = {e.entry_id: e for e in others}
    if fault == "damaged":
        change(home, "UPDATE Cache SET value = ? WHERE key = ?", encode_entry(victim)[:-3], key)
    elif fault == "misplaced":
        change(home, "UPDATE Cache SET key = ? WHERE key = ?", entry_key(ACME, "another"), key)
    elif fault == "no way":
        change(home, "DELETE FROM Cache WHERE key = ?", way)
        kept[victim.entry_id] = victim
    elif fault == "lost way":
        change(home, "DELETE FROM Cache WHERE key = ?", key)
    elif fault == "wrong way":
        change(home, "UPDATE Cache SET value = ? WHERE key = ?", entry_key(ACME, others[0].entry_id), way)
        kept[victim.entry_id] = victim
    elif fault == "charged":
        change(home, "UPDATE Cache SET size = size + 7 WHERE key = ?", key)
        kept[victim.entry_id] = victim
    elif fault == "sum":
        change(home, "UPDATE Settings SET value = value + 1 WHERE key = 'size'")
        kept[victim.entry_id] = victim
    elif fault == "changes":
        change(
            home, "DELETE FROM Cache WHERE key = (SELECT MAX(key) FROM Cache WHERE key >= ? AND key < ?)", b"J", b"K"
        )
        kept[victim.entry_id] = victim
    elif fault == "number":
        change(home, "UPDATE Cache SET value = ? WHERE key = ?", b"\xff" * 8, b"N" + wall(ACME))
        kept[victim.entry_id] = victim
    elif fault == "fence":
        change(home, "INSERT INTO Cache(key, raw, mode, value, size) VALUES (?, 1, 1, ?, 0)", b"I" + b"\0" * 16, b"?")
        kept[victim.entry_id] = victim
    else:
        change(home, "INSERT INTO Cache(key, raw, mode, value, size) VALUES (?, 0, 4, ?, 0)", b"\x80pickle", b"\x80")
        kept[victim.entry_id] = victim
    done = home.look()
    assert done.status == 1, "it is found"
    assert all("acme" in finding.place and finding.repair for finding in done.findings)
    assert home.look().findings == done.findings, "looking changes nothing"
    done = home.look(repair=True)
    assert (done.status, [f.is_repaired for f in done.findings]) == (0, [True] * len(done.findings))
    assert (home.look().findings, home.look().status) == ((), 0)
    assert home.entries() == kept
    store = home.open()
    for entry in kept.values():
        assert store.find_exact(ACME, entry.exact) == entry
    seen = store.latest(ACME)
    store.put(fresh := make_entry())
    changes = store.changes(ACME, seen)
    assert [c.entry_id for c in changes.changes] == [fresh.entry_id]
    store.close()


def test_two_entries_of_one_question_leave_the_newer(home):
    """Whatever has brought that about: only one of them may answer."""
    old, new = make_entry("q", age_s=100), make_entry("q", age_s=50)
    home.put(old)
    data = encode_entry(new)
    change(
        home,
        "INSERT INTO Cache(key, raw, mode, value, size, access_time) VALUES (?, 1, 1, ?, ?, 0)",
        entry_key(ACME, new.entry_id),
        data,
        len(data) + 1500,
    )
    assert home.look().status == 1
    assert home.look(repair=True).status == 0
    assert home.entries() == {new.entry_id: new}
    assert home.look().status == 0


def test_readers_that_follow_the_changes_start_over_after_a_mended_record(home):
    home.put(make_entry(), make_entry())
    store = home.open()
    seen = store.latest(ACME)
    change(home, "DELETE FROM Cache WHERE key = (SELECT MAX(key) FROM Cache WHERE key >= ? AND key < ?)", b"J", b"K")
    assert home.look(repair=True).status == 0
    assert not store.changes(ACME, seen).complete
    store.close()


def cut_in_the_middle(home: Home) -> None:
    """Overwrite pages of the table with noise."""
    path = home.file_of("acme")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((page_size,),) = connection.execute("PRAGMA page_size").fetchall()
    data = bytearray(path.read_bytes())
    middle = len(data) // page_size // 2 * page_size
    data[middle : middle + page_size] = b"\xa5" * page_size
    path.write_bytes(bytes(data))


def test_a_damaged_file_is_rebuilt_from_what_can_be_read(home):
    entries = {e.entry_id: e for e in (make_entry(answer="x" * 3000) for _ in range(60))}
    home.put(*entries.values())
    home.put(make_entry(tenant="other", entry_id="other"))
    cut_in_the_middle(home)
    done = home.look()
    assert done.status == 1
    assert all(f.severity is Severity.ERROR for f in done.findings)
    done = home.look(repair=True)
    assert done.status == 0
    (aside,) = (home.folder / "aside").iterdir()
    assert any(str(aside) in (f.outcome or "") for f in done.findings), "it says where the damaged file is"
    found = home.entries()
    assert found.pop("other")
    assert found
    assert found.items() <= entries.items()
    assert len(found) >= 50, "one page holds a few of them"
    again = home.look()
    assert again.status == 0
    assert [f.severity for f in again.findings] == [Severity.NOTE], "the one that is kept aside"


def test_what_was_invalidated_does_not_come_back_by_a_repair(home):
    """A page of before the removal lies in the damaged file: entry and invalidation."""
    old = make_entry()
    home.put(old, *(make_entry(answer="y" * 3000) for _ in range(40)))
    store = home.open()
    with closing(sqlite3.connect(home.file_of("acme"))) as connection:
        row = connection.execute("SELECT * FROM Cache WHERE key = ?", (entry_key(ACME, old.entry_id),)).fetchone()
    assert store.invalidate(Selector(tenant="acme", created_before_s=old.created_at_s + 1)) > 0
    store.put(make_entry(age_s=-1, answer="y" * 3000))
    for _ in range(40):
        store.put(make_entry(age_s=-1, answer="y" * 3000))
    store.close()
    with closing(sqlite3.connect(home.file_of("acme"))) as connection, connection:
        connection.execute(f"INSERT INTO Cache VALUES ({', '.join('?' * len(row))})", (None, *row[1:]))
    cut_in_the_middle(home)
    assert home.look(repair=True).status == 0
    assert old.entry_id not in home.entries()


def test_an_empty_database_file_is_set_right(home):
    home.put(make_entry())
    path = home.file_of("acme")
    for other in path.parent.iterdir():
        other.unlink()
    path.write_bytes(b"this is no database" * 300)
    assert home.look().status == 1
    assert home.look(repair=True).status == 0
    assert home.look().status == 0
    home.put(entry := make_entry())
    assert home.entries() == {entry.entry_id: entry}


def test_a_file_that_was_put_aside_is_kept_and_told(home):
    home.put(make_entry())
    aside = home.file_of("acme").parent
    aside.rename(aside.with_name(f"{aside.name}.corrupt-1"))
    done = home.look()
    assert ([f.severity for f in done.findings], done.status) == ([Severity.WARNING], 1)
    assert home.look(repair=True).status == 0
    (kept,) = (home.folder / "aside").iterdir()
    assert (kept / "cache.db").exists(), "nothing is deleted without a word"
    assert home.look().status == 0


def test_a_store_that_is_written_to_meanwhile_is_clean(home):
    """Each file is looked at as of one moment: what others write is no fault."""
    store, stop = home.open(), threading.Event()
    store.put(make_entry())

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.put(make_entry(f"q {number % 7}"), max_bytes=15_000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(10):
            done = home.look()
            assert (done.findings, done.failures) == ((), ())
        assert home.look(repair=True).status == 0
    finally:
        stop.set()
        writer.join()
    store.close()
    assert home.look().status == 0


def test_a_folder_that_cannot_be_read_is_said(home, monkeypatch):
    home.put(make_entry())

    refuse_error = sqlite3.OperationalError("disk I/O error")
    refuse_error.sqlite_errorcode = sqlite3.SQLITE_IOERR

    def fail(*_, **__):
        raise refuse_error

    monkeypatch.setattr(entry_files, "examine", fail)
    done = home.look()
    assert (done.status, len(done.failures)) == (2, 1)
