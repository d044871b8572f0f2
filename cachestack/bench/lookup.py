"""What finding a prompt's kept beginning costs in a pool that is full of others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cachestack.bench.ratios import percentile
from cachestack.engines.base import Boundary, KVRun, Prompt
from cachestack.keys import tenant_salt
from cachestack.policy import FallbackPolicy, PrefixPolicy
from cachestack.prefix.base import Label
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BLOCK_SIZE, BlockPool

PROMPT_TOKENS = 1000
NUM_BLOCKS = 10_000
VOCABULARY = 49_152
FINGERPRINT = "bench"
SECRET = b"bench"
TENANT = "bench"


@dataclass(frozen=True, slots=True)
class Latency:
    """Of many calls, in milliseconds."""

    median_ms: float
    p95_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        return cls(1000 * median(seconds), 1000 * percentile(seconds, 0.95))

    def to_json(self) -> dict[str, float]:
        return {"median_ms": round(self.median_ms, 4), "p95_ms": round(self.p95_ms, 4)}


@dataclass(frozen=True, slots=True)
class LookupCost:
    """Look-ups with their leases, hashing included. `full`: all of the prompt but its last token is kept. `half`: its
    first half. `none`: nothing."""

    num_blocks: int
    prompt_tokens: int
    full: Latency
    half: Latency
    none: Latency

    def to_json(self) -> dict[str, Any]:
        return {
            "blocks": self.num_blocks,
            "prompt_tokens": self.prompt_tokens,
            "full": self.full.to_json(),
            "half": self.half.to_json(),
            "none": self.none.to_json(),
        }


def lookup_cost(
    *,
    num_blocks: int = NUM_BLOCKS,
    prompt_tokens: int = PROMPT_TOKENS,
    num_lookups: int = 300,
    timer: Callable[[], float] = time.perf_counter,
) -> LookupCost:
    """Of `num_lookups` prompts of each kind, in turns, each at another place of the pool."""
    draw = random.Random(0)
    layer, kept = _filled(num_blocks, prompt_tokens, draw)
    num_blocks = sum(len(ids) // BLOCK_SIZE for ids in kept)
    seconds: dict[str, list[float]] = {"full": [], "half": [], "none": []}
    for i in range(num_lookups):
        ids = draw.choice(kept)
        half = prompt_tokens // 2
        prompts = {
            "full": ids,
            "half": (*ids[:half], *_tokens(draw, prompt_tokens - half)),
            "none": _tokens(draw, prompt_tokens),
        }
        for kind in sorted(prompts, key=lambda kind: (len(kind) + i) % len(prompts)):
            seconds[kind].append(_timed(layer, prompts[kind], timer))
    return LookupCost(
        num_blocks,
        prompt_tokens,
        Latency.of(seconds["full"]),
        Latency.of(seconds["half"]),
        Latency.of(seconds["none"]),
    )


def _filled(num_blocks: int, prompt_tokens: int, draw: random.Random) -> tuple[PrefixLayer, list[tuple[int, ...]]]:
    """A layer that keeps as many prompts as fill the blocks, with payloads that hold nothing."""
    layer = PrefixLayer(BlockPool(max_bytes=num_blocks * BLOCK_SIZE), SECRET)
    kept = [_tokens(draw, prompt_tokens) for _ in range(num_blocks * BLOCK_SIZE // prompt_tokens)]
    for ids in kept:
        layer.pool.publish(
            ids,
            [KVRun(payload=None, start=0, num_tokens=len(ids), num_bytes=len(ids))],
            fingerprint=FINGERPRINT,
            salt=tenant_salt(SECRET, TENANT),
            label=Label(TENANT),
        )
    return layer, kept


def _timed(layer: PrefixLayer, ids: tuple[int, ...], timer: Callable[[], float]) -> float:
    prompt = Prompt(ids, (Boundary(len(ids) - 1, "mark"),))
    policy, fallback = PrefixPolicy(), FallbackPolicy()
    began = timer()
    plan = layer.lookup(prompt, fingerprint=FINGERPRINT, model="", tenant=TENANT, policy=policy, fallback=fallback)
    plan.release()
    seconds = timer() - began
    del plan
    return seconds


def _tokens(draw: random.Random, number: int) -> tuple[int, ...]:
    return tuple(draw.choices(range(VOCABULARY), k=number))
