"""Names and other words that carry meaning: each needs its partner on the other side."""

from __future__ import annotations

from cachestack.semantic.align import align
from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, counted_in

RARE = 5000
"""A word seen less often than this (of some 10^8) is rare: most names are."""


def content(cached: Text, asked: Text) -> Verdict:
    """Rejects when a name, a rare word or another content word is on one side only. It is certain where a rare word
    stands alone or both sides have something that the other lacks."""
    alone, other = align(cached, asked).blamed(Role.CONTENT)
    if alone or other:
        rare = [w for w in (*alone, *other) if w.isalpha() and counted_in(w, cached.lexicon.language) < RARE]
        verdict = rejected("content", alone, other, certain=bool(rare or (alone and other)))
        return Verdict(False, verdict.certain, verdict.kind, {**verdict.evidence, "rare": rare})
    if not cached.matter and not asked.matter and cached.plain != asked.plain:
        # Only grammar is left: `who are you`, `how are you`.
        return rejected("content", cached.plain, asked.plain, certain=False)
    return passed("content")


def weak(cached: Text, asked: Text) -> Verdict:
    """Rejects when a verb or adjective of little meaning is on one side only: `what is X`, `what is X made of`."""
    alone, other = align(cached, asked).blamed(Role.WEAK)
    if alone or other:
        return rejected("weak", alone, other, certain=False)
    return passed("weak")
