"""What replays of streams came to: per seed, and all seeds together; of all hits, and of those by meaning alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachestack.evaluation.intervals import wilson
from cachestack.evaluation.stream_replay import Fixed, StreamRun, best_by_meaning, best_of_all

MAX_AUDITS_PER_HIT = 0.03
_COUNTS = (
    "requests", "hits", "wrong_hits", "exact_hits", "exact_only_hits", "audits", "audits_wrong", "oracle_hits",
    "oracle_wrong_hits",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeedResult:
    """`tried`: what fixed thresholds would have done, the one that serves nothing by meaning first."""

    seed: int
    run: StreamRun
    tried: Sequence[Fixed]


def summarise(results: Sequence[SeedResult], budget: float) -> dict[str, Any]:
    """The top level is about all served hits, `by_meaning` about those by meaning alone, which is stricter: exact hits
    are hardly ever wrong. `held`: the wrong ones among the hits are within the budget, in every seed. The oracle is the
    best fixed threshold in hindsight that holds the budget in the same sense."""
    seeds = [_of(result, budget) for result in results]
    by_meaning = [seed["by_meaning"] for seed in seeds]
    return {
        **_together(seeds, budget),
        "num_seeds": len(seeds),
        "by_meaning": _together(by_meaning, budget),
        "seeds": seeds,
    }


def _together(seeds: Sequence[dict[str, Any]], budget: float) -> dict[str, Any]:
    total = {name: sum(seed[name] for seed in seeds) for name in _COUNTS if name in seeds[0]}
    num_held = sum(seed["held"] for seed in seeds)
    return {
        **_rates(total, budget),
        "held": num_held == len(seeds),
        "num_held": num_held,
        "num_audits_within": sum(seed["audits"] <= MAX_AUDITS_PER_HIT * seed["hits"] for seed in seeds),
    }


def _of(result: SeedResult, budget: float) -> dict[str, Any]:
    run = result.run
    of_all, by_meaning = best_of_all(result.tried, budget), best_by_meaning(result.tried, budget)
    common = {"requests": run.requests, "audits": run.audits, "audits_wrong": run.audits_wrong}
    counts = common | {
        "hits": run.hits,
        "wrong_hits": run.wrong_hits,
        "exact_hits": run.exact_hits,
        "exact_only_hits": result.tried[0].hits,
        "oracle_hits": of_all.hits,
        "oracle_wrong_hits": of_all.wrong_hits,
    }
    strict = common | {
        "hits": run.meaning_hits,
        "wrong_hits": run.wrong_meaning_hits,
        "oracle_hits": by_meaning.meaning_hits,
        "oracle_wrong_hits": by_meaning.wrong_meaning_hits,
    }
    classes = {
        name: {"state": r.state, "threshold": r.threshold, "interval": list(r.interval)}
        for name, r in sorted(run.reports.items())
    }
    return {
        "seed": result.seed,
        **_judged(counts, budget),
        "oracle_threshold": of_all.threshold,
        "by_meaning": _judged(strict, budget) | {"oracle_threshold": by_meaning.threshold},
        "classes": classes,
        "changes": [list(change) for change in run.changes],
    }


def _judged(counts: dict[str, int], budget: float) -> dict[str, Any]:
    return _rates(counts, budget) | {"held": counts["wrong_hits"] <= budget * counts["hits"]}


def _rates(counts: dict[str, int], budget: float) -> dict[str, Any]:
    hits, wrong, best = counts["hits"], counts["wrong_hits"], counts["oracle_hits"]
    return counts | {
        "budget": budget,
        "wrong_per_hit": wrong / hits if hits else 0.0,
        "interval": list(wilson(wrong, hits)),
        "audits_per_hit": counts["audits"] / hits if hits else 0.0,
        "share_of_oracle": hits / best if best else None,
    }
