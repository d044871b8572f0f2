"""Ratios of paired times: their median, and an interval that assumes nothing about how times are distributed.

Both times of a pair come from one repetition, so that what slows the machine for a moment slows both. The interval of
the median lies between two of the sorted ratios: the number of ratios below the true median is binomial with p = 1/2
(David and Nagaraja, Order Statistics, 3rd edition, section 7.1). It needs no random numbers, and with few repetitions
it is wide rather than wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

LEVEL = 0.95
INTERVAL = "order statistics of the paired ratios (distribution-free)"


@dataclass(frozen=True, slots=True)
class Ratio:
    """`low` and `high` enclose the true median with at least 95 % confidence from 6 pairs on; see `coverage`."""

    median: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return {"median": round(self.median, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Of times that were taken in pairs, in the same order. Raises ValueError for none, or for unequal numbers."""
    if not numerators or len(numerators) != len(denominators):
        raise ValueError(f"pairs are needed, not {len(numerators)} times and {len(denominators)}")
    ratios = sorted(a / b for a, b in zip(numerators, denominators, strict=True))
    low, high = _interval(len(ratios))
    return Ratio(median(ratios), ratios[low], ratios[high])


def coverage(num_pairs: int) -> float:
    """The confidence of the interval of `num_pairs` ratios: the least reachable one of at least 95 %, or less where
    there are fewer than 6, whose interval is the whole range."""
    low, _ = _interval(num_pairs)
    return 1 - 2 * _at_most(low, num_pairs)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; `share` in (0, 1]. Raises ValueError for no values."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _interval(num_pairs: int) -> tuple[int, int]:
    """Places of both ends in the sorted ratios: as far inside as the level allows."""
    inside = [k for k in range((num_pairs + 1) // 2) if 1 - 2 * _at_most(k, num_pairs) >= LEVEL]
    low = inside[-1] if inside else 0
    return low, num_pairs - 1 - low


def _at_most(k: int, n: int) -> float:
    """The probability of at most `k` heads in `n` throws of a coin."""
    return float(sum(math.comb(n, i) for i in range(k + 1)) / 2**n)
