"""What is asked for: who, when, where, why, how, how much, or whether."""

from __future__ import annotations

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.text import Text

KIND = "slot"
EXCLUSIVE = frozenset({"when", "where", "who", "why", "how_much", "how_degree"})
CLOSE = 0.7
"""Share of the shorter text that must stand in the other for `when` against `where` to be certain."""
OPEN = frozenset({"what", "how", "keywords"})


def slot(cached: Text, asked: Text) -> Verdict:
    """Rejects when one side asks for something that the other does not. A few keywords without any question agree
    with `what` and `how`."""
    ours, theirs = _slots(cached), _slots(asked)
    if not cached.slots and not asked.slots:
        return passed(KIND)
    if ours == theirs or (len(ours) == len(theirs) == 1 and ours | theirs <= OPEN and "keywords" in ours | theirs):
        return passed(KIND)
    settled = len(ours) == len(theirs) == 1 and ours | theirs <= EXCLUSIVE and facing(cached, asked).shared >= CLOSE
    return rejected(KIND, ours, theirs, certain=settled)


def _slots(text: Text) -> frozenset[str]:
    if text.slots:
        return frozenset("how" if slot == "how_to" else slot for slot in text.slots)
    lex = text.lexicon
    grammar = {t.text for t in text.tokens}
    says = any(word in lex.persons or word in lex.openers for word in grammar)
    return frozenset({"statement" if says else "keywords"})
