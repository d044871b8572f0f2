"""Which word of one text is which word of the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token, counted_in, frequency

MISSPELT, KNOWN = 60, 500
"""Seen at most so often, a word may be a slip; seen at least so often, it is a word. Of some 10^8 words."""

How = Literal["same", "related", "compound", "initials", "spelling"]


@dataclass(frozen=True, slots=True)
class Match:
    """`cached` and `asked` are positions in `Text.matter`."""

    cached: int
    asked: int
    how: How


@dataclass(frozen=True, slots=True)
class Alignment:
    """All matches in the order of the cached text, and the tokens that only one side has."""

    matches: tuple[Match, ...]
    only_cached: tuple[Token, ...]
    only_asked: tuple[Token, ...]

    def blamed(self, *roles: Role) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The texts of the unmatched tokens that have one of `roles`, on each side."""
        cached, asked = (tuple(t.text for t in side if t.role in roles) for side in (self.only_cached, self.only_asked))
        return cached, asked


@lru_cache(maxsize=64)
def align(cached: Text, asked: Text) -> Alignment:
    """Strongest kind of match first, in order; the same whichever text comes first.

    Pure; the last pairs are remembered, because several guards ask.
    """
    if cached.plain <= asked.plain:
        return _align(cached, asked)
    found = _align(asked, cached)
    swapped = sorted((Match(m.asked, m.cached, m.how) for m in found.matches), key=lambda m: (m.cached, m.asked))
    return Alignment(tuple(swapped), found.only_asked, found.only_cached)


def _align(cached: Text, asked: Text) -> Alignment:
    a, b = cached.matter, asked.matter
    left, right = dict.fromkeys(range(len(a))), dict.fromkeys(range(len(b)))
    matches: list[Match] = []

    def match(how: How, same: Callable[[Token, Token], bool]) -> None:
        for i in list(left):
            j = next((j for j in right if same(a[i], b[j])), None)
            if j is not None:
                matches.append(Match(i, j, how))
                del left[i], right[j]

    match("same", lambda x, y: x.text == y.text)
    match("same", lambda x, y: not x.keys.isdisjoint(y.keys))
    if left and right:
        match("related", lambda x, y: not x.related.isdisjoint(y.related))
    if left or right:
        _compounds(a, b, left, right, matches, swap=False)
        _compounds(b, a, right, left, matches, swap=True)
    if left and right:
        language = cached.language or asked.language
        slips = [t for side, open_side in ((a, left), (b, right)) for t in map(side.__getitem__, open_side)]
        if any(len(t.text) >= 4 and frequency(t.text, language) <= MISSPELT for t in slips):
            match("spelling", lambda x, y: _misspelt(x, y, language))
    for side, open_side, other in ((a, left, asked), (b, right, cached)):
        for i in list(open_side):
            if _slipped_grammar(side[i], other):
                del open_side[i]
    return Alignment(
        tuple(sorted(matches, key=lambda m: (m.cached, m.asked))),
        tuple(a[i] for i in left),
        tuple(b[j] for j in right),
    )


def _compounds(
    whole: Sequence[Token],
    parts: Sequence[Token],
    open_whole: dict[int, None],
    open_parts: dict[int, None],
    matches: list[Match],
    swap: bool,
) -> None:
    """One word against two or more: `nonprofit` and `non profit`, `AI` and its written-out form."""
    for i in list(open_whole):
        word = whole[i].text
        if len(word) < 2 or whole[i].role in (Role.NUMBER, Role.DATE):
            continue
        for j in open_parts:
            if not word.startswith(parts[j].text[:1]):
                continue
            end = _run(word, parts, j)
            how: How = "compound"
            if end == j:
                end, how = _initials(word, parts, j), "initials"
            if end > j and all(k in open_parts for k in range(j, end)):
                for k in range(j, end):
                    matches.append(Match(k, i, how) if swap else Match(i, k, how))
                    open_parts.pop(k)
                open_whole.pop(i)
                break


def _run(word: str, parts: Sequence[Token], start: int) -> int:
    joined, k = "", start
    while k < len(parts) and len(joined) < len(word):
        joined += parts[k].text
        k += 1
    return k if joined == word and k > start + 1 else start


def _initials(word: str, parts: Sequence[Token], start: int) -> int:
    end = start + len(word)
    if not 2 <= len(word) <= 6 or end > len(parts) or not word.isalpha():
        return start
    return end if all(parts[start + k].text[:1] == c for k, c in enumerate(word)) else start


def _misspelt(a: Token, b: Token, language: str | None) -> bool:
    """Whether one is the other with a slip of the finger. Exactly one of the two may be a known word: Mary is not
    Mark, and two names that nobody knows are two names."""
    x, y = a.text, b.text
    if not -3 < len(x) - len(y) < 3:
        return False
    if Role.NUMBER in (a.role, b.role) or Role.DATE in (a.role, b.role):
        return False
    shorter, longer = sorted((len(x), len(y)))
    if shorter < 4 or longer - shorter > 2 or not (x.isalpha() and y.isalpha()):
        return False
    low, high = sorted((frequency(x, language), frequency(y, language)))
    if low > MISSPELT or high < KNOWN or low * 100 > high:
        return False  # asked first: comparing letter by letter takes seconds for two words of a thousand letters
    slips = distance(x, y, 2)
    if slips > (2 if shorter >= 8 else 1):
        return False
    return not (shorter <= 5 and longer == shorter and slips == 1 and sorted(x) != sorted(y))


def _slipped_grammar(token: Token, other: Text) -> bool:
    """`wiht` where the other text has `with`: no word, and the letters of a small word in another order."""
    word = token.text
    if token.role is not Role.CONTENT or len(word) < 3 or not word.isalpha():
        return False
    if counted_in(word, other.lexicon.language) > MISSPELT:
        return False
    length, letters = len(word), sorted(word)
    return any(t.role is Role.FUNCTION and len(t.text) == length and sorted(t.text) == letters for t in other.tokens)


def distance(x: str, y: str, limit: int) -> int:
    """Edits (insert, delete, replace, swap neighbours) from `x` to `y`; `limit + 1` stands for more."""
    if abs(len(x) - len(y)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(y) + 1))
    for i, c in enumerate(x, 1):
        before, previous, row = row, before, [i]
        for j, d in enumerate(y, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (c != d))
            if i > 1 and j > 1 and c == y[j - 2] and x[i - 2] == d:
                cost = min(cost, previous[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
    return min(row[-1], limit + 1)
