"""Tests that stay valid however often one looks, for labels of which only some are seen.

A hit is audited with a probability that was fixed before; its value is 1 ÷ that probability where the audit found it
wrong, and 0 else, so that its expectation is what the hit truly was. Betting on such values with stakes that never
change (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2024) makes a wealth that
exceeds 1 ÷ alpha with probability at most alpha, at any time, where the mean of the hits so far is the one that was bet
against, whatever the hits depend on. Several stakes share the money. `exact_upper` is the exact binomial bound (Clopper
and Pearson, 1934) with which "Learn then Test" (Angelopoulos et al., 2021) tests each threshold of a fixed grid where
all weights are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

Values = Mapping[float, int]
"""How often each value was seen, 0 included."""
ALARM_STAKES = (0.01, 0.05, 0.25, 1.0)
INTERVAL_STAKES = (0.1, 0.4, 0.9)
"""Of the largest stake that can't lose everything."""
_STEPS = 40


def log_wealth_above(values: Values, mean: float) -> float:
    """Won by betting that more than `mean` of the hits are wrong."""
    return _mixed([_sum(values, lambda x, s=stake: s * (x - mean)) for stake in ALARM_STAKES])  # type: ignore[misc]


def log_wealth_below(values: Values, mean: float, largest: float) -> float:
    """Won by betting that less than `mean` are; no value is above `largest`."""
    most = 1 / max(largest - mean, 1.0)
    return _mixed([_sum(values, lambda x, s=share * most: s * (mean - x)) for share in INTERVAL_STAKES])  # type: ignore[misc]


def is_above(values: Values, mean: float, alpha: float) -> bool:
    """Whether it is settled that more than `mean` of the hits are wrong; in error with probability at most `alpha`."""
    return log_wealth_above(values, mean) >= -math.log(alpha)


def interval(values: Values, largest: float, alpha: float) -> tuple[float, float]:
    """Holds at all times at once with probability 1 - `alpha`."""
    limit = -math.log(alpha / 2)
    lower = _edge(lambda m: log_wealth_above(values, m) >= limit)
    upper = 1 - _edge(lambda m: log_wealth_below(values, 1 - m, largest) >= limit)
    return lower, max(lower, upper)


def exact_upper(wrong: int, n: int, alpha: float) -> float:
    """The largest rate at which so few of `n` would be wrong with probability `alpha`; 1 where nothing was counted."""
    if not 0 <= wrong <= n:
        raise ValueError(f"wrong must be between 0 and n, got {wrong} of {n}")
    if wrong == n:
        return 1.0
    low, high = wrong / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_at_most(wrong, n, middle) > alpha else (low, middle)
    return high


def binomial_at_most(k: int, n: int, rate: float) -> float:
    """The probability of at most `k` among `n`, each with `rate`."""
    if rate <= 0 or k >= n:
        return 1.0
    if rate >= 1:
        return 0.0
    log_term = n * math.log1p(-rate)
    terms = [log_term]
    for i in range(1, k + 1):
        log_term += math.log((n - i + 1) / i) + math.log(rate) - math.log1p(-rate)
        terms.append(log_term)
    top = max(terms)
    return min(1.0, math.exp(top) * math.fsum(math.exp(t - top) for t in terms))


def are_too_many(count: int, n: int, rate: float, alpha: float) -> bool:
    """Whether `count` among `n` are more than `rate` explains; for counts that can only be too low."""
    return count > 0 and 1 - binomial_at_most(count - 1, n, rate) < alpha


def _sum(values: Values, gain: Callable[[float], float]) -> float:
    return math.fsum(n * math.log1p(max(gain(x), -1 + 1e-12)) for x, n in values.items())


def _mixed(logs: list[float]) -> float:
    top = max(logs)
    return top + math.log(math.fsum(math.exp(log - top) for log in logs) / len(logs))


def _edge(is_rejected: Callable[[float], bool]) -> float:
    """The largest mean that is rejected, where all smaller ones are too."""
    low, high = 0.0, 1.0
    if not is_rejected(1e-9):
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_rejected(middle) else (low, middle)
    return low
