"""Dates, times, relative time, and the time a question is asked about (past, present, future)."""

from __future__ import annotations

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role

KIND = "dates"


def dates(cached: Text, asked: Text) -> Verdict:
    """Rejects when a date, a clock time or a relative time is on one side only, or the tense differs."""
    ours, theirs = _times(cached), _times(asked)
    if ours != theirs:
        return rejected(KIND, ours - theirs, theirs - ours, certain=bool(ours and theirs))
    if not ours:
        tense, other = _tense(cached), _tense(asked)
        if tense and other and tense != other:
            return rejected(KIND, tense, other, certain=False)
    return passed(KIND)


def _times(text: Text) -> frozenset[str]:
    """Every date and relative time: `2019-3-18`, `tomorrow`, `next week`."""
    lex = text.lexicon
    found: set[str] = set()
    for token, follower in zip(text.tokens, (*text.tokens[1:], None), strict=False):
        if token.role is Role.DATE:
            found.add(token.value or token.text)
        elif token.text in lex.relative_days:
            found.add(lex.relative_days[token.text])
        elif follower is not None:
            # `next week`, `la semaine prochaine`
            for shift, period in ((token, follower), (follower, token)):
                names = lex.periods & period.keys
                if shift.text in lex.period_shifts and names:
                    found.add(f"{lex.period_shifts[shift.text]} {min(names)}")
    return frozenset(found)


def _tense(text: Text) -> str:
    """`past`, `present` or `future`, where the first verb that shows tense is so; empty where none does."""
    lex = text.lexicon
    for token in text.tokens:
        for tense, words in (("past", lex.past), ("future", lex.future), ("present", lex.present)):
            if token.text in words:
                return tense
    return ""
