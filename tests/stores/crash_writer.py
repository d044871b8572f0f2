"""Writes entries until it is killed, and says before and after each step what it does.

    python crash_writer.py FOLDER SEED FIRST_NUMBER [SNAPSHOT_FOLDER]

A line `try STEP` comes before a step and `done` after it. Steps: `put N`, `replace N M` (N answers M's question now),
`drop N`, `squeeze N` (a put for a tenant with a small budget). All content follows from the number. With a folder for
snapshots, an index is searched after each step.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import replace
from pathlib import Path

from cachestack.entries import Entry, Selector
from cachestack.keys import Partition, digest
from cachestack.stores.disk import DiskStore

PARTITION = Partition("crash", user="writer")
SMALL = Partition("small")
SMALL_BYTES = 20_000
DIMENSION = 8
ENCODER = "e" * 64
CONTRACT = digest(b"contract")


def vector_of(number: int) -> bytes:
    import numpy as np

    vector = np.random.default_rng(number).standard_normal(DIMENSION).astype("<f4")
    return (vector / np.linalg.norm(vector)).astype("<f4").tobytes()


def exact_of(number: int) -> str:
    return digest(b"question", str(number).encode())


def entry_of(number: int, partition: Partition = PARTITION, question: int | None = None) -> Entry:
    entry = Entry(
        entry_id=f"entry-{number}",
        partition=partition,
        contract=CONTRACT,
        exact=exact_of(number),
        question=f"question {number}",
        answer=f"answer {number} " * (1 + number * 7919 % 400),
        finish_reason="stop",
        prompt_tokens=number,
        completion_tokens=1,
        model="a-model",
        created_at_s=1.0,
        expires_at_s=1e12,
        stale_until_s=1e12,
        vector=vector_of(number),
        encoder=ENCODER,
    )
    return entry if question is None else replace(entry, exact=exact_of(question))


def take(store: DiskStore, step: str) -> None:
    verb, *numbers = step.split()
    number = int(numbers[0])
    if verb == "put":
        store.put(entry_of(number))
    elif verb == "replace":
        store.put(entry_of(number, question=int(numbers[1])))
    elif verb == "drop":
        store.invalidate(Selector(tenant=PARTITION.tenant, entry_id=f"entry-{number}"))
    else:
        store.put(entry_of(number, SMALL), max_bytes=SMALL_BYTES)
    store.touch(PARTITION, f"entry-{number}", float(number))


def next_step(rng: random.Random, number: int, first: int) -> str:
    verb = rng.choices(["put", "replace", "drop", "squeeze"], [6, 2, 1, 2])[0]
    earlier = rng.randint(first, number)
    return {"drop": f"drop {earlier}", "replace": f"replace {number} {earlier}"}.get(verb, f"{verb} {number}")


def main(folder: str, seed: str, first: str, snapshots: str | None = None) -> None:
    store, rng, number = DiskStore(Path(folder)), random.Random(int(seed)), int(first)
    index = None
    if snapshots is not None:
        from cachestack.semantic.index import FaissIndex

        small = {"snapshot_from": 1, "journal_bytes": 500, "graph_from": 12, "max_tail": 5}
        index = FaissIndex(store, snapshot_folder=Path(snapshots), **small)
    while True:
        step = next_step(rng, number, int(first))
        os.write(1, f"try {step}\n".encode())
        take(store, step)
        if index is not None:
            index.search(PARTITION, CONTRACT, vector_of(number), ENCODER, 3)
        os.write(1, b"done\n")
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
