"""Names and rare words: Mary is not Mark, even where nobody has heard of either."""

from __future__ import annotations

from cachestack.semantic.align import align
from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token, frequency

KIND = "names"
RARE = 5000
"""A word seen less often than this (of some 10^8) is rare: most names are."""
VERY_RARE = 300
CLOSE = 0.75
"""Share of the shorter text that must stand in the other."""
MAX_TOKENS = 40
"""Of either text: in a long one a single odd word may be a slip or another word for the same."""
STEM = 3
"""Letters in common at the start, from which on one word may be the other cut short or another form of it."""


def names(cached: Text, asked: Text) -> Verdict:
    """Rejects when both sides have a rare word that the other lacks. It is certain where two very rare ones face each
    other in texts that are close, and do not begin alike."""
    found = align(cached, asked)
    ours, theirs = _rare(found.only_cached, cached), _rare(found.only_asked, asked)
    if not ours or not theirs:
        return passed(KIND)
    laid = facing(cached, asked)
    if laid.shared >= CLOSE and max(len(cached.tokens), len(asked.tokens)) <= MAX_TOKENS:
        mine, other = {id(t) for t in found.only_cached}, {id(t) for t in found.only_asked}
        for gap in laid.replaced():
            a = [t for t in gap.cached if id(t) in mine and t.role is Role.CONTENT]
            b = [t for t in gap.asked if id(t) in other and t.role is Role.CONTENT]
            if len(a) == len(b) == 1 and _conflict(a[0], b[0], cached, asked):
                return rejected(KIND, a[0].text, b[0].text)
    return rejected(KIND, [t.text for t in ours], [t.text for t in theirs], certain=False)


def _rare(tokens: tuple[Token, ...], text: Text) -> list[Token]:
    return [t for t in tokens if t.role is Role.CONTENT and frequency(t.text, text.language) < RARE]


def _conflict(a: Token, b: Token, cached: Text, asked: Text) -> bool:
    x, y = a.text, b.text
    if frequency(x, cached.language) >= VERY_RARE or frequency(y, asked.language) >= VERY_RARE:
        return False
    return min(len(x), len(y)) > STEM and x[:STEM] != y[:STEM] and x not in y and y not in x
