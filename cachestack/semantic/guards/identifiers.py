"""Identifiers, versions, addresses, operators, code and quoted text: equal to the letter, or not the same."""

from __future__ import annotations

from collections import Counter

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text

KIND = "identifiers"


def identifiers(cached: Text, asked: Text) -> Verdict:
    """Rejects when an identifier has no equal on the other side."""
    ours, theirs = _identifiers(cached), _identifiers(asked)
    if ours != theirs:
        alone, other = sorted((ours - theirs).elements()), sorted((theirs - ours).elements())
        return rejected(KIND, alone, other, certain=bool(alone and other))
    return passed(KIND)


def quotations(cached: Text, asked: Text) -> Verdict:
    """Rejects when both sides quote and quote different things, or the code differs."""
    if Counter(cached.code) != Counter(asked.code):
        return rejected("quotations", cached.code, asked.code)
    if cached.quoted and asked.quoted and Counter(cached.quoted) != Counter(asked.quoted):
        return rejected("quotations", cached.quoted, asked.quoted)
    return passed("quotations")


def _identifiers(text: Text) -> Counter[str]:
    return Counter(
        t.text
        for t in text.tokens
        if any(not (c.isalpha() or c in "' _") for c in t.text) and t.value is None and t.text not in ("&", "/", "'s")
    )
