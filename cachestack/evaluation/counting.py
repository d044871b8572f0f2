"""From decisions about pairs to counts: shares with 95% intervals, by category and language, and what decided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cachestack.evaluation.deciding import decided_by
from cachestack.evaluation.intervals import wilson
from cachestack.evaluation.judging import Outcome
from cachestack.evaluation.pairs import Pair
from cachestack.semantic.language import identify

UNKNOWN_LANGUAGE = "unknown"


@dataclass(frozen=True, slots=True)
class Share:
    """`rate` is 0 where there is nothing to count; `interval` is then (0, 1)."""

    n: int
    served: int

    @property
    def rate(self) -> float:
        return self.served / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval of the rate."""
        return wilson(self.served, self.n)

    def as_dict(self) -> dict[str, Any]:
        return {"n": self.n, "served": self.served, "rate": self.rate, "interval": list(self.interval)}


def share_of(outcomes: Iterable[Outcome]) -> Share:
    served = [outcome.served for outcome in outcomes]
    return Share(len(served), sum(served))


def language_of(pair: Pair) -> str:
    """What the file says, else what `identify` says of the question asked now, or of the first one."""
    return pair.language or identify(pair.b[-1].content) or identify(pair.a[-1].content) or UNKNOWN_LANGUAGE


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts of should-hit pairs and traps, by category and language, and what decided, as JSON-able values.

    A category that holds both kinds is counted in two parts, named for them. `decided_by_kind` has the same counts as
    `decided_by`, apart for should-hit pairs and traps, served and missed.
    """
    return {
        **_by_kind(outcomes),
        "by_category": _by_category(outcomes),
        "by_language": {
            language: _by_kind(some)
            for language, some in sorted(_grouped(outcomes, lambda o: language_of(o.pair)).items())
        },
        "decided_by": _counted(outcomes),
        "decided_by_kind": {
            kind: {
                "served": _counted(o for o in outcomes if o.pair.same_answer is same and o.served),
                "missed": _counted(o for o in outcomes if o.pair.same_answer is same and not o.served),
            }
            for kind, same in (("should_hit", True), ("traps", False))
        },
        "ms_per_decision": _times([o.ms for o in outcomes if o.ms > 0]),
    }


def _by_kind(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "should_hit": share_of(o for o in outcomes if o.pair.same_answer).as_dict(),
        "traps": share_of(o for o in outcomes if not o.pair.same_answer).as_dict(),
    }


def _by_category(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    parts = _grouped(outcomes, lambda o: (o.pair.category, o.pair.same_answer))
    categories = {}
    for (category, should_hit), some in sorted(parts.items()):
        mixed = (category, not should_hit) in parts
        name = f"{category} ({'should hit' if should_hit else 'traps'})" if mixed else category
        categories[name] = share_of(some).as_dict() | {"should_hit": should_hit}
    return categories


def _grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], Any]) -> dict[Any, list[Outcome]]:
    groups: dict[Any, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return groups


def _counted(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Most frequent first; of equals, by name."""
    counts = Counter(decided_by(outcome) for outcome in outcomes)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _times(ms: Sequence[float]) -> dict[str, float | None]:
    """`p95` by nearest rank. None where nothing was decided."""
    if not ms:
        return {"median": None, "p95": None}
    ordered = sorted(ms)
    return {"median": round(median(ordered), 4), "p95": round(ordered[math.ceil(0.95 * len(ordered)) - 1], 4)}
