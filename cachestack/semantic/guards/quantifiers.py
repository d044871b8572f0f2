"""How many are meant: all, some, none, at least, at most, only, both."""

from __future__ import annotations

from collections.abc import Iterable

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.text import Text
from cachestack.semantic.words import Token

KIND = "quantifiers"
_NEAR = "most at_most,least at_least,none only,none except,only except,all both,only one"
NEAR = frozenset(frozenset(pair.split()) for pair in _NEAR.split(","))
"""Pairs that can say the same in other words: `nobody but`, `only`."""


def quantifiers(cached: Text, asked: Text) -> Verdict:
    """Rejects when the two sides do not quantify alike. It is certain where two that exclude each other (`all` and
    `no`, `at least` and `at most`) face each other."""
    ours, theirs = _said(cached.tokens, cached), _said(asked.tokens, asked)
    if ours == theirs:
        return passed(KIND)
    for gap in facing(cached, asked).replaced():
        a, b = _said(gap.cached, cached), _said(gap.asked, asked)
        if len(a) == len(b) == 1 and a.isdisjoint(theirs) and b.isdisjoint(ours) and (a | b) not in NEAR:
            return rejected(KIND, a, b)
    return rejected(KIND, ours - theirs, theirs - ours, certain=False)


def _said(tokens: Iterable[Token], text: Text) -> set[str]:
    table = text.lexicon.quantifiers
    return {table[t.text] for t in tokens if t.text in table}
