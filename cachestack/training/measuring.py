"""Calibration and metrics of a score on pairs it was not trained on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WRONG_RATES = (0.01, 0.02, 0.05)
LEVEL_RATE = 0.05
"""Near the default `accept_score`."""
REFERENCE = "en"


def calibrate(scores: NDArray[np.float64], same: NDArray[np.bool_], *others: NDArray[np.float64]) -> tuple[float, ...]:
    """Weights of the scores and a shift, so that their sum is the log-odds of `same` (logistic regression, both kinds
    of pairs weighing the same)."""
    from sklearn.linear_model import LogisticRegression

    columns = np.stack([scores, *others], axis=1)
    model = LogisticRegression(C=1e3, class_weight="balanced", max_iter=1000).fit(columns, same)
    return (*(round(float(w), 6) for w in model.coef_[0]), round(float(model.intercept_[0]), 6))


def served_at(scores: NDArray[np.float64], same: NDArray[np.bool_], wrong_rate: float) -> tuple[float, float]:
    """The share of `same` pairs above the threshold at which `wrong_rate` of the others are, and that threshold."""
    wrong = np.sort(scores[~same])[::-1]
    threshold = float(wrong[min(int(wrong_rate * len(wrong)), len(wrong) - 1)])
    return float((scores[same] > threshold).mean()), threshold


def language_shifts(
    log_odds: NDArray[np.float64], same: NDArray[np.bool_], languages: Sequence[str]
) -> dict[str, float]:
    """What to add in each language, so that the threshold that lets LEVEL_RATE of the different pairs of REFERENCE
    through does the same in each: where a verifier is less sure it would else serve less, at fewer mistakes."""

    def threshold(language: str) -> float:
        own = np.array([one == language for one in languages])
        return served_at(log_odds[own], same[own], LEVEL_RATE)[1]

    return {one: round(threshold(REFERENCE) - threshold(one), 4) for one in sorted(set(languages))}


def metrics(log_odds: NDArray[np.float64], same: NDArray[np.bool_], kinds: Sequence[str]) -> dict[str, Any]:
    """Shares served at fixed shares of wrong ones, with the probability at which that is, and by kind at 1% wrong."""
    found: dict[str, Any] = {"n_same": int(same.sum()), "n_other": int((~same).sum())}
    for rate in WRONG_RATES:
        share, threshold = served_at(log_odds, same, rate)
        found[f"served_at_{rate:.0%}"] = {
            "share": round(share, 4),
            "score": round(1 / (1 + float(np.exp(-threshold))), 4),
        }
    threshold = served_at(log_odds, same, 0.01)[1]
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for score, kind in zip(log_odds, kinds, strict=True):
        by_kind[kind].append(bool(score > threshold))
    found["by_kind"] = {kind: [sum(v), len(v)] for kind, v in sorted(by_kind.items())}
    return found
