"""Two languages: an answer in one does not serve a question in the other."""

from __future__ import annotations

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text


def languages(cached: Text, asked: Text) -> Verdict:
    """Rejects when both languages are known and differ."""
    if cached.language and asked.language and cached.language != asked.language:
        return rejected("language", cached.language, asked.language)
    return passed("language")
