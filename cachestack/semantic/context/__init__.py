"""What a question leans on of the turns before it, and whether two questions lean on the same.

Pure functions: no model is called, nothing is read but the texts. English and French; where a history is in another
language, only the very same one serves.
"""

from __future__ import annotations

from cachestack.semantic.context.comparing import Meeting, Turn, compared
from cachestack.semantic.context.facts import facts_of
from cachestack.semantic.context.kept import NOTHING_BEFORE, Context, dumps, loads
from cachestack.semantic.context.leaning import leaning_of
from cachestack.semantic.context.standing import traits
from cachestack.semantic.context.turns import context_of, language_of


def turn_of(question: str, language: str | None, context: Context) -> Turn:
    """A last turn as it is compared."""
    return Turn(leaning_of(question, language), facts_of(question, language).facts, context, traits(question, language))


__all__ = [
    "NOTHING_BEFORE",
    "Context",
    "Meeting",
    "Turn",
    "compared",
    "context_of",
    "dumps",
    "language_of",
    "loads",
    "turn_of",
]
