"""Keys at rest: only digests, for their owner alone, the same for all processes, and never an open door."""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cachestack
from cachestack.access import KeyStore
from cachestack.access.api_key import read_key
from cachestack.access.key_file import FOLDER, NAME
from cachestack.access.key_store import FRESH_S
from cachestack.errors import StoreError, UsageError
from tests.access.parts import parts_of

ROOT = str(Path(cachestack.__file__).parents[1])
MAKER = Path(__file__).with_name("key_maker.py")


def run(home: Path, program: str) -> str:
    """What another process prints; `store` is its own."""
    start = f"from pathlib import Path; from cachestack.access import KeyStore; store = KeyStore(Path({str(home)!r}))\n"
    done = subprocess.run(
        [sys.executable, "-c", start + program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": ROOT},
    )
    return done.stdout.strip()


def find(store: KeyStore, key: str):
    return store.find(*parts_of(key))


def edit(store: KeyStore, statement: str) -> None:
    connection = sqlite3.connect(store.path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_key_opens_what_it_was_made_for(store):
    key, record = store.create("acme", user="ana", role="clerk", name="CI")
    found = find(store, key)
    assert (found.key_id, found.tenant, found.user, found.role, found.kind) == (
        record.key_id,
        "acme",
        "ana",
        "clerk",
        "client",
    )
    assert store.principal(found).tenant == "acme"


def test_the_secret_is_not_at_rest_and_the_file_is_its_owners(store):
    key, record = store.create("acme")
    key_id, secret = parts_of(key)
    data = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    assert key_id.encode() in data
    assert secret.encode() not in data
    assert record.digest in data
    assert secret not in repr(record)
    assert stat.S_IMODE(os.stat(store.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(store.path.parent).st_mode) == 0o700
    assert [path.name for path in store.path.parent.iterdir()] == [NAME]


def test_another_secret_an_unknown_id_and_another_ones_secret(store):
    key, _ = store.create("acme")
    other, _ = store.create("rival")
    (key_id, secret), (other_id, other_secret) = parts_of(key), parts_of(other)
    assert store.find(key_id, other_secret) is None
    assert store.find(other_id, secret) is None
    assert store.find("AAAAAAAAAAAA", secret) is None
    assert find(store, key).tenant == "acme"


@pytest.mark.parametrize(
    "token",
    ["", "csk_", "csk_a_b", "csk_AAAAAAAAAAAA_", "csk_AAAAAAAAAAAA_" + "a" * 44, "csk_AAAAAAAAAAA\n_" + "a" * 43],
)
def test_what_is_no_key(token):
    assert read_key(token) is None


def test_an_expired_key(store, clock):
    key, _ = store.create("acme", expires_in_s=10)
    clock.now_s += 9.5
    assert find(store, key) is not None
    clock.now_s += 0.5
    assert find(store, key) is None
    assert [record.state(clock()) for record in store.records()] == ["expired"]


def test_a_revoked_key_stays_revoked(store, clock, tmp_path):
    key, record = store.create("acme")
    assert store.revoke(key).revoked_s == clock()
    assert find(store, key) is None
    clock.now_s += 5
    assert store.revoke(record.key_id).revoked_s == clock() - 5
    assert find(KeyStore(tmp_path, clock=clock), key) is None
    with pytest.raises(UsageError, match="there is no key AAAAAAAAAAAA"):
        store.revoke("AAAAAAAAAAAA")
    with pytest.raises(UsageError, match="12 letters"):
        store.revoke("acme")


def test_another_process_is_heard_within_a_second(store, tmp_path, ticks):
    key, record = store.create("acme", user="ana")
    assert find(store, key) is not None
    run(tmp_path, f"store.revoke({record.key_id!r}); print(store.raise_epoch('acme'))")
    assert FRESH_S < 1
    assert find(store, key) is not None, "the test must see what is in memory first"
    ticks.now_s += FRESH_S
    assert find(store, key) is None
    assert store.epoch("acme", "ana", None) == 1
    other = run(tmp_path, "print(store.create('acme')[0])")
    ticks.now_s += FRESH_S
    assert find(store, other).tenant == "acme"


def test_between_changes_the_tables_are_not_read(store, ticks, monkeypatch):
    key, _ = store.create("acme")
    find(store, key)  # notes its use
    reads = []
    monkeypatch.setattr(type(store._file), "read", lambda self: reads.append(1))
    for _ in range(100):
        ticks.now_s += FRESH_S
        assert find(store, key) is not None
    assert reads == []


def test_epochs_come_from_one_counter_a_tenant(store):
    assert store.epoch("acme", "ana", "clerk") == 0
    assert store.raise_epoch("acme", user="ana") == 1
    assert (store.epoch("acme", "ana", None), store.epoch("acme", "bob", None)) == (1, 0)
    assert store.raise_epoch("acme") == 2  # bob must not come into the epoch that ana was in
    assert (store.epoch("acme", "ana", None), store.epoch("acme", "bob", None)) == (2, 2)
    assert store.raise_epoch("acme", role="clerk") == 3
    assert (store.epoch("acme", "bob", "clerk"), store.epoch("acme", "bob", None)) == (3, 2)
    assert (store.raise_epoch("rival"), store.epoch("acme", None, None)) == (1, 2)
    assert store.raise_epoch("acme", user="clerk") == 4  # a user of a role's name is no role
    assert store.epoch("acme", "bob", "clerk") == 3
    with pytest.raises(UsageError, match="not of both"):
        store.raise_epoch("acme", user="a", role="b")


@pytest.mark.parametrize(
    "names",
    [{"tenant": ""}, {"tenant": "a" * 257}, {"tenant": "a\n"}, {"tenant": "a", "user": ""}, {"tenant": "\ud800"}],
)
def test_names_that_name_nobody(store, names):
    with pytest.raises(UsageError, match="must be a name"):
        store.create(**names)
    assert not store.exists()


@pytest.mark.parametrize("column", ["tenant = 'rival'", "kind = 'admin'", "expires_s = NULL", "user = 'boss'"])
def test_a_row_that_was_changed_is_no_key(store, tmp_path, clock, column):
    key, _ = store.create("acme", user="ana", expires_in_s=10)
    edit(store, f"UPDATE keys SET {column}")
    assert find(KeyStore(tmp_path, clock=clock), key) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no database at all"),
        lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 8192 + path.read_bytes()[12288:]),
        lambda path: os.truncate(path, 5000),
    ],
    ids=["emptied", "not SQLite", "overwritten", "cut short"],
)
def test_a_damaged_file_lets_nobody_in_and_says_what_to_do(store, tmp_path, ticks, damage):
    key, _ = store.create("acme")
    store.close()
    damage(store.path)
    fresh = KeyStore(tmp_path)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"damaged .*backup; or move it away"):
            find(fresh, key)
        with pytest.raises(StoreError, match="damaged"):
            fresh.exists()
    with pytest.raises(StoreError, match="damaged"):
        fresh.create("acme")
    ticks.now_s += FRESH_S
    with pytest.raises(StoreError, match="damaged"):
        find(store, key)


