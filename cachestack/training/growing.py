"""Grows trees with scikit-learn and writes them as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cachestack.semantic.verifiers.trees import Trees

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUM_TREES = 600
LEARNING_RATE = 0.05
MAX_LEAVES = 31
MIN_LEAF = 40
L2 = 1.0


def grow(rows: NDArray[np.float32], same: NDArray[np.bool_], weights: NDArray[np.float64], seed: int) -> Trees:
    """`rows`: `[pairs, features]`, all finite."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=NUM_TREES,
        learning_rate=LEARNING_RATE,
        max_leaf_nodes=MAX_LEAVES,
        min_samples_leaf=MIN_LEAF,
        l2_regularization=L2,
        early_stopping=False,
        random_state=seed,
    )
    model.fit(rows, same, sample_weight=weights)
    return exported(model)


def exported(model: Any) -> Trees:
    """A fitted HistGradientBoostingClassifier of two classes, without categories and missing values."""
    feature: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    right: list[int] = []
    value: list[float] = []
    roots: list[int] = []
    depth = 0
    for (predictor,) in model._predictors:
        first = len(feature)
        roots.append(first)
        for node in predictor.nodes:
            leaf = bool(node["is_leaf"])
            feature.append(-1 if leaf else int(node["feature_idx"]))
            threshold.append(0.0 if leaf else float(node["num_threshold"]))
            left.append(first if leaf else first + int(node["left"]))
            right.append(first if leaf else first + int(node["right"]))
            value.append(float(node["value"]) if leaf else 0.0)
            depth = max(depth, int(node["depth"]))
    return Trees(
        feature=np.array(feature, dtype=np.int16),
        threshold=_down(np.array(threshold)),
        left=np.array(left, dtype=np.int32),
        right=np.array(right, dtype=np.int32),
        value=np.array(value, dtype=np.float32),
        roots=np.array(roots, dtype=np.int32),
        base=float(np.ravel(model._baseline_prediction)[0]),
        depth=depth,
    )


def _down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 not above each: a float32 feature lies on the same side of both."""
    rounded = thresholds.astype(np.float32)
    above = rounded.astype(np.float64) > thresholds
    rounded[above] = np.nextafter(rounded[above], np.float32(-np.inf))
    return rounded
