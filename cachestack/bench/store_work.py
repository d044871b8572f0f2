"""The work of one process in `cachestack bench store`: so many reads of one kind, each checked and timed.

`python -m cachestack.bench.store_work NAME FOLDER REDIS_URL NUM_ENTRIES KIND SECONDS SEED` waits for a line on its
input, works for that long, and prints how many calls it made and how many of them found anything else.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cachestack.bench.semantic_material import Population
from cachestack.bench.store_material import population
from cachestack.bench.store_subject import Subject, opened
from cachestack.entries import Entry

NUM_NEAREST = 5


def exact(subject: Subject, entry: Entry) -> bool:
    """Whether the exact look-up finds the very entry."""
    return bool(subject.store.find_exact(entry.partition, entry.exact) == entry)


def semantic(subject: Subject, entry: Entry) -> bool:
    """Whether the entry is the nearest to its own vector, at cosine 1."""
    assert entry.vector is not None
    assert entry.encoder is not None
    found = subject.index.search(entry.partition, entry.contract, entry.vector, entry.encoder, NUM_NEAREST)
    return any(c.entry.entry_id == entry.entry_id and c.similarity > 0.9999 for c in found)


def bare_get(subject: Subject, entry: Entry) -> bool:
    """What a client alone takes to read the same bytes."""
    from cachestack.stores.redis.names import text_digest

    shared = getattr(subject.store, "shared", subject.store)
    key = text_digest(entry.exact)
    return shared.link.client.get(shared.names.slot_of(entry.partition, key).entries + key) is not None


KINDS: dict[str, Callable[[Subject, Entry], bool]] = {"exact": exact, "semantic": semantic, "bare_get": bare_get}


def asked(material: Population, num: int, seed: int, *, common_only: bool) -> list[Entry]:
    draw = random.Random(seed)
    rows = material.common_rows() if common_only else range(material.num_entries)
    return [material.entry(int(rows[draw.randrange(len(rows))])) for _ in range(num)]


def main(name: str, folder: str, redis_url: str, num_entries: str, kind: str, seconds: str, seed: str) -> None:
    material = population(int(num_entries))
    work = KINDS[kind]
    entries = asked(material, 500, int(seed), common_only=kind == "semantic")
    with opened(name, Path(folder), redis_url or None) as subject:
        work(subject, entries[0])
        print("ready", flush=True)
        sys.stdin.readline()
        num_calls = num_wrong = 0
        until_s = time.perf_counter() + float(seconds)
        while time.perf_counter() < until_s:
            num_wrong += not work(subject, entries[num_calls % len(entries)])
            num_calls += 1
        print(num_calls, num_wrong, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
