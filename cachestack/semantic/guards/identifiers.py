"""Identifiers, versions, addresses, operators: equal to the letter, or not the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.text import Text

KIND = "identifiers"
_SEPARATORS = re.compile(r"[\s\-_.]+")


def identifiers(cached: Text, asked: Text) -> Verdict:
    """Rejects when an identifier has no equal on the other side. It is certain where two that are built alike
    (KB-2291, KB-2292) differ, or two face each other."""
    ours, theirs = _identifiers(cached), _identifiers(asked)
    if ours == theirs:
        return passed(KIND)
    alone, other = _alone(ours - theirs, asked), _alone(theirs - ours, cached)
    if not alone and not other:
        return passed(KIND)
    return rejected(KIND, alone, other, certain=_conflict(alone, other, cached, asked))


@lru_cache(maxsize=256)
def _identifiers(text: Text) -> Counter[str]:
    return Counter(
        t.text
        for t in text.tokens
        if t.value is None and t.text not in ("&", "/", "'s") and any(not (c.isalpha() or c in "' _") for c in t.text)
    )


def _alone(names: Counter[str], other: Text) -> list[str]:
    """Those that the other text does not have in another writing either: `GPL v3` and `GPLv3`."""
    squeezed = _SEPARATORS.sub("", other.folded)
    return sorted(name for name in names.elements() if not _within(_SEPARATORS.sub("", name), squeezed))


def _within(name: str, text: str) -> bool:
    """Whether `name` stands there, and not as a part of a longer number: v2.1 is not in v2.10."""
    if len(name) < 2 or not any(c.isalnum() for c in name):
        return False
    before, after = (r"(?<!\d)" if name[0].isdigit() else ""), (r"(?!\d)" if name[-1].isdigit() else "")
    return re.search(before + re.escape(name) + after, text) is not None


def _conflict(alone: Sequence[str], other: Sequence[str], cached: Text, asked: Text) -> bool:
    if any(_shape(a) == _shape(b) for a in alone for b in other if len(a) > 2):
        return True
    return any(
        any(t.text in alone for t in gap.cached) and any(t.text in other for t in gap.asked)
        for gap in facing(cached, asked).replaced()
    )


def _shape(name: str) -> str:
    """Letters kept, numbers as one mark: `kb-#`, `v#.#`."""
    return re.sub(r"\d+", "#", name)
