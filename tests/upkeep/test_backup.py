"""Backups: whole or nothing, of one moment, and back again."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

from cachestack.access.key_store import KeyStore
from cachestack.cli.app import main
from cachestack.entries import UPGRADES, Selector
from cachestack.errors import InputFileError, StoreError, UsageError
from cachestack.folders import lasting_secret
from cachestack.keys import Partition
from cachestack.semantic.budget.keeper import BUDGET_FOLDER, Keeper
from cachestack.semantic.budget.pairs import Pair
from cachestack.semantic.known_encoders import KnownEncoders
from cachestack.stores.opening import open_redis
from cachestack.stores.sums import SumsFile
from cachestack.upkeep import backups
from cachestack.upkeep.backups import back_up, unpack
from cachestack.upkeep.moving import movable
from cachestack.upkeep.restoring import restore
from tests.upkeep.conftest import ENCODER, Home, make_entry

ACME = Partition("acme")
CANARIES = np.eye(8, 4, dtype=np.float32) + np.eye(8, 4, k=-4, dtype=np.float32)


def know(home: Home) -> None:
    """The encoder, as whoever used it would."""
    KnownEncoders(home.folder / "encoders").meet(ENCODER, CANARIES)


def filled(home: Home, num: int = 5):
    entries = [make_entry() for _ in range(num)] + [make_entry(tenant="beta", partition=Partition("beta", user="ana"))]
    home.put(*entries)
    know(home)
    sums = SumsFile(home.folder / "stats")
    sums.add({"acme": {"requests": 7, "cost": 0.5}})
    sums.close()
    return {entry.entry_id: entry for entry in entries}


def saved(home: Home, path, **options):
    store = home.open()
    try:
        return back_up(home.folder, store, path, **options)
    finally:
        store.close()


def brought_back(home: Home, path, **options):
    store = home.open()
    try:
        values = {"max_bytes_of": lambda tenant: None, "now_s": 1e9}
        return restore(path, home.folder, store, **(values | options))
    finally:
        store.close()


def sums_of(home: Home):
    sums = SumsFile(home.folder / "stats")
    try:
        return sums.read()
    finally:
        sums.close()


@pytest.fixture
def other(tmp_path) -> Home:
    return Home(tmp_path / "other")


def test_there_and_back(home, other, tmp_path):
    entries, file = filled(home), tmp_path / "backup"
    keys = KeyStore(home.folder)
    _, record = keys.create("acme", user="ana")
    keys.raise_epoch("acme")
    keys.close()
    secret = lasting_secret(home.folder)
    done = saved(home, file, with_secret=True)
    assert (done.num_entries, done.num_left_out) == (6, 0)
    assert done.members == ("entries.jsonl", "statistics.json", "keys.sqlite", "secret")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.glob(".backup*")) == []
    restored = brought_back(other, file)
    assert (restored.entries.imported, restored.entries.exact_only, restored.num_keys) == (6, 0, 1)
    assert restored.left_alone == ()
    assert other.entries() == entries
    assert sums_of(other) == {"acme": {"requests": 7, "cost": 0.5}}
    assert lasting_secret(other.folder) == secret
    theirs = KeyStore(other.folder)
    assert theirs.records() == [record]
    assert theirs.epoch("acme", None, None) == 1
    theirs.close()
    assert other.look().status == 0


def test_a_secret_goes_along_only_where_it_is_asked_for_and_keys_can_be_left_out(home, tmp_path):
    filled(home)
    lasting_secret(home.folder)
    KeyStore(home.folder).create("acme")
    assert saved(home, tmp_path / "a").members == ("entries.jsonl", "statistics.json", "keys.sqlite")
    assert saved(home, tmp_path / "b", with_keys=False).members == ("entries.jsonl", "statistics.json")


def test_a_home_that_is_not_empty_needs_force_and_then_the_newer_stays(home, other, tmp_path):
    file = tmp_path / "backup"
    know(home)
    old, gone = make_entry("q", age_s=100), make_entry()
    home.put(old, gone)
    keys = KeyStore(home.folder)
    _, revoked = keys.create("acme", name="r")
    saved(home, file)
    keys.revoke(revoked.key_id)
    keys.raise_epoch("acme", user="ana")
    new = make_entry("q", age_s=50)
    home.put(new)
    sums = SumsFile(home.folder / "stats")
    sums.add({"acme": {"requests": 2}})
    sums.close()
    store = home.open()
    store.invalidate(Selector(tenant="acme", entry_id=gone.entry_id))
    store.close()
    with pytest.raises(UsageError, match="1 entries, keys, statistics"):
        brought_back(home, file)
    assert home.entries() == {new.entry_id: new}
    done = brought_back(home, file, force=True)
    assert (done.entries.imported, dict(done.entries.skipped), done.num_keys) == (1, {"newer": 1}, 0)
    assert done.left_alone == ("statistics",)
    assert home.entries() == {new.entry_id: new, gone.entry_id: gone}
    assert sums_of(home) == {"acme": {"requests": 2}}, "not counted twice"
    assert keys.records()[0].revoked_s is not None, "a key that was revoked stays so"
    assert keys.epoch("acme", "ana", None) == 1
    keys.close()


def test_what_was_invalidated_with_a_condition_is_held_back(home, tmp_path):
    entry = make_entry()
    home.put(entry)
    saved(home, tmp_path / "backup")
    store = home.open()
    store.invalidate(Selector(tenant="acme", tag=None, created_before_s=2e9))
    store.close()
    done = brought_back(home, tmp_path / "backup", force=True)
    assert dict(done.entries.skipped) == {"invalidated": 1}
    assert home.entries() == {}


def test_a_restore_that_was_cut_off_is_repeated(home, other, tmp_path):
    entries = filled(home)
    saved(home, tmp_path / "backup")
    store = other.open()
    put, num = store.put, 0

    def dies(*arguments, **options):
        nonlocal num
        num += 1
        if num == 3:
            raise StoreError("killed")
        return put(*arguments, **options)

    store.put = dies
    with pytest.raises(StoreError):
        restore(tmp_path / "backup", other.folder, store, max_bytes_of=lambda tenant: None, now_s=1e9)
    store.close()
    assert brought_back(other, tmp_path / "backup", force=True).entries.imported == 4
    assert other.entries() == entries
    assert sums_of(other) == {"acme": {"requests": 7, "cost": 0.5}}


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "text", "tar of others", "gzip of others"])
def test_a_damaged_file_is_refused_whole(home, other, tmp_path, how):
    filled(home, 50)
    file = tmp_path / "backup"
    saved(home, file)
    data = file.read_bytes()
    if how == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        middle = len(data) // 2
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "text":
        file.write_text("a letter to you")
    elif how == "tar of others":
        with tarfile.open(file, "w:gz") as tar:
            tar.addfile(tarfile.TarInfo("something"))
    else:
        file.write_bytes(gzip.compress(b"x" * 2000))
    with pytest.raises(InputFileError, match=r"damaged|cut off|not a file"):
        brought_back(other, file)
    assert other.entries() == {}


def test_a_bit_that_flipped_anywhere_is_found(home, other, tmp_path):
    filled(home)
    file = tmp_path / "backup"
    saved(home, file)
    data = file.read_bytes()
    folder = tmp_path / "work"
    begins = data.index(b"\0", 10) + 1  # before: gzip's own note of time and name
    num_found = 0
    for place in range(begins, len(data), max(1, len(data) // 80)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        if is_the_same(file, data):  # such as another way to say the same zeros
            continue
        folder.mkdir()
        with pytest.raises(InputFileError, match=r"damaged|cut off|not a file|more in it|version"):
            unpack(file, folder)
        shutil.rmtree(folder)
        num_found += 1
    assert num_found > 40


def is_the_same(file: Path, data: bytes) -> bool:
    """Whether its content is, as gzip itself checks it."""
    try:
        return gzip.decompress(file.read_bytes()) == gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return False


def repacked(file, change) -> None:
    """The same backup with its members changed."""
    with tarfile.open(file) as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar}
    change(members)
    with tarfile.open(file, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("field", ["v", "entry_v", "key_v"])
def test_another_version_is_refused_with_its_name(home, other, tmp_path, field):
    filled(home)
    file = tmp_path / "backup"
    saved(home, file)

    def change(members):
        manifest = json.loads(members["backup.json"])
        members["backup.json"] = json.dumps(manifest | {field: 99}).encode()

    repacked(file, change)
    with pytest.raises(InputFileError, match=f"another version .{field} 99"):
        brought_back(other, file)


def test_what_does_not_belong_into_a_backup_is_not_unpacked(home, tmp_path):
    filled(home)
    file, folder = tmp_path / "backup", tmp_path / "work"
    folder.mkdir()
    saved(home, file)

    def change(members):
        manifest = json.loads(members["backup.json"])
        manifest["members"]["../evil"] = {"sha256": "", "num_bytes": 0}
        members["backup.json"] = json.dumps(manifest).encode()
        members["../evil"] = b""

    repacked(file, change)
    with pytest.raises(InputFileError, match="makes no sense"):
        unpack(file, folder)
    assert not (tmp_path / "evil").exists()


def test_a_changed_member_is_found_by_its_checksum(home, tmp_path):
    filled(home)
    file, folder = tmp_path / "backup", tmp_path / "work"
    folder.mkdir()
    saved(home, file)
    repacked(file, lambda members: members.update({"statistics.json": b'{"acme": {"requests": 9999}}'}))
    with pytest.raises(InputFileError, match=r"checksum of statistics.json"):
        unpack(file, folder)


def test_a_backup_that_fails_leaves_the_one_before(home, tmp_path, monkeypatch):
    filled(home)
    file = tmp_path / "backup"
    saved(home, file)
    before = file.read_bytes()
    with pytest.raises(UsageError, match="--force"):
        saved(home, file)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backups, "_pack", full)
    with pytest.raises(OSError, match="No space"):
        saved(home, file, overwrite=True)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_each_tenant_is_as_of_one_moment_while_others_write(home, other, tmp_path):
    """A question that is answered anew again and again is in every backup exactly once."""
    questions = [f"q {number}" for number in range(700)]  # several pages
    home.put(*(make_entry(q, age_s=1000) for q in questions))
    stop, store = threading.Event(), home.open()

    def write() -> None:
        rng = np.random.default_rng(1)
        while not stop.is_set():
            store.put(make_entry(questions[rng.integers(len(questions))]))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            saved(home, tmp_path / f"backup-{number}")
            with tarfile.open(tmp_path / f"backup-{number}") as tar:
                lines = tar.extractfile("entries.jsonl").read().splitlines()[1:-1]
            assert sorted(json.loads(line)["question"] for line in lines) == sorted(questions)
    finally:
        stop.set()
        writer.join()
    store.close()


def test_an_entry_of_an_older_version_is_brought_forward(home, other, tmp_path, monkeypatch):
    filled(home)
    file = tmp_path / "backup"
    saved(home, file)
    monkeypatch.setitem(UPGRADES, 0, lambda fields: {**fields, "answer": fields["answer"] + ", brought forward"})

    def change(members):
        lines = [json.loads(line) for line in members["entries.jsonl"].splitlines()]
        lines = [line | {"v": 0} if "entry_id" in line else line for line in lines]
        lines[0]["entry_v"] = 0
        members["entries.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        manifest = json.loads(members["backup.json"]) | {"entry_v": 0}
        content = members["entries.jsonl"]
        said = {"sha256": hashlib.sha256(content).hexdigest(), "num_bytes": len(content)}
        manifest["members"]["entries.jsonl"] = said
        members["backup.json"] = json.dumps(manifest).encode()

    repacked(file, change)
    assert brought_back(other, file).entries.imported == 6
    assert all(entry.answer.endswith(", brought forward") for entry in other.entries().values())


def test_an_entry_that_nobody_can_find_does_not_spoil_a_backup(home, other, tmp_path):
    know(home)
    home.put(make_entry(exact="0" * 64), good := make_entry())
    assert saved(home, tmp_path / "backup").num_left_out == 1
    brought_back(other, tmp_path / "backup")
    assert other.entries() == {good.entry_id: good}


def test_entries_in_redis_too(redis_home, shared, other, tmp_path):
    know(redis_home)
    entries = [make_entry() for _ in range(4)]
    for entry in entries:
        shared.put(entry)
    done = back_up(redis_home.folder, shared, tmp_path / "backup")
    assert done.num_entries == 4
    brought_back(other, tmp_path / "backup")
    assert other.entries() == {entry.entry_id: entry for entry in entries}
    shared.invalidate(Selector(entry_id=entries[0].entry_id))
    store = open_redis(redis_home.ref)
    again = restore(
        tmp_path / "backup", redis_home.folder, movable(store), max_bytes_of=lambda tenant: None, now_s=1e9, force=True
    )
    assert (again.entries.imported, dict(again.entries.skipped)) == (1, {"newer": 3})
    store.close()


def test_the_commands(home, tmp_path, monkeypatch, capsys):
    filled(home)
    file = tmp_path / "all.backup"
    assert main(["backup", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_entries"] == 6
    assert main(["backup", str(file)]) == 2
    assert "--force" in capsys.readouterr().err
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path / "other"))
    assert main(["restore", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == 6
    assert main(["restore", str(file)]) == 2
    assert "--force adds" in capsys.readouterr().err
    assert main(["restore", str(file), "--force"]) == 0
    assert "0 of 6 entries" in capsys.readouterr().out
    os.truncate(file, 100)
    assert main(["restore", str(file), "--force"]) == 2
    assert main(["restore", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_what_was_found_wrong_comes_back_with_the_entries(home, other, tmp_path):
    filled(home)
    keeper = Keeper(home.folder / BUDGET_FOLDER, "acme", lambda: 5.0)
    keeper.write(dict, [Pair("asked", "wrong", True, 2e9), Pair("asked", "right", False, 2e9)])
    keeper.close()
    there = Keeper(other.folder / BUDGET_FOLDER, "acme", lambda: 5.0)
    there.write(dict, [Pair("asked", "theirs", True, 2e9)])
    saved(home, tmp_path / "backup")
    brought_back(other, tmp_path / "backup", force=True)
    kept = there.read()
    there.close()
    assert {(pair.exact, pair.entry_id, pair.wrong, pair.until_s) for pair in kept.pairs} == {
        ("asked", "wrong", True, 2e9),
        ("asked", "theirs", True, 2e9),
    }
    assert kept.trusted_from_s == 0


def test_a_damaged_record_of_what_was_found_wrong_is_not_left_out_in_silence(home, tmp_path):
    filled(home)
    folder = home.folder / BUDGET_FOLDER
    folder.mkdir()
    (folder / "x.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="error budget"):
        saved(home, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()
