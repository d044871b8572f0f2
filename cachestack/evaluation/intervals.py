"""Intervals for shares of counted events."""

from __future__ import annotations

import math

Z_95 = 1.959963984540054
"""The normal deviate that leaves 2.5% outside on each side."""


def wilson(served: int, n: int) -> tuple[float, float]:
    """The 95% interval of a share of `served` in `n`, as fractions; (0, 1) where nothing was counted.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference" (1927), without correction for
    continuity. Raises ValueError unless 0 <= served <= n.
    """
    if not 0 <= served <= n:
        raise ValueError(f"served must be between 0 and n, got {served} of {n}")
    if n == 0:
        return 0.0, 1.0
    share = served / n
    scale = 1 + Z_95**2 / n
    middle = (share + Z_95**2 / (2 * n)) / scale
    half = Z_95 / scale * math.sqrt(share * (1 - share) / n + Z_95**2 / (4 * n**2))
    # At 0 and n rounding would leave the bound a hair beside it.
    return (0.0 if served == 0 else middle - half), (1.0 if served == n else middle + half)
