"""Answers that are one number, one date or one time: `1,200`, `The answer is 1200.`, `1.2k`."""

from __future__ import annotations

import re

from cachestack.answers.quantities import Quantity, bare_contrary, lone, named, relation, unit_words
from cachestack.answers.reading import Answer, read_all
from cachestack.answers.sameness import Sameness, told_apart
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role

MAX_UNITS = 2
MAX_WORDS = 18
_VERSION = re.compile(
    r"\b(?:version|release|python|java|node|php|ubuntu|debian|ios|android|kernel|firmware|v)\b", re.IGNORECASE
)
_TRAILING = re.compile(r"\.\d*[1-9]0$")


def compare_numeric(x: Answer, y: Answer, question: Text | None, language: str | None) -> Sameness | None:
    """None where one of them is not one number in a short sentence, or words beside it may change what it says."""
    if max(x.num_words, y.num_words) > MAX_WORDS or max(len(x.units), len(y.units)) > MAX_UNITS:
        return None
    ours, theirs = read_all(x.units, language), read_all(y.units, language)
    one, other = _only(ours, question), _only(theirs, question)
    if one is None or other is None:
        return None
    said = sorted((_words_beside(ours, question), _words_beside(theirs, question)), key=len)
    if relation(one, other) == "equal":
        if said[0]:
            alone = said[0] - said[1], said[1] - said[0]
            if len(said[0]) == len(said[1]) == 1 and all(alone) and all(len(w) <= 3 for side in alone for w in side):
                return told_apart("numeric", 0.1, "unit", x.normal, y.normal)
            return None
        if _is_version_of_another(one, other, x, y, question):
            return told_apart("numeric", 0.0, "version", one.written, other.written)
        if _negates(ours) != _negates(theirs):
            return None
        return Sameness(True, "numeric", 1.0 if not said[1] else 0.95, {"value": one.written})
    if bare_contrary(one, other) and (not said[0] or _alike(*said)):
        return told_apart("numeric", 0.0, "number", one.written, other.written)
    return None


def _only(texts: list[Text], question: Text | None) -> Quantity | None:
    """The one number that the question has not named already."""
    found = named(texts)
    if len(found) > 1 and question is not None:
        found = lone(found, named([question])) or found
    return found[0] if len(found) == 1 else None


def _words_beside(texts: list[Text], question: Text | None) -> frozenset[str]:
    """Words that matter beside the number and are not the question's."""
    asked = frozenset() if question is None else frozenset(key for t in question.tokens for key in t.keys | t.related)
    return frozenset(
        min(t.keys)
        for text in texts
        for t in text.matter
        if t.role in (Role.CONTENT, Role.SCOPE)
        and t.text not in unit_words(text)
        and asked.isdisjoint(t.keys | t.related)
    )


def _alike(few: frozenset[str], many: frozenset[str]) -> bool:
    return len(few & many) >= 0.5 * len(few)


def _negates(texts: list[Text]) -> bool:
    return any(t.text in text.lexicon.negators for text in texts for t in text.tokens)


def _is_version_of_another(a: Quantity, b: Quantity, x: Answer, y: Answer, question: Text | None) -> bool:
    """3.10 and 3.1 are two versions and one number."""
    if a.literal == b.literal or not (_TRAILING.search(a.literal) or _TRAILING.search(b.literal)):
        return False
    return any(_VERSION.search(text) for text in (x.normal, y.normal, question.folded if question else ""))
