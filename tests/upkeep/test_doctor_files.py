"""The doctor on everything but entries: index files, encoders, statistics, keys, secret, permissions, surroundings."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest

from cachestack.access.key_store import KeyStore
from cachestack.cli.app import main
from cachestack.entries import Selector
from cachestack.folders import lasting_secret
from cachestack.keys import Partition
from cachestack.observing.request_log import REQUESTS_FOLDER
from cachestack.semantic.index import FaissIndex
from cachestack.semantic.known_encoders import KnownEncoders
from cachestack.semantic.snapshots import INDEX_FOLDER
from cachestack.stores.sums import SumsFile
from cachestack.upkeep.findings import Severity
from cachestack.upkeep.surroundings import check_free_space, check_policies
from tests.upkeep.conftest import ENCODER, Home, make_entry, vector_of

ACME = Partition("acme")


def indexed(home: Home, num: int = 12) -> None:
    """A snapshot, and a journal that goes on from it."""
    store = home.open()
    entries = [make_entry() for _ in range(num)]
    for entry in entries:
        store.put(entry)
    index = FaissIndex(store, snapshot_folder=home.folder / INDEX_FOLDER, snapshot_from=1)
    index.search(ACME, entries[0].contract, vector_of(1), ENCODER, 3)
    assert index.settle(30)
    store.put(make_entry())
    index.search(ACME, entries[0].contract, vector_of(1), ENCODER, 3)
    index.close()
    store.close()
    assert len(list((home.folder / INDEX_FOLDER).iterdir())) == 2


def test_a_home_with_everything_in_it_is_clean(home):
    indexed(home)
    assert home.look().findings == ()


def mended(home: Home, *, severity: Severity, check: str, num: int = 1) -> str:
    """It is found, mended, and the next look is content. Returns what was said."""
    done = home.look()
    found = [f for f in done.findings if f.check == check]
    assert ([f.severity for f in found], done.status) == ([severity] * num, 1)
    assert home.look().findings == done.findings, "looking changes nothing"
    done = home.look(repair=True)
    assert done.status == 0, done
    assert home.look().status == 0
    return " ".join(f"{f.what} {f.outcome}" for f in done.findings)


@pytest.mark.parametrize("how", ["cut", "noise", "renamed"])
def test_a_snapshot_that_cannot_be_used_is_forgotten(home, how):
    indexed(home)
    folder = home.folder / INDEX_FOLDER
    (path,) = folder.glob("*.vectors")
    data = path.read_bytes()
    num = 1
    if how == "cut":
        path.write_bytes(data[:-10])
    elif how == "noise":
        path.write_bytes(data[:-10] + b"\xff" * 10)
    else:
        path.rename(path.with_name(f"{'0' * 40}.vectors"))
        num = 2  # and the journal goes on from nothing
    mended(home, severity=Severity.WARNING, check="index", num=num)
    assert list(folder.iterdir()) == []
    index = FaissIndex(store := home.open(), snapshot_folder=folder)
    entry = next(iter(home.entries().values()))
    assert index.search(ACME, entry.contract, entry.vector, ENCODER, 1)[0].entry == entry
    index.close()
    store.close()


def test_a_snapshot_from_which_the_entries_do_not_go_on(home):
    """The file of entries was lost and begun anew."""
    indexed(home)
    for file in home.file_of("acme").parent.iterdir():
        file.unlink()
    home.put(make_entry())
    said = mended(home, severity=Severity.WARNING, check="index")
    assert "do not go on" in said


def test_a_snapshot_of_entries_that_were_all_removed(home):
    indexed(home)
    store = home.open()
    store.invalidate(Selector(tenant="acme"))
    store.close()
    assert "still holds their vectors" in mended(home, severity=Severity.WARNING, check="index")


def test_a_torn_journal_is_noted_and_left(home):
    indexed(home)
    (path,) = (home.folder / INDEX_FOLDER).glob("*.journal")
    path.write_bytes(path.read_bytes() + b"half a rec")
    done = home.look(repair=True)
    assert ([f.severity for f in done.findings], done.status) == ([Severity.NOTE], 0)
    assert path.exists()


def test_encoders(home):
    known = KnownEncoders(home.folder / "encoders")
    for name in ("first", "second"):
        known.meet(name, np.eye(8, 4, dtype=np.float32))
        known.use(name)
    known.note_moved("second", ACME)
    assert home.look().findings == ()
    os.utime(known.folder / "first.npz", (1, 1))
    (known.folder / "current.json").write_text("[broken")
    (known.folder / "second.moved").write_text("no digest\n")
    mended(home, severity=Severity.WARNING, check="encoders", num=2)
    assert json.loads((known.folder / "current.json").read_text()) == ["second", "first"]
    (known.folder / "first.npz").write_bytes(b"PK nothing")
    mended(home, severity=Severity.WARNING, check="encoders")
    assert (home.folder / "aside" / "encoders-first.npz.1").read_bytes() == b"PK nothing"


def test_statistics_with_a_row_that_cannot_be_read(home):
    sums = SumsFile(home.folder / "stats")
    sums.add({"acme": {"requests": 3}, "other": {"requests": 4}})
    sums.close()
    assert home.look().findings == ()
    with closing(sqlite3.connect(home.folder / "stats" / "cache.db")) as connection, connection:
        assert connection.execute("UPDATE Cache SET value = ? WHERE key = ?", (b"{oops", b"Sacme")).rowcount == 1
    assert "acme" in mended(home, severity=Severity.ERROR, check="statistics")
    sums = SumsFile(home.folder / "stats")
    assert sums.read() == {"other": {"requests": 4}}
    sums.close()
    (aside,) = (home.folder / "aside").iterdir()
    assert aside.read_bytes() == b"{oops"


def test_statistics_that_are_no_database(home):
    (home.folder / "stats").mkdir()
    (home.folder / "stats" / "cache.db").write_bytes(b"no database at all" * 100)
    mended(home, severity=Severity.ERROR, check="statistics")
    sums = SumsFile(home.folder / "stats")
    sums.add({"acme": {"requests": 1}})
    sums.close()
    assert home.look().status == 0


def test_keys_that_are_damaged_are_told_and_left(home):
    keys = KeyStore(home.folder)
    keys.create("acme")
    keys.close()
    assert home.look().findings == ()
    path = home.folder / "access" / "keys.sqlite"
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xa5" * 4096
    path.write_bytes(bytes(data))
    done = home.look(repair=True)
    (finding,) = [f for f in done.findings if f.check == "keys"]
    assert (finding.severity, finding.repair, done.status) == (Severity.ERROR, None, 1)
    assert path.read_bytes() == bytes(data)


def test_a_secret_that_was_cut(home):
    secret = lasting_secret(home.folder)
    assert home.look().findings == ()
    (home.folder / "secret").write_bytes(secret[:5])
    mended(home, severity=Severity.ERROR, check="secret")
    assert len(lasting_secret(home.folder)) == 32


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_what_others_may_open(home):
    home.put(make_entry())
    keys = KeyStore(home.folder)
    keys.create("acme")
    keys.close()
    lasting_secret(home.folder)
    (home.folder / "secret").chmod(0o644)
    (home.folder / "access" / "keys.sqlite").chmod(0o640)
    home.file_of("acme").parent.chmod(0o755)
    mended(home, severity=Severity.ERROR, check="permissions", num=3)
    for path in ("secret", "access/keys.sqlite"):
        assert stat.S_IMODE((home.folder / path).stat().st_mode) == 0o600


def test_lines_of_the_request_log_that_were_cut_are_noted(home):
    folder = home.folder / REQUESTS_FOLDER
    folder.mkdir(mode=0o700)
    path = folder / "00000001.jsonl"
    path.write_text('{"v": 1}\n{"v": 1, "cut\n')
    path.chmod(0o600)
    done = home.look()
    assert ([f.severity for f in done.findings], done.status) == ([Severity.NOTE], 0)
    assert "1 of 2 lines" in done.findings[0].what


def test_what_a_killed_process_left_behind_goes_after_a_while(home):
    left = home.folder / "tmpabcd1234"
    left.write_bytes(b"x")
    assert home.look().findings == (), "somebody may be writing it"
    os.utime(left, (1, 1))
    mended(home, severity=Severity.WARNING, check="left behind")
    assert not left.exists()


def test_policies_that_do_not_load(home, tmp_path):
    file = tmp_path / "policies.yaml"
    file.write_text("default: {semantic: {sensitiv: true}}")
    home.policies = str(file)
    done = home.look(repair=True, checks=[check_policies])
    assert ([f.severity for f in done.findings], done.status) == ([Severity.ERROR], 1)
    assert "did you mean 'sensitive'?" in done.findings[0].what


def test_a_tenant_without_a_policy_and_one_over_its_budget_are_noted(home, tmp_path):
    home.put(*(make_entry() for _ in range(3)), make_entry(tenant="nobody"))
    file = tmp_path / "policies.yaml"
    file.write_text("unknown_tenants: refuse\ntenants: {acme: {retention: {max_bytes: 3000}}}")
    home.policies = str(file)
    done = home.look()
    assert ([f.severity for f in done.findings], done.status) == ([Severity.NOTE] * 2, 0)


@pytest.mark.parametrize(("free", "severities"), [(2**30, []), (2**28, [Severity.WARNING]), (2**20, [Severity.ERROR])])
def test_room_on_the_disk(home, free, severities):
    done = home.look(checks=[lambda looked: check_free_space(looked, lambda path: free)])
    assert [f.severity for f in done.findings] == severities


# the command


def test_the_command(home, capsys):
    home.put(make_entry())
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "clean"
    lasting_secret(home.folder)
    (home.folder / "secret").write_bytes(b"short")
    assert main(["doctor", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["status"], said["counts"]) == ("found", {"error": 1, "warning": 0, "note": 0})
    assert said["findings"][0]["place"] == str(home.folder / "secret")
    assert main(["doctor"]) == 1
    assert "1 not as it should be" in capsys.readouterr().out
    assert main(["doctor", "--repair"]) == 0
    assert "all is well" in capsys.readouterr().out
    assert main(["doctor"]) == 0


def test_a_home_that_is_not_there(home, capsys, monkeypatch):
    monkeypatch.setenv("CACHESTACK_HOME", str(home.folder / "none"))
    assert main(["doctor"]) == 2
    assert "is not there" in capsys.readouterr().err
    assert not (home.folder / "none").exists()
