"""Members of one set that never stand for one another: weekdays, colours, countries, file formats."""

from __future__ import annotations

from collections.abc import Sequence

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import alone, facing
from cachestack.semantic.lexicon.units import COUNTED
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

KIND = "siblings"


def siblings(cached: Text, asked: Text) -> Verdict:
    """Rejects when one side names a member of a set that the other does not name, and the other another. It is certain
    where the two face each other."""
    pairs = _pairs(_lone(cached.tokens, asked), _lone(asked.tokens, cached), cached)
    if not pairs:
        return passed(KIND)
    for gap in facing(cached, asked).replaced():
        faced = _pairs(_lone(gap.cached, asked), _lone(gap.asked, cached), cached)
        if faced:
            return rejected(KIND, *faced[0])
    return rejected(KIND, *pairs[0], certain=False)


def _lone(tokens: Sequence[Token], other: Text) -> list[Token]:
    return [t for t in alone(tokens, other) if t.role is not Role.FUNCTION]


def _pairs(ours: Sequence[Token], theirs: Sequence[Token], text: Text) -> list[tuple[str, str]]:
    if not ours or not theirs:
        return []
    mine, other = ([(t.text, _places(t, text)) for t in side] for side in (ours, theirs))
    return [(a, b) for a, places in mine for b, others in other if places and others and _exclude(places, others)]


def _places(token: Token, text: Text) -> frozenset[tuple[str, int | str]]:
    """The sets of a word as it is written, or of a form of it where that has none. All units are one set."""
    table = text.lexicon.siblings
    if token.text in table:
        return frozenset(table[token.text])
    if len(token.text) < 2:
        return frozenset()  # the m of metres is many other things without a number
    units = frozenset(("unit", key) for key in token.keys if key.startswith("unit ") and key[5:] not in COUNTED)
    return units.union(*(table[key] for key in token.keys if key in table))


def _exclude(places: frozenset[tuple[str, int | str]], others: frozenset[tuple[str, int | str]]) -> bool:
    """In one set together, and nowhere the same member."""
    return places.isdisjoint(others) and not {n for n, _ in places}.isdisjoint(n for n, _ in others)