def test_a_file_that_went_away_or_was_put_back(store, ticks, tmp_path):
    key, _ = store.create("acme")
    backup = store.path.read_bytes()
    other, _ = store.create("acme")
    store.path.unlink()
    ticks.now_s += FRESH_S
    assert find(store, key) is None
    (tmp_path / "restored").write_bytes(backup)
    (tmp_path / "restored").chmod(0o600)
    (tmp_path / "restored").rename(store.path)
    ticks.now_s += FRESH_S
    assert find(store, key) is not None
    assert find(store, other) is None


def test_a_file_open_to_others_is_closed(store, tmp_path, caplog):
    store.create("acme")
    store.path.chmod(0o666)
    assert KeyStore(tmp_path).exists()
    assert stat.S_IMODE(os.stat(store.path).st_mode) == 0o600
    assert "open to others" in caplog.text


def test_use_is_noted_to_the_hour_and_wakes_nobody(store, clock, tmp_path, ticks):
    key, _ = store.create("acme")
    other = KeyStore(tmp_path, clock=clock, ticks=ticks, start=lambda work: work())
    clock.now_s = 7200.0 * 1000 + 100
    assert find(store, key) is not None
    assert [r.last_used_s for r in store.records()] == [7200.0 * 1000]
    generation = store._file.generation()
    for moved_s in (10, 3000, 3600):
        clock.now_s += moved_s
        find(store, key)
        find(other, key)
    assert [r.last_used_s for r in other.records()] == [7200.0 * 1000 + 3600]
    assert store._file.generation() == generation
    other.close()


