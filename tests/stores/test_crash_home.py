"""kill -9 while a whole state folder is written: entries, evictions, index files, statistics, policies, keys. After
each kill everything opens, the doctor is content, and nothing that was published is lost or wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cachestack.access.key_store import KeyStore
from cachestack.policy_set import PolicySet
from cachestack.semantic.index import FaissIndex
from cachestack.stores.disk import DiskStore
from cachestack.stores.opening import open_store, parse_ref
from cachestack.stores.sums import SumsFile
from cachestack.stores.tiered import TieredStore
from cachestack.upkeep.doctor import examine_all
from cachestack.upkeep.findings import Looked, Severity
from tests.redis_server import RedisServer
from tests.stores.test_crash import Run, State, after, run_and_kill, writer

PROGRAM = Path(__file__).with_name("crash_home_writer.py")
NOW_S = 2e9


@dataclass
class Expected:
    """What must be there. Of the step that was under way either is right."""

    entries: State = field(default_factory=dict)
    num_counted: int = 0
    policy: int = 0
    keys: tuple[str, ...] = ()

    def step(self, step: str) -> Expected:
        verb, number = step.split()[0], int(step.split()[1])
        return Expected(
            after(self.entries, step),
            self.num_counted + (verb == "count"),
            number if verb == "policy" else self.policy,
            (*self.keys, f"n{number}") if verb == "key" else self.keys,
        )


def found_in(home: Path, store: DiskStore | TieredStore) -> Expected:
    sums = SumsFile(home / "stats")
    counted = sums.read().get("crash", {})
    assert counted.get("requests", 0) == sum(n for name, n in counted.items() if name != "requests")
    sums.close()
    keys = KeyStore(home)
    names = tuple(record.name for record in keys.records())
    keys.close()
    max_bytes = PolicySet.load(home / "policies.yaml").policy("any").retention.max_bytes
    entries = {entry.entry_id: entry for entry in store.entries(writer.PARTITION)}
    return Expected(entries, int(counted.get("requests", 0)), max_bytes - 20_000, names)


MORE_KILLS = 60
HARMLESS = {(Severity.WARNING, "index"), (Severity.WARNING, "left behind")}


def check(home: Path, ref: str, expected: Expected, run: Run) -> Expected:
    for step in run.acknowledged:
        expected = expected.step(step)
    allowed = [expected] if run.under_way is None else [expected, expected.step(run.under_way)]
    store = open_store(ref, home)
    looked = Looked(home, parse_ref(ref, home), NOW_S, policies=str(home / "policies.yaml"))
    done = examine_all(looked)
    assert done.failures == ()
    counted = [f for f in done.findings if f.severity is not Severity.NOTE]
    assert {(f.severity, f.check) for f in counted} <= HARMLESS, "what is made from entries, or was not finished"
    if counted:
        assert examine_all(looked, repair=True).status == 0
        assert examine_all(looked).status == 0
    found = found_in(home, store)
    assert found in allowed
    for entry in found.entries.values():
        assert store.find_exact(writer.PARTITION, entry.exact) == entry
        assert store.get(writer.PARTITION, entry.entry_id) == entry
    for entry in store.entries(writer.SMALL):
        assert entry == writer.entry_of(int(entry.entry_id.split("-")[1]), writer.SMALL)
    if isinstance(store, DiskStore):
        assert store.size(writer.SMALL.tenant).num_bytes <= writer.SMALL_BYTES
        _check_index(home, store, found.entries)
    assert store.num_corrupt == 0
    store.close()
    return found


def _check_index(home: Path, store: DiskStore, entries: State) -> None:
    """Whatever the snapshots say, what is found is what is there, and all of it."""
    index = FaissIndex(store, snapshot_folder=home / "indexes", snapshot_from=1, graph_from=12, max_tail=5)
    for entry in list(entries.values())[:5]:
        found = index.search(writer.PARTITION, writer.CONTRACT, entry.vector, writer.ENCODER, 3)
        assert found[0].entry == entry
        assert all(entries[candidate.entry.entry_id] == candidate.entry for candidate in found)
    index.close()


def kill_repeatedly(home: Path, ref: str, num_kills: int, seed: int) -> None:
    """Some more where none of them came in the middle of a step: when a process is scheduled is not ours to say."""
    rng, expected, first = random.Random(seed), Expected(), 0
    num_interrupted = 0
    home.mkdir()
    for number in range(num_kills + MORE_KILLS):
        if number >= num_kills and num_interrupted:
            break
        run = run_and_kill(rng, home, first, ref, program=PROGRAM)
        expected = check(home, ref, expected, run)
        first = run.last_number + 1
        num_interrupted += run.under_way is not None
    assert expected.entries
    assert expected.num_counted
    assert num_interrupted > 0, "no kill came in the middle of a step"


def test_twenty_kills(tmp_path):
    kill_repeatedly(tmp_path / "home", "disk:", 20, seed=11)


def test_six_kills_of_a_writer_to_redis(tmp_path, redis_server: RedisServer):
    ref = f"{redis_server.url}?prefix={redis_server.new_prefix()}"
    kill_repeatedly(tmp_path / "home", ref, 6, seed=12)


@pytest.mark.full
def test_two_hundred_kills(tmp_path):
    kill_repeatedly(tmp_path / "home", "disk:", 200, seed=13)


@pytest.mark.full
def test_two_hundred_kills_of_a_writer_to_redis(tmp_path, redis_server: RedisServer):
    ref = f"{redis_server.url}?prefix={redis_server.new_prefix()}"
    kill_repeatedly(tmp_path / "home", ref, 200, seed=14)
