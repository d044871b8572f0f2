"""The second opinion in the middle band: does what both texts say show that one answer serves both?

A verifier may be slow and may fail; whoever calls it treats any failure as "does not agree". The default reads the
words only; a cross-encoder or a model fits the same protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cachestack.semantic.align import align
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role


@dataclass(frozen=True, slots=True)
class Agreement:
    """`agrees` is None where the verifier cannot tell. `score` is from 0 to 1; `evidence` is JSON-able."""

    agrees: bool | None
    score: float
    evidence: Mapping[str, Any] = field(default_factory=dict)


class Verifier(Protocol):
    """Asked only about pairs that all guards have passed."""

    def verify(self, cached: Text, asked: Text, similarity: float) -> Agreement: ...


@dataclass(frozen=True, slots=True)
class LexicalVerifier:
    """Every word that matters must have its partner; a partner by initials alone leaves it undecided.

    `min_score` is the share of words with a partner that is needed to agree, each side counted alone.
    """

    min_score: float = 1.0

    def verify(self, cached: Text, asked: Text, similarity: float) -> Agreement:
        found = align(cached, asked)
        ours, theirs = found.blamed(*_COUNTED)
        counted = [sum(t.role in _COUNTED for t in text.matter) for text in (cached, asked)]
        if not all(counted):
            return Agreement(None, 0.0, {"why": "no word that matters"})
        score = min(1 - len(ours) / counted[0], 1 - len(theirs) / counted[1])
        guessed = sorted({m.how for m in found.matches if m.how == "initials"})
        evidence = {"only_cached": list(ours), "only_asked": list(theirs), "guessed": guessed}
        if score < self.min_score:
            return Agreement(False, score, evidence)
        return Agreement(None if guessed else True, score, evidence)


_COUNTED = (Role.CONTENT, Role.SCOPE, Role.NUMBER, Role.DATE, Role.WEAK)
