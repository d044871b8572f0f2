"""Many threads on one pool, started behind a barrier."""

from __future__ import annotations

import random
import threading
from itertools import pairwise
from typing import Any

from cachestack.engines.base import KVRun
from cachestack.prefix.base import Label
from cachestack.prefix.pool import BlockPool

NUM_THREADS = 8
NUM_ROUNDS = 150


def test_threads_leave_the_pool_whole() -> None:
    """Each publishes, matches, invalidates and releases; what it leased never changes under it."""
    pool = BlockPool(max_bytes=400, block_size=4)
    start = threading.Barrier(NUM_THREADS)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        start.wait()
        try:
            for _ in range(NUM_ROUNDS):
                one_request(pool, rng)
                if rng.random() < 0.04:
                    pool.invalidate(rng.choice("ab"), user=rng.choice(("ann", "ben", None)))
                if rng.random() < 0.05:
                    pool.check_integrity()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    pool.check_integrity()
    assert pool.sizes().num_leased == 0


def one_request(pool: BlockPool, rng: random.Random) -> None:
    tenant = rng.choice("ab")
    ids = tuple(rng.choice((0, 1)) for _ in range(rng.randint(2, 40)))
    space: dict[str, Any] = {"fingerprint": "m", "salt": tenant.encode()}
    user = rng.choice(("ann", "ben", None))
    lease = pool.match(ids, max_tokens=len(ids) - 1, user=user, **space)
    matched = 0 if lease is None else lease.num_tokens
    split = rng.randint(matched, len(ids))
    edges = sorted({matched, split, len(ids)})
    runs = [KVRun(ids[:b], a, b - a, b - a) for a, b in pairwise(edges)]
    eviction: Any = rng.choice(("value", "lru"))
    pool.publish(ids, runs, label=Label(tenant), user=user, eviction=eviction, **space)
    if lease is not None:
        with lease:
            if rng.random() < 0.2:
                pool.pin(lease, for_s=rng.choice((1e-4, 10)), max_label_bytes=60)
            if rng.random() < 0.2:
                pool.unpin(lease)
            at = 0
            for run in lease.runs:
                at += run.num_tokens
                assert run.payload[:at] == ids[:at]


def test_a_prefix_computed_by_many_at_once_is_kept_once() -> None:
    pool = BlockPool(max_bytes=10**6, block_size=4)
    start = threading.Barrier(NUM_THREADS)
    ids = tuple(range(30))

    def work() -> None:
        assert pool.match(ids, max_tokens=29, fingerprint="m", salt=b"s") is None
        start.wait()  # all have missed
        runs = [KVRun("prefix", 0, 21, 21), KVRun("rest", 21, 9, 9)]
        pool.publish(ids, runs, fingerprint="m", salt=b"s")

    threads = [threading.Thread(target=work) for _ in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.check_integrity()
    assert pool.sizes().num_segments == 2
    assert pool.num_bytes == 30
