"""Served against wrongly served over all thresholds, from one score a pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from cachestack.evaluation.counting import Share, share_of
from cachestack.evaluation.judging import Outcome
from cachestack.evaluation.scores import scale_of, score_of, similarity_of

WRONG_AT_MOST = (0.01, 0.02, 0.05)
FINE, COARSE = 0.002, 0.01
"""How far apart kept points are, where at most 10% of traps are served and beyond."""


@dataclass(frozen=True, slots=True)
class Point:
    """What a threshold serves: of the pairs that should hit, and of the traps. `threshold` is None where only the very
    same questions are served."""

    threshold: float | None
    served: Share
    wrong: Share

    def as_dict(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold,
            "served": self.served.rate,
            "served_interval": list(self.served.interval),
            "wrong": self.wrong.rate,
            "wrong_interval": list(self.wrong.interval),
        }


@dataclass(frozen=True, slots=True)
class Curve:
    """`points` from the strictest threshold to the most lenient one, at every value that a score takes."""

    scale: str
    points: tuple[Point, ...]

    def at(self, wrong_at_most: float) -> Point | None:
        """The most lenient threshold that serves at most this share of the traps; None where even the strictest serves
        more, or where a kind of pairs is missing."""
        if not (self.points[0].served.n and self.points[0].wrong.n):
            return None
        within = [point for point in self.points if point.wrong.rate <= wrong_at_most]
        return within[-1] if within else None

    @property
    def spaced(self) -> tuple[Point, ...]:
        """Its points, without those that lie close to the one before."""
        kept = [self.points[0]]
        for point in self.points[1:]:
            last, step = kept[-1], FINE if point.wrong.rate <= 0.1 else COARSE
            if max(point.served.rate - last.served.rate, point.wrong.rate - last.wrong.rate) >= step:
                kept.append(point)
        return (*kept, self.points[-1]) if kept[-1] is not self.points[-1] else tuple(kept)

    def as_dict(self) -> dict[str, Any]:
        found = {f"{limit:g}": self.at(limit) for limit in WRONG_AT_MOST}
        return {
            "scale": self.scale,
            "points": [point.as_dict() for point in self.spaced],
            "served_at": {limit: None if point is None else point.as_dict() for limit, point in found.items()},
        }


@dataclass(frozen=True, slots=True)
class Sweep:
    """`policy`: what the policy served, as it is. `score`: over the verifier's score behind the guards (the similarity
    where no verifier grades). `cosine`: over the similarity alone, without guards."""

    policy: Point
    score: Curve
    cosine: Curve

    def as_dict(self) -> dict[str, Any]:
        return {"policy": self.policy.as_dict(), "score": self.score.as_dict(), "cosine": self.cosine.as_dict()}


def sweep(decided: Sequence[Outcome], opened: Sequence[Outcome]) -> Sweep:
    """`decided` under the policy, `opened` the same pairs with open bands. At least one pair."""
    return Sweep(
        policy=Point(None, *_shares(decided)),
        score=curve(opened, score_of, scale_of(tuple(opened))),
        cosine=curve(opened, similarity_of, "similarity"),
    )


def curve(outcomes: Sequence[Outcome], score: Callable[[Outcome], float | None], scale: str) -> Curve:
    """A pair is served where its score is at least the threshold; one without a score never is."""
    should_hit, traps = (sum(o.pair.same_answer is same for o in outcomes) for same in (True, False))
    scored = [(value, o.pair.same_answer) for o in outcomes if (value := score(o)) is not None and value > -math.inf]
    scored.sort(key=lambda pair: -pair[0])
    points = [Point(None, Share(should_hit, 0), Share(traps, 0))]
    served = wrong = 0
    for value, tied in groupby(scored, key=lambda pair: pair[0]):
        same = [same for _, same in tied]
        served, wrong = served + sum(same), wrong + len(same) - sum(same)
        if value == math.inf:
            points.clear()
        points.append(Point(None if value == math.inf else value, Share(should_hit, served), Share(traps, wrong)))
    return Curve(scale, tuple(points))


def _shares(outcomes: Sequence[Outcome]) -> tuple[Share, Share]:
    return share_of(o for o in outcomes if o.pair.same_answer), share_of(o for o in outcomes if not o.pair.same_answer)
