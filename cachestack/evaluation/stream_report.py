"""What replays of streams came to: per seed, and all seeds together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachestack.evaluation.intervals import wilson
from cachestack.evaluation.stream_replay import Fixed, StreamRun


@dataclass(frozen=True, slots=True)
class SeedResult:
    seed: int
    run: StreamRun
    oracle: Fixed


def summarise(results: Sequence[SeedResult], budget: float) -> dict[str, Any]:
    """`hits` and `wrong_hits` are those by meaning: exact ones are never wrong, and would only flatter the rate; the
    same over all hits stands beside. `held`: the wrong ones of the hits by meaning are within the budget."""
    seeds = [_of(result, budget) for result in results]
    total = {
        name: sum(seed[name] for seed in seeds)
        for name in (
            "requests", "exact_hits", "hits", "wrong_hits", "all_hits", "audits", "audits_wrong",
            "oracle_hits", "oracle_wrong_hits", "oracle_all_hits",
        )
    }  # fmt: skip
    held = sum(seed["held"] for seed in seeds)
    return {
        **_rates(total, budget),
        "held": held == len(seeds),
        "num_seeds": len(seeds),
        "num_held": held,
        "num_audits_within": sum(seed["audits"] <= 0.03 * seed["hits"] for seed in seeds),
        "seeds": seeds,
    }


def _of(result: SeedResult, budget: float) -> dict[str, Any]:
    run, best = result.run, result.oracle
    counts = {
        "requests": run.requests,
        "exact_hits": run.exact_hits,
        "hits": run.hits,
        "wrong_hits": run.wrong_hits,
        "all_hits": run.hits + run.exact_hits,
        "audits": run.audits,
        "audits_wrong": run.audits_wrong,
        "oracle_hits": best.hits,
        "oracle_wrong_hits": best.wrong_hits,
        "oracle_all_hits": best.hits + best.exact_hits,
    }
    classes = {
        name: {"state": r.state, "threshold": r.threshold, "interval": list(r.interval)}
        for name, r in sorted(run.reports.items())
    }
    return {
        "seed": result.seed,
        **_rates(counts, budget),
        "held": run.wrong_hits <= budget * run.hits,
        "oracle_threshold": best.threshold,
        "classes": classes,
        "changes": [list(change) for change in run.changes],
    }


def _rates(counts: dict[str, int], budget: float) -> dict[str, Any]:
    hits, wrong = counts["hits"], counts["wrong_hits"]
    return counts | {
        "budget": budget,
        "wrong_per_hit": wrong / hits if hits else 0.0,
        "interval": list(wilson(wrong, hits)),
        "wrong_per_any_hit": wrong / counts["all_hits"] if counts["all_hits"] else 0.0,
        "audits_per_hit": counts["audits"] / hits if hits else 0.0,
        "share_of_oracle": hits / counts["oracle_hits"] if counts["oracle_hits"] else None,
        "share_of_oracle_all_hits": counts["all_hits"] / counts["oracle_all_hits"]
        if counts["oracle_all_hits"]
        else None,
    }
