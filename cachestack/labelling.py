"""From the log-probabilities of labels to a decision: which score compares them, and when there is none.

Three scores. `sum` is what the model gives a label as a whole, so a long one starts at a disadvantage. `mean` divides
by the number of tokens. `prior` takes off what the label has anyway, before anything is asked: its log-probability
after inputs without content in the text's place (contextual calibration: Zhao et al. 2021, "Calibrate Before Use",
with the prior subtracted from log-probabilities, which is their diagonal matrix).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from cachestack.classified import Label
from cachestack.errors import UsageError

Scores = Literal["sum", "mean", "prior"]

NOT_A_NUMBER = "the model's output is not a number"
_LEAST = math.log(5e-324)  # a prior of 0 would favour its label beyond measure


@dataclass(frozen=True, slots=True)
class Deciding:
    """How a caller wants labels compared. Raises UsageError for what is out of range.

    A label whose share is below `min_probability`, or a result whose labels together have less than `min_mass`, is
    not given: the result abstains. Both are from 0 to 1; 0 refuses nothing.
    """

    scores: Scores = "sum"
    min_probability: float = 0.0
    min_mass: float = 0.0

    def __post_init__(self) -> None:
        if self.scores not in get_args(Scores):
            raise UsageError(f"scores={self.scores!r} is not known; there are: {', '.join(get_args(Scores))}")
        shares: dict[str, object] = {"min_probability": self.min_probability, "min_mass": self.min_mass}
        for name, value in shares.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise UsageError(f"{name} is a share from 0 to 1, not {value!r}")


@dataclass(frozen=True, slots=True)
class Decider:
    """Turns an item's sums (log-probabilities in the labels' order) into a Label.

    `num_scored`: tokens that each sum is made of. `prior`: the labels' sums after inputs without content, for
    `scores="prior"` alone.
    """

    labels: tuple[str, ...]
    num_scored: tuple[int, ...]
    how: Deciding = Deciding()
    prior: tuple[float, ...] = ()

    def scores(self, sums: Sequence[float]) -> tuple[float, ...]:
        """What the labels are compared by, in their order."""
        match self.how.scores:
            case "sum":
                return tuple(sums)
            case "mean":
                return tuple(s / n for s, n in zip(sums, self.num_scored, strict=True))
            case "prior":
                return tuple(s - max(p, _LEAST) for s, p in zip(sums, self.prior, strict=True))

    def best(self, sums: Sequence[float]) -> int | None:
        """The index of the label with the best score, the first of equals; None where they are not numbers."""
        scores = self.scores(sums)
        if not is_number(scores):
            return None
        return max(range(len(scores)), key=scores.__getitem__)

    def label(self, sums: Sequence[float]) -> Label:
        """The decision. The mass is the model's own, whatever compares the labels: the total of their plain sums."""
        best = self.best(sums)
        if best is None:
            return Label(None, error=NOT_A_NUMBER)
        scores = self.scores(sums)
        mass = min(math.fsum(math.exp(s) for s in sums), 1.0)
        probability = 1 / math.fsum(math.exp(s - scores[best]) for s in scores)
        why = self._why_not(probability, mass)
        return Label(
            label=self.labels[best] if why is None else None,
            probability=probability,
            mass=mass,
            scores=dict(zip(self.labels, scores, strict=True)),
            why=why,
        )

    def _why_not(self, probability: float, mass: float) -> str | None:
        how = self.how
        if mass < how.min_mass:
            return f"the labels together have a mass of {mass:.6g}, below {how.min_mass:g}"
        if probability < how.min_probability:
            return f"the best label has a probability of {probability:.6g}, below {how.min_probability:g}"
        return None


def prior_of(inputs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The labels' prior: log-probabilities averaged as probabilities, one after the other over inputs `[labels]`."""
    return tuple(_log_mean(column) for column in zip(*inputs, strict=True))


def is_number(scores: Sequence[float]) -> bool:
    """Whether scores can be compared. A label that the model excludes altogether (-inf) is no failure."""
    return not any(math.isnan(s) or s == math.inf for s in scores) and max(scores) > -math.inf


def _log_mean(values: Sequence[float]) -> float:
    top = max(values)
    if math.isnan(sum(values)) or math.isinf(top):
        return math.nan if math.isnan(sum(values)) else top
    return top + math.log(math.fsum(math.exp(v - top) for v in values) / len(values))
