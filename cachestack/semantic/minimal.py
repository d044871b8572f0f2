"""Two texts that say the same words but for one small thing: there a guard's doubt is all the difference there is.

A verifier weighs many words against one; where every word that matters has its partner, nothing stands against the
doubt, and it refuses. One preposition or one modal verb for another is such a small thing too.
"""

from __future__ import annotations

from collections.abc import Sequence

from cachestack.semantic.align import align
from cachestack.semantic.guards.base import Verdict, rejected
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role

_SAID = (Role.CONTENT, Role.WEAK, Role.SCOPE, Role.NUMBER, Role.DATE)


def only_difference(cached: Text, asked: Text, doubts: Sequence[Verdict]) -> Verdict | None:
    """The first of the guards' doubts, or the one small word, that is all that the texts differ in; None where there is
    none, or where they differ in more."""
    if any(align(cached, asked).blamed(*_SAID)):
        return None
    return doubts[0] if doubts else _one_small_word(cached, asked)


def _one_small_word(cached: Text, asked: Text) -> Verdict | None:
    """A preposition or modal verb in another's place, or a preposition that one side leaves out."""
    ours, theirs = [t.text for t in cached.tokens], [t.text for t in asked.tokens]
    start = 0
    while start < min(len(ours), len(theirs)) and ours[start] == theirs[start]:
        start += 1
    end = 0
    while end < min(len(ours), len(theirs)) - start and ours[-1 - end] == theirs[-1 - end]:
        end += 1
    one, other = ours[start : len(ours) - end], theirs[start : len(theirs) - end]
    lexicon = cached.lexicon
    if len(one) + len(other) == 1 and (one or other)[0] in lexicon.markers:
        return rejected("preposition", one, other, certain=False)
    for kind, words in (("preposition", lexicon.markers), ("modality", lexicon.modals)):
        if len(one) == len(other) == 1 and one[0] in words and other[0] in words:
            return rejected(kind, one, other, certain=False)
    return None
