"""A small network over two texts' word states: each word is set against what the other text says in its place.

A decomposable attention model (Parikh et al., "A Decomposable Attention Model for Natural Language Inference", 2016)
with rarity and equality of words as further inputs. Both texts are read alike, so that the order does not matter.
Trained with torch, run with numpy: some 50,000 weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cachestack.semantic.verifiers.alignment import Words

SHARPNESS = 8.0
"""What a cosine of two projected words is multiplied with before the softmax."""
EQUAL_BONUS = 2.0
"""Added for two words that are equal."""
WEIGHTS = ("project", "compare", "compare_bias", "attend", "hidden", "hidden_bias", "out", "out_bias")


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """`project` `[dims, 64]`, `compare` `[4 * dims + 3, 96]`, `attend` `[96]`, `hidden` `[192, 64]`, `out` `[64]`."""

    project: NDArray[np.float32]
    compare: NDArray[np.float32]
    compare_bias: NDArray[np.float32]
    attend: NDArray[np.float32]
    hidden: NDArray[np.float32]
    hidden_bias: NDArray[np.float32]
    out: NDArray[np.float32]
    out_bias: NDArray[np.float32]

    @staticmethod
    def of(arrays: Mapping[str, NDArray[np.float32]], prefix: str) -> Head:
        return Head(**{name: np.asarray(arrays[f"{prefix}_{name}"], dtype=np.float32) for name in WEIGHTS})

    def score(self, cached: Words, asked: Words, equal: NDArray[np.bool_]) -> float:
        """Log-odds that one answer serves both. `equal[i, j]`: cached word i is asked word j."""
        ours, theirs = _unit(cached.states @ self.project), _unit(asked.states @ self.project)
        logits = SHARPNESS * (ours @ theirs.T) + EQUAL_BONUS * equal
        raw = cached.states @ asked.states.T
        num_ours = len(ours)
        x = np.concatenate([cached.states, asked.states])  # both texts' words in one pass
        partner = np.concatenate([_softmax(logits) @ asked.states, _softmax(logits.T) @ cached.states])
        seen = np.empty((len(x), 4 * x.shape[1] + 3), dtype=np.float32)
        parts = x, partner, np.abs(x - partner), x * partner
        for number, part in enumerate(parts):
            seen[:, number * x.shape[1] : (number + 1) * x.shape[1]] = part
        seen[:num_ours, -3], seen[num_ours:, -3] = cached.weights, asked.weights
        seen[:num_ours, -2], seen[num_ours:, -2] = equal.any(axis=1), equal.any(axis=0)
        seen[:num_ours, -1], seen[num_ours:, -1] = raw.max(axis=1), raw.max(axis=0)
        compared = np.maximum(seen @ self.compare + self.compare_bias, 0)
        both = self._summed(compared[:num_ours]) + self._summed(compared[num_ours:])
        inner = np.maximum(both @ self.hidden + self.hidden_bias, 0)
        return float(inner @ self.out + self.out_bias[0])

    def _summed(self, compared: NDArray[np.float32]) -> NDArray[np.float32]:
        """`[192]`: what one text's words are against the other's, as an attended mean and the highest values."""
        attention = _softmax((compared @ self.attend)[None])[0]
        found: NDArray[np.float32] = np.concatenate([attention @ compared, compared.max(axis=0)])
        return found


def mean_score(heads: Sequence[Head], cached: Words, asked: Words, equal: NDArray[np.bool_]) -> float:
    return sum(head.score(cached, asked, equal) for head in heads) / len(heads)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    unit: NDArray[np.float32] = rows / np.maximum(norms, 1e-6)
    return unit


def _softmax(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    raised = np.exp(rows - rows.max(axis=1, keepdims=True))
    shares: NDArray[np.float32] = raised / raised.sum(axis=1, keepdims=True)
    return shares
