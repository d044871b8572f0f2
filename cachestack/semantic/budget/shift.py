"""How this traffic differs from the corpus's: one factor on the odds of being wrong.

Streams with few near misses have fewer wrong pairs at every score, by about the same factor (measured: 0.3 to 0.4 in
each band between a mix with 46% near misses and one with 5%). So the labels of all bands, the many low ones included,
tell how wrong the few high ones are. That is a model, not a proof: the tests of `bounds.py` on audited hits watch it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cachestack.semantic.budget.curve import GRID, NOTHING, PER_HIT, SHARES, WRONG_ODDS

Floats = NDArray[np.float64]
_FACTORS: Floats = np.exp(np.linspace(np.log(0.01), np.log(8.0), 97))
_ODDS: Floats = np.asarray(WRONG_ODDS)
_WRONG: Floats = _FACTORS[:, None] * _ODDS / (1 + _FACTORS[:, None] * _ODDS)
_LOG_WRONG, _LOG_RIGHT = np.log(_WRONG), np.log1p(-_WRONG)
_BEFORE: Floats = -(np.log(_FACTORS) ** 2) / (2 * 0.35**2)
"""What is believed without labels: as the corpus, give or take a factor of 1.4."""
OWN = 40.0
"""After so many labels in a band its own rate weighs as much as the curve's."""
CAUTION = 0.8
"""The quantile of the factor that is believed."""


@dataclass(frozen=True, slots=True)
class Shift:
    """`factor`: on the corpus's odds. `per_hit`: by level, the rate of wrong ones that is expected of hits."""

    factor: float
    per_hit: tuple[float, ...]

    def strictest_run(self, budget: float) -> int:
        """The loosest level that can be reached from the strictest without a level that is over the budget."""
        level = NOTHING
        while level > 0 and self.per_hit[level - 1] <= budget:
            level -= 1
        return level


@lru_cache(maxsize=4096)
def shift_of(num: tuple[float, ...], wrong: tuple[float, ...]) -> Shift:
    """From labels by band: how many, and how many of them wrong."""
    n, w = np.asarray(num), np.asarray(wrong)
    believed = _BEFORE + _LOG_WRONG @ w + _LOG_RIGHT @ (n - w)
    weights = np.exp(believed - believed.max())
    cumulated = np.cumsum(weights / weights.sum())
    chosen = min(int(np.searchsorted(cumulated, CAUTION)), len(_FACTORS) - 1)
    rates = np.maximum((OWN * _WRONG[chosen] + w) / (OWN + n), 0.0)
    mass = 200 * np.asarray(SHARES) + n
    above, bad = (np.cumsum(values[::-1])[::-1] for values in (mass, mass * rates))
    return Shift(float(_FACTORS[chosen]), tuple(float(rate) for rate in PER_HIT * bad / above))


def prior() -> Shift:
    """Without any label: the strict beginning."""
    return shift_of((0.0,) * len(GRID), (0.0,) * len(GRID))


def log_gain(band: int, wrong: bool, before: float, after: float) -> float:
    """The log likelihood ratio of one label, had the odds' factor changed from `before` to `after`."""
    one, other = (_rate(band, factor) for factor in (after, before))
    return float(np.log(one / other) if wrong else np.log((1 - one) / (1 - other)))


def _rate(band: int, factor: float) -> float:
    odds = WRONG_ODDS[band] * factor
    return odds / (1 + odds)
