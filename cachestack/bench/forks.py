"""What a hit costs before its pass begins, and what the pass copies of the kept prefix."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cachestack.bench.columns import Ways
from cachestack.bench.copies import copied_bytes
from cachestack.bench.lookup import Latency
from cachestack.engines.transformers.attention import can_share
from cachestack.engines.transformers.kv import fork

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine


@dataclass(frozen=True, slots=True)
class ForkCost:
    """`time`: look-up with its lease, fork and release, for a fingerprint that is known. Bytes of the kept prefix that
    are copied: by the fork, by the pass of one suffix, and by the pass of a pack. `prefix_bytes`: all of the prefix."""

    prefix_tokens: int
    prefix_bytes: int
    time: Latency
    fork_bytes: int
    single_bytes: int
    packed_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "prefix_tokens": self.prefix_tokens,
            "prefix_bytes": self.prefix_bytes,
            **self.time.to_json(),
            "copied_bytes": {"fork": self.fork_bytes, "single": self.single_bytes, "packed": self.packed_bytes},
        }


def fork_cost(
    engine: TransformersEngine,
    ways: Ways,
    *,
    num_forks: int = 200,
    timer: Callable[[], float] = time.perf_counter,
) -> ForkCost:
    model, fingerprint = engine.loaded.model, engine.fingerprint
    new_fork = partial(fork, config=model.config, shares=can_share(model))
    seconds: list[float] = []
    for i in range(num_forks):
        began = timer()
        with ways.hit(i, fingerprint) as plan:
            new_fork(plan.past)
        seconds.append(timer() - began)
    score, prompts = ways.prompts.scorer.score, ways.prompts
    with ways.hit(0) as plan:
        runs = plan.past
        by_fork, _ = copied_bytes(runs, lambda: new_fork(runs))
        by_single, _ = copied_bytes(runs, lambda: score(runs, prompts.pack(0, 1)))
        by_packed, _ = copied_bytes(runs, lambda: score(runs, prompts.pack(0, ways.pack_items)))
        return ForkCost(
            prefix_tokens=len(prompts.prefix),
            prefix_bytes=sum(run.num_bytes for run in runs),
            time=Latency.of(seconds),
            fork_bytes=by_fork,
            single_bytes=by_single,
            packed_bytes=by_packed,
        )
