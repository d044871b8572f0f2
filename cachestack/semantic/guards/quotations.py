"""Code and quoted text: equal to the letter, or not the same. In code letter case counts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.text import Text
from cachestack.semantic.words import fold, unaccented

KIND = "quotations"
MAX_SHARED = 0.5
"""Two quotations with more words in common may be one, quoted from memory."""
_WORD = re.compile(r"\w+")


def quotations(cached: Text, asked: Text) -> Verdict:
    """Rejects when code or a quotation has no equal on the other side. It is certain where both have one that the
    other lacks."""
    if not (cached.code or asked.code or cached.quoted or asked.quoted):
        return passed(KIND)
    alone, other = _alone(cached.code, asked.code, asked), _alone(asked.code, cached.code, cached)
    if alone or other:
        return rejected(KIND, alone, other, certain=bool(alone and other) and _close(cached, asked))
    alone, other = _alone(cached.quoted, asked.quoted, asked), _alone(asked.quoted, cached.quoted, cached)
    if alone or other:
        far = all(_shared(a, b) <= MAX_SHARED for a in alone for b in other)
        return rejected(KIND, alone, other, certain=bool(alone and other) and far and _close(cached, asked))
    return passed(KIND)


def _alone(parts: Sequence[str], others: Sequence[str], other: Text) -> list[str]:
    """Those without an equal: neither marked nor, where the other text marks nothing, in its words."""
    return [part for part in parts if part not in others and (others or fold(part) not in other.folded)]


def _close(cached: Text, asked: Text) -> bool:
    return facing(cached, asked).shared > 0


def _shared(one: str, other: str) -> float:
    """Of two quotations, the part of their words that both have."""
    ours, theirs = (set(_WORD.findall(unaccented(text))) for text in (one, other))
    return len(ours & theirs) / max(1, len(ours | theirs))
