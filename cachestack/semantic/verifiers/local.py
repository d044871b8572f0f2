"""The verifier that ships with the package: trees over what the guards found and over the words' states."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from cachestack.semantic.guards import FEATURE_NAMES, features
from cachestack.semantic.verifiers import alignment, artefact
from cachestack.semantic.verifiers.alignment import Words, words_of
from cachestack.semantic.verifiers.artefact import log_odds
from cachestack.semantic.verifiers.base import Agreement, Side, probability
from cachestack.semantic.verifiers.head import mean_score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cachestack.semantic.text import Text
    from cachestack.semantic.verifiers.artefact import Artefact


class LocalVerifier:
    """Scores a pair in a few milliseconds, without a model library. `made` defaults to what comes with the package.

    Where both sides have word states they are used; else the words alone, with trees of their own. It never agrees by
    itself: its score is compared with the policy's `accept_score` and `doubt_score`.
    """

    def __init__(self, made: Artefact | None = None) -> None:
        self._made = made

    @property
    def name(self) -> str:
        return "local"

    @property
    def made(self) -> Artefact:
        if self._made is None:
            self._made = artefact.shipped()
        return self._made

    def verify(self, cached: Side, asked: Side, similarity: float) -> Agreement:
        score, with_states = self.score(cached, asked, similarity)
        return Agreement(None, score, {"read": "states" if with_states else "words"})

    def score(self, cached: Side, asked: Side, similarity: float) -> tuple[float, bool]:
        """From 0 to 1, and whether word states were used."""
        made = self.made
        language = cached.text.language if cached.text.language == asked.text.language else None
        row = guard_row(cached.text, asked.text)
        ours, theirs = _words(made, cached), _words(made, asked)
        if ours is None or theirs is None:
            return probability(log_odds(made, "words_only", made.words_only.score(row), language)), False
        equal = alignment.equal_words(ours, theirs)
        aligned = alignment.features(ours, theirs, equal)
        head = mean_score(made.heads, ours, theirs, equal)
        whole = np.concatenate([row, aligned, np.array([similarity, head], dtype=np.float32)])
        return probability(log_odds(made, "with_states", made.with_states.score(whole), language)), True


def guard_row(cached: Text, asked: Text) -> NDArray[np.float32]:
    """The guards' features in their order."""
    found = features(cached, asked)
    return np.array([found[name] for name in FEATURE_NAMES], dtype=np.float32)


def _words(made: Artefact, side: Side) -> Words | None:
    return _unpacked(made, side.text, side.states) if side.states else None


@lru_cache(maxsize=256)
def _unpacked(made: Artefact, text: Text, states: bytes) -> Words | None:
    rows = made.basis.unpack(text.raw, states)
    return None if rows is None else words_of(text, rows)
