"""A text in one form, for what looks at its words."""

from __future__ import annotations

MAX_READ = 3_000
"""Characters that are read."""
_QUOTES = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\u00b4": "'", "`": "'", "\u00a0": " "})


def fold(text: str) -> str:
    """Lower case, straight quotes, single spaces."""
    return " ".join(text[:MAX_READ].lower().translate(_QUOTES).split())


def words_of(text: str) -> frozenset[str]:
    """For lists of words in the code."""
    return frozenset(text.split())
