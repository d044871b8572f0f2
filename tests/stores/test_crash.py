"""kill -9 in the middle of writes: what was acknowledged is there, whole; nothing is there in part."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import cachestack
from cachestack.entries import Entry
from cachestack.stores.disk import DiskStore
from cachestack.stores.tenant_file import TenantFile

PROGRAM = Path(__file__).with_name("crash_writer.py")
ROOT = str(Path(cachestack.__file__).parents[1])
State = dict[str, Entry]


def _load():
    spec = importlib.util.spec_from_file_location("crash_writer", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


writer = _load()


@dataclass(frozen=True)
class Run:
    acknowledged: list[str]
    under_way: str | None
    """The step that was begun and not acknowledged."""

    @property
    def last_number(self) -> int:
        steps = [*self.acknowledged, *([self.under_way] if self.under_way else [])]
        return max(int(number) for step in steps for number in step.split()[1:])


def run_and_kill(rng: random.Random, folder: Path, first: int, *more: object, program: Path = PROGRAM) -> Run:
    """Let a writer work for a random while, then kill it."""
    process = subprocess.Popen(
        [sys.executable, str(program), str(folder), str(rng.random())[2:], str(first), *map(str, more)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": ROOT},
    )
    with process:
        lines = [process.stdout.readline() for _ in range(2 * rng.randint(1, 25))]
        moment = time.perf_counter() + rng.uniform(0, 0.003)
        while time.perf_counter() < moment:
            pass
        process.kill()
        lines += process.stdout.readlines()
    assert process.returncode == -9, "the writer ended by itself"
    said = [line.decode().strip() for line in lines]
    begun = [line.removeprefix("try ") for line in said if line != "done"]
    num_done = said.count("done")
    assert len(begun) - num_done in (0, 1)
    return Run(begun[:num_done], begun[num_done] if len(begun) > num_done else None)


def after(state: State, step: str) -> State:
    """What the writer's partition holds after a step."""
    verb, *numbers = step.split()
    number = int(numbers[0])
    if verb == "put":
        return state | {f"entry-{number}": writer.entry_of(number)}
    if verb == "replace":
        entry = writer.entry_of(number, question=int(numbers[1]))
        return {i: e for i, e in state.items() if e.exact != entry.exact} | {entry.entry_id: entry}
    if verb == "drop":
        return {i: e for i, e in state.items() if i != f"entry-{number}"}
    return state


def check(store: DiskStore, state: State, run: Run) -> State:
    """The state that the store is in after a kill; fails unless it is one that the writer's words allow."""
    for step in run.acknowledged:
        state = after(state, step)
    allowed = [state] if run.under_way is None else [state, after(state, run.under_way)]
    found = {e.entry_id: e for e in store.entries(writer.PARTITION)}
    assert found in allowed
    for entry in found.values():
        assert store.find_exact(writer.PARTITION, entry.exact) == entry
    for entry in store.entries(writer.SMALL):
        assert entry == writer.entry_of(int(entry.entry_id.split("-")[1]), writer.SMALL)
    assert store.size(writer.SMALL.tenant).num_bytes <= writer.SMALL_BYTES
    assert store.problems() == []
    assert store.num_corrupt == 0
    return found


def kill_repeatedly(folder: Path, num_kills: int, seed: int) -> None:
    rng, state, first = random.Random(seed), {}, 0
    num_interrupted = 0
    for _ in range(num_kills):
        run = run_and_kill(rng, folder, first)
        store = DiskStore(folder)
        state = check(store, state, run)
        store.put(writer.entry_of(run.last_number + 1))
        state = after(state, f"put {run.last_number + 1}")
        store.close()
        first = run.last_number + 2
        num_interrupted += run.under_way is not None
    assert state, "the writer wrote nothing"
    assert num_interrupted > 0, "no kill came in the middle of a write"


def test_twenty_kills(tmp_path):
    kill_repeatedly(tmp_path / "entries", 20, seed=1)


@pytest.mark.full
def test_two_hundred_kills(tmp_path):
    kill_repeatedly(tmp_path / "entries", 200, seed=2)


def test_a_reader_that_was_open_all_the_time_follows(tmp_path):
    """The change record brings a process that outlives the killed one to the same state."""
    rng, first, state = random.Random(3), 0, {}
    reader = DiskStore(tmp_path / "entries")
    seen, known = reader.latest(writer.PARTITION), {}
    for _ in range(4):
        run = run_and_kill(rng, tmp_path / "entries", first)
        changes = reader.changes(writer.PARTITION, seen)
        if not changes.complete:
            assert first == 0, "only the very first look cannot be told as changes"
            known = {e.entry_id: e for e in reader.entries(writer.PARTITION)}
        for change in changes.changes:
            entry = reader.get(writer.PARTITION, change.entry_id)
            known.pop(change.entry_id, None)
            if entry is not None:
                known[change.entry_id] = entry
        seen = changes.latest
        state = check(reader, state, run)
        assert known == state
        first = run.last_number + 1
    reader.close()


def test_a_file_that_is_just_being_made_is_left_to_its_maker(tmp_path):
    entry = writer.entry_of(1)
    first = DiskStore(tmp_path / "entries")
    first.put(entry)
    (folder,) = [path for path in (tmp_path / "entries").iterdir() if path.is_dir()]
    first.close()
    shutil.rmtree(folder)
    TenantFile(folder, 2.0).close_all()  # its maker has come as far as this
    store = DiskStore(tmp_path / "entries")
    assert (store.size().num_entries, store.get(writer.PARTITION, entry.entry_id)) == (0, None)
    assert (store.num_corrupt, [path for path in (tmp_path / "entries").iterdir() if path.is_dir()]) == (0, [folder])
    store.put(entry)
    assert store.find_exact(writer.PARTITION, entry.exact) == entry
    assert store.num_corrupt == 0
    store.close()
