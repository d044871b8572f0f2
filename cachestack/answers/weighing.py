"""How likely two free texts say the same, from what each says that the other does not: eight weights, fitted.

Logistic regression on the development part of the answer pairs (docs/answers.md). The thresholds are where few pairs
that differ pass for the same: a wrong "same" hides a wrong hit, a wrong "different" costs a label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SAME_FROM = 0.92
DIFFERENT_TO = 0.15
BIAS = 0.044
WEIGHTS = {
    "residual": -3.974,
    "high": 2.144,
    "low": -2.499,
    "copied": -4.096,
    "negated": 0.246,
    "doubted": -1.379,
    "size": 2.079,
    "ratio": 0.564,
}
MAX_SIZE = 3.95
"""Words that matter, beyond which more of them say no more: a long answer may be wrong in one sentence."""


@dataclass(frozen=True, slots=True)
class Signals:
    """`x_covered`: the part of x that y says too, 0 to 1. `x_weight`: how many words that matter x has.

    `residual`: of the sentences that differ, what *both* have alone: extra detail on one side leaves it at 0.
    `copied`: the part of the sentences that both have word for word.
    """

    x_covered: float
    y_covered: float
    x_weight: float
    y_weight: float
    residual: float
    copied: float
    negated: bool
    doubted: bool

    def features(self) -> dict[str, float]:
        low_weight, high_weight = sorted((self.x_weight, self.y_weight))
        return {
            "residual": self.residual,
            "high": max(self.x_covered, self.y_covered),
            "low": min(self.x_covered, self.y_covered),
            "copied": self.copied,
            "negated": float(self.negated),
            "doubted": float(self.doubted),
            "size": math.log1p(min(MAX_SIZE, low_weight)),
            "ratio": math.log((high_weight + 1) / (low_weight + 1)),
        }


def probability(signals: Signals) -> float:
    odds = BIAS + sum(WEIGHTS[name] * value for name, value in signals.features().items())
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def is_contained(signals: Signals) -> bool:
    """Whether one answer says all that the other says, and more: extra detail."""
    return signals.residual <= 0.02 and max(signals.x_covered, signals.y_covered) >= 0.98
