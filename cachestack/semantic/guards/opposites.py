"""Opposites: `enable` against `disable`, `before` against `after`, `acheter` against `vendre`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text
from cachestack.semantic.words import Token

KIND = "opposites"


def opposites(cached: Text, asked: Text) -> Verdict:
    """Rejects when a word stands alone on one side and its opposite alone on the other."""
    ours, theirs = _alone(cached, asked), _alone(asked, cached)
    table = cached.lexicon.opposites
    for word, others in _with_opposites(ours, table).items():
        for other in theirs:
            if not others.isdisjoint(_forms(other)):
                return rejected(KIND, word, other.text)
    return passed(KIND)


def _alone(text: Text, other: Text) -> list[Token]:
    """Tokens, grammar too, that `text` has more often than `other`."""
    counts: Counter[str] = Counter(key for token in other.tokens for key in token.keys)
    alone = []
    for token in text.tokens:
        if any(counts[key] > 0 for key in token.keys):
            for key in token.keys:
                counts[key] -= 1
        else:
            alone.append(token)
    return alone


def _forms(token: Token) -> frozenset[str]:
    return token.keys


def _with_opposites(alone: list[Token], table: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for token in alone:
        opposed = frozenset().union(*(table.get(key, frozenset()) for key in token.keys))
        if opposed:
            found[token.text] = opposed
    return found
