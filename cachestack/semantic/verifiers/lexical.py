"""A verifier without a model: every word that matters must have its partner, and no guard a doubt beyond words."""

from __future__ import annotations

from dataclasses import dataclass

from cachestack.semantic.align import align
from cachestack.semantic.guards import judge
from cachestack.semantic.verifiers.base import Agreement, Side
from cachestack.semantic.words import Role

UNDECIDED = 0.5


@dataclass(frozen=True, slots=True)
class LexicalVerifier:
    """Every word that matters must have its partner; a partner by initials alone, or no word that matters, leaves it
    undecided, with UNDECIDED as its score. A guard's doubt about anything but words without a partner refuses.

    `min_score` is the share of words with a partner that is needed to agree, each side counted alone.
    """

    min_score: float = 1.0

    @property
    def name(self) -> str:
        return "lexical"

    def verify(self, cached: Side, asked: Side, similarity: float) -> Agreement:
        doubts = [v.kind for v in judge(cached.text, asked.text) if not v.passed and v.kind not in _OF_WORDS]
        if doubts:
            return Agreement(False, 0.0, {"doubts": doubts})
        found = align(cached.text, asked.text)
        ours, theirs = found.blamed(*_COUNTED)
        counted = [sum(t.role in _COUNTED for t in text.matter) for text in (cached.text, asked.text)]
        if not all(counted):
            return Agreement(None, UNDECIDED, {"why": "no word that matters"})
        score = min(1 - len(ours) / counted[0], 1 - len(theirs) / counted[1])
        guessed = sorted({m.how for m in found.matches if m.how == "initials"})
        evidence = {"only_cached": list(ours), "only_asked": list(theirs), "guessed": guessed}
        if score < self.min_score:
            return Agreement(False, score, evidence)
        return Agreement(None, UNDECIDED, evidence) if guessed else Agreement(True, score, evidence)


_COUNTED = (Role.CONTENT, Role.SCOPE, Role.NUMBER, Role.DATE, Role.WEAK)
_OF_WORDS = frozenset({"numbers", "dates", "scope", "content", "weak"})