def test_many_make_keys_at_once(tmp_path):
    """Threads with stores of their own, all of which find no file at first."""
    barrier = threading.Barrier(8)

    def make(number: int) -> str:
        store = KeyStore(tmp_path)
        barrier.wait()
        return store.create(f"tenant-{number}")[0]

    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(make, range(8)))
    store = KeyStore(tmp_path, start=lambda work: work())
    assert [find(store, key).tenant for key in keys] == [f"tenant-{number}" for number in range(8)]
    assert [path.name for path in store.path.parent.iterdir()] == [NAME]


def test_epochs_raised_at_once_are_all_different(store, tmp_path):
    barrier = threading.Barrier(6)
    stores = [store, *(KeyStore(tmp_path) for _ in range(2))]

    def raise_(number: int) -> int:
        barrier.wait()
        return stores[number % 3].raise_epoch("acme", user=f"u{number}")

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(raise_, range(6))) == [1, 2, 3, 4, 5, 6]


def test_a_killed_maker_leaves_what_it_said_and_nothing_in_part(tmp_path):
    rng = random.Random(4)
    for round_number in range(6):
        home = tmp_path / str(round_number % 2)  # every other time on a file that a killed one left
        process = subprocess.Popen(
            [sys.executable, str(MAKER), str(home)], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ROOT}
        )
        with process:
            lines = [process.stdout.readline() for _ in range(rng.randint(1, 12))]
            moment = time.perf_counter() + rng.uniform(0, 0.004)
            while time.perf_counter() < moment:
                pass
            process.kill()
            lines += process.stdout.readlines()
        assert process.returncode == -9, "the maker ended by itself"
        store = KeyStore(home)
        said = [line.decode().split() for line in lines if line.endswith(b"\n")]
        revoked = {int(words[1]) for words in said if words[0] == "revoked"}
        made = {int(words[0]): words[1] for words in said if words[0] != "revoked"}
        assert made
        for number, key in made.items():
            found = find(store, key)
            if number in revoked:
                assert found is None
            elif number != max(made) or number % 3:  # the last may be revoked without a word about it
                assert found is not None
                assert found.tenant == f"tenant-{number}"
        store.create("after")
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork_both_go_on(tmp_path):
    program = """
import os, sys
from cachestack.access.api_key import read_key
key, record = store.create('acme')
child = os.fork()
if child == 0:
    store.revoke(record.key_id)
    os._exit(0 if store.find(*read_key(key)) is None else 1)
status = os.waitpid(child, 0)[1]
store._look_again_at_s = 0.0
print(status, store.find(*read_key(key)))
"""
    assert run(tmp_path, program) == "0 None"


def test_nothing_is_made_by_asking(tmp_path):
    store = KeyStore(tmp_path / "home")
    assert not store.exists()
    assert store.records() == []
    assert store.find("AAAAAAAAAAAA", "a" * 43) is None
    assert store.epoch("acme", None, None) == 0
    with pytest.raises(UsageError, match="there is no key"):
        store.revoke("AAAAAAAAAAAA")
    assert list(tmp_path.iterdir()) == []
    assert store.path == tmp_path / "home" / FOLDER / NAME
