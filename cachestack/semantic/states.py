"""What is kept of an encoder's token states: one small vector a word, about 1 kB a question.

The states of a word's pieces are averaged, projected on the directions that carry most of the variance over a training
text (PCA), and rounded to int8. A Basis belongs to one encoder's weights; a text's words are found again from the text
itself, so that only the numbers are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cachestack.semantic.base import TokenStates

MAX_WORDS = 256
"""A text of more words keeps no states: it is not verified by them."""
_WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*")  # a letter and its accent may be two characters
_VERSION = b"\x01"


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where each run of letters and digits begins and ends."""
    return [m.span() for m in _WORD.finditer(text)]


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """`mean`: `[hidden]`; `directions`: `[hidden, num_dims]`, orthonormal columns."""

    mean: NDArray[np.float32]
    directions: NDArray[np.float32]

    @property
    def num_dims(self) -> int:
        return int(self.directions.shape[1])

    def pack(self, text: str, tokens: TokenStates) -> bytes:
        """A StatesPacker: one byte of version, then int8 `[words, num_dims]`. Empty for a text without words, with
        too many, or with a word that no piece covers."""
        states = word_states(text, tokens)
        if states is None or tokens.states.shape[1] != len(self.mean):
            return b""
        small = (states - self.mean) @ self.directions
        largest = np.abs(small).max(axis=1, keepdims=True)
        if not np.isfinite(largest).all() or not (largest > 0).all():
            return b""
        rounded: NDArray[np.int8] = np.rint(small / largest * 127.0).astype(np.int8)
        return _VERSION + rounded.tobytes()

    def unpack(self, text: str, packed: bytes) -> NDArray[np.float32] | None:
        """`[words, num_dims]`, each row of length 1; None where `packed` is not of this text and basis."""
        rows = np.frombuffer(packed, dtype=np.int8, offset=1) if packed[:1] == _VERSION else np.empty(0, np.int8)
        num_words = len(rows) // self.num_dims
        if not num_words or len(rows) % self.num_dims or num_words != len(word_spans(text)):
            return None
        states = rows.reshape(num_words, self.num_dims).astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", states, states))[:, None]
        return states / norms if bool((norms > 0).all()) else None


def word_states(text: str, tokens: TokenStates) -> NDArray[np.float32] | None:
    """`[words, hidden]`: the mean of the pieces that lie in each word; None where there is a word without any."""
    spans = word_spans(text)
    if not 0 < len(spans) <= MAX_WORDS or not len(tokens.spans):
        return None
    starts = np.array([start for start, _ in spans])
    ends = np.array([end for _, end in spans])
    at = np.searchsorted(starts, tokens.spans[:, 0], side="right") - 1
    inside = (at >= 0) & (tokens.spans[:, 0] < ends[np.maximum(at, 0)])
    counts = np.bincount(at[inside], minlength=len(spans))
    if not counts.all():
        return None
    sums = np.zeros((len(spans), tokens.states.shape[1]), dtype=np.float32)
    np.add.at(sums, at[inside], tokens.states[inside])
    means: NDArray[np.float32] = np.divide(sums, counts[:, None], dtype=np.float32)
    return means
