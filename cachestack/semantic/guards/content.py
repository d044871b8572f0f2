"""Words that carry meaning: each needs its partner on the other side."""

from __future__ import annotations

from cachestack.semantic.align import align
from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role


def content(cached: Text, asked: Text) -> Verdict:
    """Rejects when a content word is on one side only. Never certain: a rewording has other words."""
    alone, other = align(cached, asked).blamed(Role.CONTENT)
    if alone or other:
        return rejected("content", alone, other, certain=False)
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
