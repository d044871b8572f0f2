"""Deterministic workloads for comparing evictions, and a replay that counts the seconds that the pool saves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from cachestack.engines.base import KVRun
from cachestack.prefix.base import Eviction
from cachestack.prefix.pool import BlockPool

TOKEN_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt whose first `boundary` tokens are shared with others; all of it is kept."""

    ids: tuple[int, ...]
    boundary: int


def cost(start: int, stop: int) -> float:
    """Seconds that KV of `[start, stop)` saves: 4 ms a token, and attention that doubles it after 4,000."""
    return 4e-3 * (stop - start) + 1e-6 * (stop * stop - start * start) / 2


def zipf(seed: int, *, num_prefixes: int, num_turns: int, one_off_share: float, skew: float = 1.0) -> Iterator[Turn]:
    """Prefixes of several lengths, asked for by Zipf's law, each time with a fresh question; and one-off prompts."""
    rng = random.Random(seed)
    lengths = [rng.choice((40, 100, 250, 600, 1200)) for _ in range(num_prefixes)]
    weights = [1 / (1 + rank) ** skew for rank in range(num_prefixes)]
    for turn in range(num_turns):
        if rng.random() < one_off_share:
            length = rng.choice((60, 200, 500))
            yield Turn((10**6 + turn, *range(length)), length)
            continue
        which = rng.choices(range(num_prefixes), weights)[0]
        question = (2 * 10**6 + turn, *range(rng.randint(10, 40)))
        yield Turn((which, *range(1, lengths[which]), *question), lengths[which])


def shifting(seed: int, *, num_turns: int) -> Iterator[Turn]:
    """The popular prefixes change every 300 turns: what was used most is of no use any more."""
    for phase in range(num_turns // 300):
        for turn in zipf(seed + phase, num_prefixes=12, num_turns=300, one_off_share=0.3):
            yield Turn(tuple(1000 * (phase + 1) + t if t < 10**6 else t for t in turn.ids), turn.boundary)


def conversations(seed: int, *, num_turns: int, num_open: int = 30) -> Iterator[Turn]:
    """Conversations that grow under one system prompt; each open one is as likely to go on, and ends at random."""
    rng = random.Random(seed)
    talks: list[list[int]] = []
    for turn in range(num_turns):
        if len(talks) < num_open:
            talks.append([*range(200)])
        at = rng.randrange(len(talks))
        talk = talks[at]
        history = len(talk)
        talk += [10**6 + turn, *range(rng.randint(20, 80))]
        yield Turn(tuple(talk), history)
        if rng.random() < 0.15:
            talks.pop(at)


def scan(seed: int, *, num_turns: int) -> Iterator[Turn]:
    """More prefixes than fit, asked for in turn: the case that defeats plain LRU."""
    for turn in range(num_turns):
        which = turn % 24
        yield Turn((which, *range(1, 300 + 20 * which), 10**6 + turn), 300 + 20 * which)


def replay(turns: Iterator[Turn], eviction: Eviction, max_tokens: int) -> tuple[float, float]:
    """Seconds saved, and seconds that all prompts would have taken."""
    pool = BlockPool(max_tokens * TOKEN_BYTES)
    saved = total = 0.0
    for turn in turns:
        total += cost(0, len(turn.ids))
        limit = min(turn.boundary, len(turn.ids) - 1)
        lease = pool.match(turn.ids, max_tokens=limit, fingerprint="m", salt=b"")
        at = 0 if lease is None else lease.num_tokens
        saved += cost(0, at)
        edges = sorted({at, max(at, limit), len(turn.ids)})
        runs = [KVRun("kv", a, b - a, TOKEN_BYTES * (b - a)) for a, b in pairwise(edges)]
        pool.publish(turn.ids, runs, fingerprint="m", salt=b"", cost=cost, eviction=eviction)
        if lease is not None:
            lease.release()
    pool.check_integrity()
    return saved, total
