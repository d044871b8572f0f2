"""Words that face each other: two texts laid side by side, equal words on equal words, and what stands in the gaps.

    how long does a | transfer | to | spain    | take
    how long does a | payment  | to | portugal | take

`transfer` faces `payment`, `spain` faces `portugal`. Where two texts share too little to be laid side by side, nothing
faces anything: a word that only one of them has is then no contradiction, only a detail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

MIN_SHARED = 0.5
"""Share of the shorter text's words that the other must have."""
MAX_MIDDLE = 40
"""Tokens between the common beginning and the common end, on either side, beyond which nothing is compared."""
MAX_GAP = 6
"""Tokens of a gap, on either side."""


@dataclass(frozen=True, slots=True)
class Gap:
    """What one text has where the other has something else or nothing. At least one side is not empty."""

    cached: tuple[Token, ...]
    asked: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Facing:
    """`shared` is the part of the shorter text's tokens that stand in the same order in the other, 0 to 1."""

    gaps: tuple[Gap, ...]
    shared: float

    def replaced(self) -> tuple[Gap, ...]:
        """Gaps with something short on both sides."""
        return tuple(g for g in self.gaps if g.cached and g.asked and max(len(g.cached), len(g.asked)) <= MAX_GAP)


NOTHING = Facing((), 0.0)


@lru_cache(maxsize=64)
def facing(cached: Text, asked: Text) -> Facing:
    """The same whichever text comes first. The last pairs are remembered, because several guards ask."""
    if cached.plain <= asked.plain:
        return _facing(cached.tokens, asked.tokens)
    found = _facing(asked.tokens, cached.tokens)
    return Facing(tuple(Gap(g.asked, g.cached) for g in found.gaps), found.shared)


def _facing(cached: Sequence[Token], asked: Sequence[Token]) -> Facing:
    if not cached or not asked:
        return NOTHING
    a, b = _numbered(cached, asked)
    start, shorter = 0, min(len(a), len(b))
    while start < shorter and a[start] == b[start]:
        start += 1
    end = 0
    while end < shorter - start and a[-1 - end] == b[-1 - end]:
        end += 1
    middle, other = a[start : len(a) - end], b[start : len(b) - end]
    if max(len(middle), len(other)) > MAX_MIDDLE:
        return NOTHING
    if start + end + len(set(middle) & set(other)) < MIN_SHARED * shorter:
        return NOTHING
    pairs = [*_common(middle, other), (len(middle), len(other))]
    gaps = []
    i = j = 0
    for next_i, next_j in pairs:
        if next_i > i or next_j > j:
            gaps.append(Gap(tuple(cached[start + i : start + next_i]), tuple(asked[start + j : start + next_j])))
        i, j = next_i + 1, next_j + 1
    shared = (start + end + len(pairs) - 1) / shorter
    return Facing(tuple(gaps), shared) if shared >= MIN_SHARED else NOTHING


def _numbered(cached: Sequence[Token], asked: Sequence[Token]) -> tuple[list[int], list[int]]:
    """Both texts as numbers; equal words have equal numbers."""
    known: dict[str, int] = {}
    texts = []
    for tokens in (asked, cached):
        numbers = []
        for token in tokens:
            number = next((known[key] for key in token.keys if key in known), len(known))
            for key in token.keys:
                known.setdefault(key, number)
            numbers.append(number)
        texts.append(numbers)
    return texts[1], texts[0]


def _common(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """The places of a longest common subsequence."""
    longest = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        row, below = longest[i], longest[i + 1]
        for j in range(len(b) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if a[i] == b[j] else max(below[j], row[j + 1])
    found = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif longest[i + 1][j] >= longest[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def alone(tokens: Sequence[Token], other: Text) -> list[Token]:
    """Those that have no equal anywhere in the other text."""
    theirs = keys_of(other)
    return [t for t in tokens if theirs.isdisjoint(t.keys)]


@lru_cache(maxsize=128)
def keys_of(text: Text) -> frozenset[str]:
    """All keys of a text's tokens."""
    return frozenset(key for token in text.tokens for key in token.keys)


def bare(tokens: Sequence[Token]) -> list[Token]:
    """Without grammar."""
    return [t for t in tokens if t.role is not Role.FUNCTION]
