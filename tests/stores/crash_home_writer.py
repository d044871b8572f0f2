"""Writes everything that a state folder holds until it is killed, and says before and after each step what it does.

    python crash_home_writer.py HOME SEED FIRST_NUMBER [STORE]

The steps of crash_writer.py, and besides: `count N` (statistics), `policy N` (a new policy file, which is then loaded
again), `key N` (an API key). After each step an index with snapshots is searched, where entries are on disk. Loads no
torch.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from cachestack.access.key_store import KeyStore
from cachestack.policy_watch import PolicyWatch
from cachestack.semantic.index import FaissIndex
from cachestack.stores.disk import DiskStore
from cachestack.stores.opening import open_store
from cachestack.stores.sums import SumsFile
from tests.stores.crash_writer import CONTRACT, ENCODER, PARTITION, next_step, take, vector_of

POLICIES = "policies.yaml"
SMALL_INDEX = {"snapshot_from": 1, "journal_bytes": 500, "graph_from": 12, "max_tail": 5}


def policy_text(number: int) -> str:
    return f"default: {{retention: {{max_bytes: {20_000 + number}}}}}\n"


class Writer:
    def __init__(self, home: Path, store_ref: str) -> None:
        self.store = open_store(store_ref, home)
        self.sums = SumsFile(home / "stats")
        self.keys = KeyStore(home)
        self.policies = home / POLICIES
        self.index = None
        if isinstance(self.store, DiskStore):
            self.index = FaissIndex(self.store, snapshot_folder=home / "indexes", **SMALL_INDEX)
        if not self.policies.exists():
            self.policies.write_text(policy_text(0))
        self.seconds = 0.0
        self.watch = PolicyWatch(self.policies, clock=self.tick)

    def tick(self) -> float:
        self.seconds += 1.0
        return self.seconds

    def do(self, step: str) -> None:
        verb, number = step.split()[0], int(step.split()[1])
        if verb == "count":
            self.sums.add({"crash": {"requests": 1, f"kind{number % 3}": 1}})
        elif verb == "policy":
            fresh = self.policies.with_name(f"{POLICIES}.new")
            fresh.write_text(policy_text(number))
            fresh.replace(self.policies)
            while self.watch.current().policy("any").retention.max_bytes != 20_000 + number:
                pass
        elif verb == "key":
            self.keys.create("crash", name=f"n{number}")
        else:
            take(self.store, step)
        if self.index is not None:
            self.index.search(PARTITION, CONTRACT, vector_of(number), ENCODER, 3)


def main(home: str, seed: str, first: str, store_ref: str = "disk:") -> None:
    rng, number = random.Random(int(seed)), int(first)
    writer = Writer(Path(home), store_ref)
    while True:
        verb = rng.choices(["entries", "count", "policy", "key"], [10, 2, 1, 1])[0]
        step = next_step(rng, number, int(first)) if verb == "entries" else f"{verb} {number}"
        os.write(1, f"try {step}\n".encode())
        writer.do(step)
        os.write(1, b"done\n")
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
