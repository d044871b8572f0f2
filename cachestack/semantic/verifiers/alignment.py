"""Which word of one text means which word of the other, by the encoder's own states of them, as numbers.

A word's state says what it means *here*: `cancel` in "cancel my order" and in "order a cancel button" differ. So the
best partner's similarity shows what only one side says, and the similarity of equal words whether they play the same
part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cachestack.semantic.states import word_spans
from cachestack.semantic.words import fold, forms, frequency

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cachestack.semantic.lexicon.base import Lexicon
    from cachestack.semantic.text import Text

_SIDED = (
    "best_mean best_lowest best_second best_third alone_lowest alone_mean alone_weight heavy_lowest equal_lowest "
    "equal_mean contrast"
)
_JOINT = ("order", "weight_both", "words_both", "first_words", "last_words")
NAMES: tuple[str, ...] = (*(f"{name}_{side}" for name in _SIDED.split() for side in ("min", "max")), *_JOINT)
"""`_min` and `_max` are the smaller and the larger of the two sides' values."""

HEAVY = 0.45
"""From this weight a word counts as one that carries meaning: seen less than some 25,000 times in 10^8."""


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """One text's words: `states` `[n, dims]` of length 1, `weights` `[n]` from 0 (grammar) to 1 (rare), `keys`: the
    forms of each, two words with a common one being equal."""

    states: NDArray[np.float32]
    weights: NDArray[np.float32]
    keys: tuple[frozenset[str], ...]


def words_of(text: Text, states: NDArray[np.float32]) -> Words:
    """`states` are those of the raw text's words, in order."""
    spelt = [fold(text.raw[start:end]) for start, end in word_spans(text.raw)]
    found = [_known(word, text.language, text.lexicon) for word in spelt]
    return Words(states, np.array([w for w, _ in found], dtype=np.float32), tuple(keys for _, keys in found))


@lru_cache(maxsize=1 << 15)
def _known(word: str, language: str | None, lexicon: Lexicon) -> tuple[float, frozenset[str]]:
    if any(c.isdigit() for c in word):
        return 1.0, frozenset((word,))
    weight = 1 - min(1.0, math.log1p(frequency(word, language)) / math.log(1e8))
    if word in lexicon.negators:
        weight = max(weight, 0.5)
    return weight, forms(word, lexicon).keys | {word}


def features(cached: Words, asked: Words, equal: NDArray[np.bool_]) -> NDArray[np.float32]:
    """In the order of NAMES; the same whichever side comes first."""
    similar = cached.states @ asked.states.T
    sides = [
        _side(similar, equal, cached.weights, asked.weights),
        _side(similar.T, equal.T, asked.weights, cached.weights),
    ]
    pairs = np.sort(np.array(sides, dtype=np.float32), axis=0)  # [2, values]: the smaller, the larger
    whole = cached.weights.sum(), asked.weights.sum()
    return np.concatenate(
        [
            pairs.T.reshape(-1),
            np.array(
                [
                    (_order(similar, equal, cached.weights) + _order(similar.T, equal.T, asked.weights)) / 2,
                    min(whole) / max(*whole, 1e-6),
                    min(similar.shape) / max(similar.shape),
                    similar[0, 0],
                    similar[-1, -1],
                ],
                dtype=np.float32,
            ),
        ]
    )


def equal_words(cached: Words, asked: Words) -> NDArray[np.bool_]:
    """`[cached words, asked words]`: whether they are the same word in some form."""
    ours, theirs = cached.keys, asked.keys
    places: dict[str, set[int]] = {}
    for j, keys in enumerate(theirs):
        for key in keys:
            places.setdefault(key, set()).add(j)
    found = np.zeros((len(ours), len(theirs)), dtype=np.bool_)
    for i, keys in enumerate(ours):
        for key in keys:
            for j in places.get(key, ()):
                found[i, j] = True
    return found


def _mean(values: NDArray[np.float32], weights: NDArray[np.float32]) -> float:
    """As `np.average`, at a tenth of its time for a few words."""
    some = weights + np.float32(1e-6)
    return float((values * some).sum() / some.sum())


def _side(
    similar: NDArray[np.float32],
    equal: NDArray[np.bool_],
    weights: NDArray[np.float32],
    their_weights: NDArray[np.float32],
) -> list[float]:
    best = similar.max(axis=1)
    has_equal = equal.any(axis=1)
    heavy = weights >= HEAVY
    lowest = np.sort(best * heavy + (1 - heavy) * 1.0)[:3]
    lowest = np.concatenate([lowest, np.ones(3 - len(lowest), np.float32)])
    alone = ~has_equal
    weight_alone = float(weights[alone].sum())
    best_equal = np.where(equal, similar, -1.0).max(axis=1)
    equal_here = best_equal[has_equal & (weights > 0.2)]
    # how much better the best partner is than the next one: a word that two others resemble is not settled
    if similar.shape[1] > 1:
        two = np.partition(similar, -2, axis=1)[:, -2:]
        contrast = _mean(two[:, 1] - two[:, 0], weights)
    else:
        contrast = 1.0
    return [
        _mean(best, weights),
        float(lowest[0]),
        float(lowest[1]),
        float(lowest[2]),
        float(best[alone & (weights > 0.2)].min(initial=1.0)),
        _mean(best[alone], weights[alone]) if alone.any() else 1.0,
        weight_alone,
        float(best[alone & heavy].min(initial=1.0)),
        float(equal_here.min(initial=1.0)),
        float(equal_here.mean()) if len(equal_here) else 1.0,
        contrast,
    ]


def _order(similar: NDArray[np.float32], equal: NDArray[np.bool_], weights: NDArray[np.float32]) -> float:
    """The share of pairs of equal words that matter which stand in the other order: 0 for the same order."""
    rows = np.flatnonzero(equal.any(axis=1) & (weights > 0.2))
    if len(rows) < 2:
        return 0.0
    at = np.where(equal[rows], similar[rows], -2.0).argmax(axis=1)
    turned = np.sign(at[None, :] - at[:, None])[np.triu_indices(len(rows), 1)] < 0
    return float(turned.mean())
