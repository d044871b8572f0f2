"""The head in numpy: what torch computes from the same weights, whichever side comes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cachestack.semantic.verifiers.alignment import Words
from cachestack.semantic.verifiers.head import EQUAL_BONUS, SHARPNESS, WEIGHTS, Head

DIMS, PROJECTED, COMPARED, HIDDEN = 32, 64, 96, 64
SHAPES = {
    "project": (DIMS, PROJECTED),
    "compare": (4 * DIMS + 3, COMPARED),
    "compare_bias": (COMPARED,),
    "attend": (COMPARED,),
    "hidden": (2 * COMPARED, HIDDEN),
    "hidden_bias": (HIDDEN,),
    "out": (HIDDEN,),
    "out_bias": (1,),
}


def a_head(seed: int) -> Head:
    rng = np.random.default_rng(seed)
    return Head.of(
        {f"head_{name}": (rng.normal(size=shape) * 0.3).astype(np.float32) for name, shape in SHAPES.items()}, "head"
    )


def some_words(num: int, seed: int) -> Words:
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(num, DIMS)).astype(np.float32)
    states /= np.linalg.norm(states, axis=1, keepdims=True)
    return Words(states, rng.random(num).astype(np.float32), tuple(frozenset((str(i),)) for i in range(num)))


def in_torch(head: Head, cached: Words, asked: Words, equal: Any) -> float:
    """Parikh et al. written once more, in float64 and another way: word by word."""
    import torch
    from torch.nn.functional import cosine_similarity, relu

    w = {name: torch.tensor(getattr(head, name), dtype=torch.float64) for name in WEIGHTS}
    both = torch.zeros(2 * COMPARED, dtype=torch.float64)
    for mine, other, same in ((cached, asked, equal), (asked, cached, equal.T)):
        x = torch.tensor(mine.states, dtype=torch.float64)
        y = torch.tensor(other.states, dtype=torch.float64)
        compared = []
        for i in range(len(x)):
            near = cosine_similarity((x[i] @ w["project"])[None], y @ w["project"])
            share = torch.softmax(SHARPNESS * near + EQUAL_BONUS * torch.tensor(same[i], dtype=torch.float64), 0)
            partner = (share[:, None] * y).sum(0)
            more = torch.tensor([float(mine.weights[i]), float(same[i].any()), float((y @ x[i]).max())])
            seen = torch.cat([x[i], partner, (x[i] - partner).abs(), x[i] * partner, more.double()])
            compared.append(relu(seen @ w["compare"] + w["compare_bias"]))
        rows = torch.stack(compared)
        attention = torch.softmax(rows @ w["attend"], 0)
        both += torch.cat([(attention[:, None] * rows).sum(0), rows.max(0).values])
    return float(relu(both @ w["hidden"] + w["hidden_bias"]) @ w["out"] + w["out_bias"][0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("num_cached", "num_asked"), [(1, 1), (1, 7), (6, 9), (40, 3)])
def test_numpy_is_torch_and_both_orders_are_one(num_cached: int, num_asked: int, seed: int) -> None:
    head = a_head(seed)
    cached, asked = some_words(num_cached, seed), some_words(num_asked, seed + 50)
    equal = np.random.default_rng(seed).random((num_cached, num_asked)) < 0.2
    score = head.score(cached, asked, equal)
    assert score == pytest.approx(in_torch(head, cached, asked, equal), rel=1e-5, abs=1e-5)
    assert score == pytest.approx(head.score(asked, cached, equal.T), rel=1e-5, abs=1e-5)


def test_equal_words_change_the_score() -> None:
    head, cached, asked = a_head(1), some_words(5, 1), some_words(6, 2)
    none = np.zeros((5, 6), np.bool_)
    some = none.copy()
    some[2, 3] = True
    assert abs(head.score(cached, asked, none) - head.score(cached, asked, some)) > 1e-3


def test_large_states_do_not_overflow() -> None:
    head, cached, asked = a_head(1), some_words(5, 1), some_words(6, 2)
    large = Words(cached.states * 1e4, cached.weights, cached.keys)
    assert np.isfinite(head.score(large, asked, np.zeros((5, 6), np.bool_)))
