"""Dates, times, relative time, and the time a question is asked about (past, present, future)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

KIND = "dates"
CLOSE = 0.75
"""Share of the shorter text that must stand in the other for a missing date to be a contradiction."""
_FULL = re.compile(r"(\d*)-(\d+)-(\d*)")


def dates(cached: Text, asked: Text) -> Verdict:
    """Rejects when a date, a clock time or a relative time is on one side only, or the tense differs. It is certain
    where two that exclude each other face each other, and where one side asks as of a date and the other does not."""
    ours, theirs = _times(cached), _times(asked)
    if not ours and not theirs:
        tense, other = _tense(cached), _tense(asked)
        if tense and other and tense != other:
            return rejected(KIND, tense, other, certain=False)
        return passed(KIND)
    alone, left = _unmatched(ours, theirs), _unmatched(theirs, ours)
    if not alone and not left:
        return passed(KIND)
    values = frozenset(alone), frozenset(left)
    return rejected(KIND, *values, certain=_conflict(alone, left, cached, asked))


def _conflict(alone: dict[str, Token], left: dict[str, Token], cached: Text, asked: Text) -> bool:
    found = facing(cached, asked)
    if bool(alone) != bool(left):
        lonely, text = (alone, cached) if alone else (left, asked)
        return found.shared >= CLOSE and any(_as_of(token, text) for token in lonely.values())
    if not alone:
        return False
    as_of, other = _as_of_any(alone.values(), cached), _as_of_any(left.values(), asked)
    if as_of and other:
        return any(_exclude(x, y) for x in alone for y in left)
    places = {id(t): value for values in (alone, left) for value, t in values.items()}
    for gap in found.replaced():
        a, b = ([places[id(t)] for t in side if id(t) in places] for side in (gap.cached, gap.asked))
        if any(_exclude(x, y) for x, y in zip(a, b, strict=False)):
            return True
    return False


@lru_cache(maxsize=256)
def _times(text: Text) -> dict[str, Token]:
    """Every date and relative time with the token it stands in: `2019-3-18`, `tomorrow`, `next week`."""
    lex = text.lexicon
    found: dict[str, Token] = {}
    tokens = text.tokens
    for before, token, follower in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
        if token.role is Role.DATE or (token.role is Role.NUMBER and before is not None and before.text in lex.as_of):
            found[token.value or token.text] = token
        elif token.text in lex.relative_days:
            found[lex.relative_days[token.text]] = token
        elif follower is not None:
            # `next week`, `la semaine prochaine`
            for shift, period in ((token, follower), (follower, token)):
                if shift.text in lex.period_shifts:
                    names = lex.periods & period.keys
                    if names:
                        found[f"{lex.period_shifts[shift.text]} {min(names)}"] = shift
    return found


def _unmatched(ours: dict[str, Token], theirs: dict[str, Token]) -> dict[str, Token]:
    return {value: token for value, token in ours.items() if not any(_agree(value, other) for other in theirs)}


def _agree(one: str, other: str) -> bool:
    """Equal, or one leaves out what the other adds: `6 June 2020` and `June`."""
    if one == other:
        return True
    first, second = _FULL.fullmatch(one), _FULL.fullmatch(other)
    if first and second:
        return all(x == y or not x or not y for x, y in zip(first.groups(), second.groups(), strict=True))
    dated, plain = (first, other) if first else (second, one)
    return dated is not None and dated[1] != "" and dated[1] == plain


def _exclude(one: str, other: str) -> bool:
    """Whether two times are of one kind and differ: two weekdays, two dates, two years, two days from today."""
    return one != other and _shape(one) == _shape(other)


def _shape(value: str) -> str:
    if _FULL.fullmatch(value):
        return "date"
    if value.startswith("weekday"):
        return "weekday"
    if re.fullmatch(r"\d+:\d+", value):
        return "clock"
    if re.fullmatch(r"\d{3,4}|\d+s", value):
        return "year"
    return value.partition(" ")[2] or "day"


def _as_of_any(tokens: Iterable[Token], text: Text) -> bool:
    return any(_as_of(token, text) for token in tokens)


def _as_of(token: Token, text: Text) -> bool:
    """Whether a date says at what time the answer holds: it ends the question after `as of`, `on`, `in`."""
    at = next(i for i, t in enumerate(text.tokens) if t is token)
    return any(t.text in text.lexicon.as_of for t in text.tokens[max(0, at - 2) : at])


def _tense(text: Text) -> str:
    """`past`, `present` or `future`, where the first verb that shows tense is so; empty where none does."""
    lex = text.lexicon
    for token in text.tokens:
        for tense, words in (("past", lex.past), ("future", lex.future), ("present", lex.present)):
            if token.text in words:
                return tense
    return ""
