"""One sentence negates what the other says."""

from __future__ import annotations

from collections.abc import Iterable

from cachestack.answers.finding import Finding, Pair
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role

ALIKE = 0.75
"""Share of the words, both ways, from which on one `not` more is a contradiction."""
TURNED = 0.6
"""Share of the words of either, from which on a word that one negates and the other says is a contradiction."""
NEAR = 0.4
"""From here on one `not` more is a doubt."""
_SAYING_NOT = (
    "without off except avoid excluded excludes exclude stop forbidden prohibited banned refused free lacks unless "
    "only "
    "nothing sans sauf hors interdit interdite exclu exclue exclut gratuit gratuite évitez éviter refusé refusée "
    "seulement"
)
SAYING_NOT = frozenset(_SAYING_NOT.split())
"""Words that negate without a `not`: beside one of them a `not` more may say the same."""


def negation(pair: Pair) -> Iterable[Finding]:
    ours, theirs = _negators(pair.x), _negators(pair.y)
    if len(ours) % 2 == len(theirs) % 2:
        return
    hidden = SAYING_NOT & (_words(pair.x) ^ _words(pair.y))
    certain = not hidden and (pair.least >= ALIKE or (pair.most >= TURNED and _turned(pair.x, pair.y)))
    if certain or pair.most >= NEAR:
        yield Finding("negation", certain, {"x": ours, "y": theirs})


def _words(text: Text) -> set[str]:
    return {t.text for t in text.tokens}


def _negators(text: Text) -> list[str]:
    return [t.text for t in text.tokens if t.text in text.lexicon.negators]


def _turned(a: Text, b: Text) -> bool:
    """Whether one says what the other negates."""
    return any((_negated(one) - _negated(other)) & _keys(other) for one, other in ((a, b), (b, a)))


def _negated(text: Text) -> frozenset[str]:
    """The forms of the first word that matters after each `not`."""
    found: frozenset[str] = frozenset()
    for i, token in enumerate(text.tokens):
        if token.text in text.lexicon.negators:
            found |= next((t.keys for t in text.tokens[i + 1 :] if t.role in (Role.CONTENT, Role.WEAK)), frozenset())
    return found


def _keys(text: Text) -> frozenset[str]:
    return frozenset(key for t in text.tokens for key in t.keys)
