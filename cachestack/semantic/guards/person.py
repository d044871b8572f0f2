"""Whose: `my account`, `your account`, `his account`."""

from __future__ import annotations

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.text import Text

KIND = "person"
# Asked how, whether one can or should, `I`, `you` and `one` are anybody.
GENERAL = frozenset({"how_to", "can", "should", "what_do", "how_long", "how_often", "how_much", "how_degree"})
SPEAKERS = frozenset({"i", "you", "we"})
SINGULAR = frozenset({"i", "you"})


def person(cached: Text, asked: Text) -> Verdict:
    """Rejects when a third person is on one side only, or `mine` stands against `yours` where both mean somebody."""
    ours, theirs = _persons(cached), _persons(asked)
    if ours - SPEAKERS != theirs - SPEAKERS:
        return rejected(KIND, ours, theirs, certain=False)
    first, second = _order(cached), _order(asked)
    if first != second and set(first) == set(second):
        # `Do I owe you money?` and `Do you owe me money?`
        return rejected(KIND, first, second, certain=False)
    if _replaced(cached, asked) or _replaced(asked, cached):
        return rejected(KIND, first, second, certain=False)
    doers, others = _subjects(cached), _subjects(asked)
    if doers & SINGULAR and others & SINGULAR and not doers & others & SINGULAR:
        # `How do I handle my data?` and `How do you handle my data?`
        return rejected(KIND, doers, others, certain=False)
    if cached.slots and asked.slots and cached.slots | asked.slots <= GENERAL:
        return passed(KIND)
    owns, other = _owners(cached), _owners(asked)
    if owns == other or (owns | other == {"i"}):
        return passed(KIND)
    if owns and other and doers >= owns and others >= other:
        return passed(KIND)
    return rejected(KIND, owns, other, certain=False)


def _persons(text: Text) -> frozenset[str]:
    table = text.lexicon.persons
    return frozenset(table[t.text] for t in text.tokens if t.text in table)


def _order(text: Text) -> tuple[str, ...]:
    """The persons in the order in which they are first named."""
    table = text.lexicon.persons
    return tuple(dict.fromkeys(table[t.text] for t in text.tokens if t.text in table))


def _replaced(text: Text, other: Text) -> bool:
    """Whether `I` does it on one side and only a pronoun that may stand for anything (`il`) on the other."""
    return "i" in _subjects(text) and not _subjects(other) and any(t.text in other.lexicon.third for t in other.tokens)


def _owners(text: Text) -> frozenset[str]:
    return frozenset(text.lexicon.owners[t.text] for t in text.tokens if t.text in text.lexicon.owners)


def _subjects(text: Text) -> frozenset[str]:
    return frozenset(text.lexicon.subjects[t.text] for t in text.tokens if t.text in text.lexicon.subjects)
