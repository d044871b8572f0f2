"""Histograms with fixed buckets, so that those of two processes add up exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_GROWTH = 1.1
_LOG_GROWTH = math.log(_GROWTH)
_SMALLEST = 1e-7


def bucket(value: float) -> int:
    """The number of the bucket of a value ≥ 0; each bucket is a tenth wider than the one below it."""
    return 0 if value <= _SMALLEST else 1 + math.floor(math.log(value / _SMALLEST) / _LOG_GROWTH)


def middle(number: int) -> float:
    """A value that stands for a bucket; at most 5% from any value in it."""
    return 0.0 if number == 0 else _SMALLEST * _GROWTH ** (number - 0.5)


def quantile(counts: Mapping[int, float], share: float) -> float | None:
    """The value below which `share` (0 to 1) of all values lie, within 5%; None if there are none."""
    total = sum(counts.values())
    if total <= 0:
        return None
    seen = 0.0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= share * total:
            return middle(number)
    return middle(max(counts))


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values lie in each bucket, and the sum of all values."""

    counts: Mapping[int, float] = field(default_factory=dict)
    total: float = 0.0

    @property
    def num_values(self) -> int:
        return int(sum(self.counts.values()))

    def at_most(self, limit: float) -> int:
        """How many values are `limit` or less for certain: a bucket that reaches beyond it is not counted."""
        return int(sum(n for number, n in self.counts.items() if _SMALLEST * _GROWTH**number <= limit * (1 + 1e-9)))
