"""Opposites: `enable` against `disable`, `before` against `after`, `acheter` against `vendre`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import Gap, alone, facing
from cachestack.semantic.text import Text
from cachestack.semantic.words import Token

KIND = "opposites"


def opposites(cached: Text, asked: Text) -> Verdict:
    """Rejects when a word stands alone on one side and its opposite alone on the other. It is certain where one such
    pair faces each other and both sides negate alike; two pairs may say the same again (`buy from`, `sell to`)."""
    if cached.lexicon is not asked.lexicon:
        return passed(KIND)
    pairs = _pairs(alone(cached.tokens, asked), alone(asked.tokens, cached), cached.lexicon.opposites)
    faced = [pair for gap in facing(cached, asked).replaced() for pair in _in(gap, cached, asked)]
    pairs = list(dict.fromkeys([*faced, *pairs]))
    if not pairs:
        return passed(KIND)
    settled = len(faced) == 1 and len(pairs) == 1 and _negators(cached) == _negators(asked)
    return rejected(KIND, *pairs[0], certain=settled)


def _in(gap: Gap, cached: Text, asked: Text) -> Iterable[tuple[str, str]]:
    """Pairs of one gap. Two single words face each other even where they stand elsewhere too: `turn on`, `turn off`."""
    ours: Sequence[Token] = gap.cached
    theirs: Sequence[Token] = gap.asked
    if len(ours) > 1 or len(theirs) > 1:
        ours, theirs = alone(ours, asked), alone(theirs, cached)
    return _pairs(ours, theirs, cached.lexicon.opposites)


def _pairs(
    ours: Sequence[Token], theirs: Sequence[Token], table: Mapping[str, frozenset[str]]
) -> list[tuple[str, str]]:
    found = []
    for token in ours:
        opposed = frozenset().union(*(table[key] for key in token.keys if key in table))
        if opposed:
            found += [(token.text, other.text) for other in theirs if not opposed.isdisjoint(other.keys)]
    return found


def _negators(text: Text) -> int:
    return sum(t.text in text.lexicon.negators for t in text.tokens)
