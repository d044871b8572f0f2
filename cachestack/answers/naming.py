"""Names: two sentences that speak of the same and name somebody else."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cachestack.answers.finding import Facts, Finding, Pair
from cachestack.answers.reading import Unit
from cachestack.semantic.lexicon.base import lexicon
from cachestack.semantic.words import fold, forms, frequency

ALIKE = 0.3
"""Share of the words of either, from which on two names are a contradiction; below, a doubt."""
KNOWN_FIRST, KNOWN = 300, 200_000
"""A word with a capital that is seen more often than this (of some 10^8) is taken for a plain word: at the start of a
sentence, and elsewhere."""
_WORD = re.compile(r"[^\W\d_][\w'’-]*")


def other_names(pair: Pair, facts: Facts) -> Iterable[Finding]:
    """Names of the question count only where both sides have one of them, and another."""
    ours = [w for w in _names(pair.unit_x, facts.keys_y, facts.language) if fold(w) not in facts.prose_y]
    theirs = [w for w in _names(pair.unit_y, facts.keys_x, facts.language) if fold(w) not in facts.prose_x]
    new = [[w for w in side if fold(w) not in facts.asked] for side in (ours, theirs)]
    if all(new) or (ours and theirs and not any(new)):
        yield Finding("entity", pair.most >= ALIKE, {"x": ours, "y": theirs})


def _names(unit: Unit, others: frozenset[str], language: str | None) -> list[str]:
    """Words with a capital that are not among `others`, in no form: `English` is a form of `England`."""
    lex = lexicon(language)
    found = []
    for number, match in enumerate(_WORD.finditer(unit.raw)):
        word = match[0]
        if not word[0].isupper() or len(word) < 2:
            continue
        plain = fold(word).removesuffix("'s")
        if "'" in plain[:3]:
            plain = plain.partition("'")[2]
        if not plain or plain in lex.months or plain in lex.weekdays:
            continue
        if frequency(plain, language) > (KNOWN if number else KNOWN_FIRST):
            continue
        its, places = forms(plain, lex), lex.siblings.get(plain, frozenset())
        same_place = places and any(not places.isdisjoint(lex.siblings.get(key, ())) for key in others)
        if not same_place and others.isdisjoint(its.keys) and others.isdisjoint(its.related):
            found.append(word)
    return found
