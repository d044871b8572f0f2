"""Trees as arrays: the same scores as the library that grew them."""

from __future__ import annotations

import numpy as np
import pytest

from cachestack.semantic.verifiers.trees import Trees

pytest.importorskip("sklearn", reason="trees are grown with scikit-learn, in training only")


def hand_made() -> Trees:
    """x0 <= 1 ? 10 : (x1 <= 2 ? 20 : 30), and a tree that is one leaf of 0.5."""
    return Trees(
        feature=np.array([0, -1, 1, -1, -1, -1], np.int16),
        threshold=np.array([1, 0, 2, 0, 0, 0], np.float32),
        left=np.array([1, 0, 3, 0, 0, 5], np.int32),
        right=np.array([2, 0, 4, 0, 0, 5], np.int32),
        value=np.array([0, 10, 0, 20, 30, 0.5], np.float32),
        roots=np.array([0, 5], np.int32),
        base=-1.0,
        depth=2,
    )


@pytest.mark.parametrize(
    ("row", "score"),
    [
        ((0, 9), 9.5),
        ((1, 9), 9.5),  # at the threshold: left
        ((1.0000001, 2), 19.5),
        ((2, 2.0000002), 29.5),
        ((np.nan, 9), 9.5),  # not a number: left
        ((2, np.nan), 19.5),
        ((np.inf, np.inf), 29.5),
        ((-np.inf, 0), 9.5),
    ],
)
def test_the_walk(row: tuple[float, float], score: float) -> None:
    assert hand_made().score(np.array(row, np.float32)) == score


@pytest.mark.parametrize("seed", range(3))
def test_the_same_as_the_library(seed: int) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    from cachestack.training.growing import exported

    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(600, 7)).astype(np.float32)
    rows[:, 1] = rng.integers(0, 3, size=600)
    rows[:, 2] = np.round(rows[:, 2], 1)
    rows[:, 3] = 0.1  # says nothing
    same = (rows[:, 0] * rows[:, 1] + rows[:, 2] + rng.normal(size=600) > 0.3).astype(int)
    model = HistGradientBoostingClassifier(max_iter=25, max_leaf_nodes=9, min_samples_leaf=8, random_state=seed)
    model.fit(rows, same)
    trees = exported(model)
    other = rng.normal(size=(200, 7)).astype(np.float32)
    asked = np.concatenate([rows, other])
    found = np.array([trees.score(row) for row in asked])
    np.testing.assert_allclose(found, model.decision_function(asked), atol=1e-5)
    assert np.ptp(found) > 1


def test_values_next_to_a_threshold_fall_on_the_librarys_side() -> None:
    """Its thresholds lie in float64 between two float32 neighbours; rounded up, the upper one would change sides."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    from cachestack.training.growing import exported

    for low in (0.1, 0.3, 1e-3, -0.7, 12345.678):
        one = np.float32(low)
        other = np.nextafter(one, np.float32(np.inf))
        rows = np.array([[one]] * 40 + [[other]] * 40, np.float32)
        model = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5).fit(rows, [0] * 40 + [1] * 40)
        trees = exported(model)
        expected = model.decision_function(np.array([[one], [other]], np.float32))
        found = [trees.score(np.array([x], np.float32)) for x in (one, other)]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert found[0] < found[1]
