"""What each clause of an answer is: a refusal, an apology, politeness, a question back, or something of the matter."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise

from cachestack.semantic.admission import wording as w
from cachestack.semantic.admission.reading import Clause

WITHIN = 7
"""How far from its subject a negation may stand, in words."""


class Label(StrEnum):
    STRONG = "strong"
    """Refuses, whatever was asked."""
    REFUSING = "refusing"
    APOLOGY = "apology"
    ASKING = "asking"
    OFFER = "offer"
    REDIRECT = "redirect"
    FILLER = "filler"
    JUSTIFYING = "justifying"
    SOLVING = "solving"
    CONTENT = "content"


def label(clause: Clause) -> Label:
    text, words = clause.text, clause.words
    if w.OPINION.search(text):
        return Label.CONTENT
    if w.STRONG.search(text):
        return Label.STRONG
    solves = _solves(text)
    if _first_person_negated(words) and not (solves and w.OFFER.search(text)):
        return Label.REFUSING
    if w.WEAK.search(text):
        return Label.REFUSING
    if text.endswith("?"):
        return Label.OFFER if w.OFFERING_QUESTION.search(text) or w.OFFER.search(text) else Label.ASKING
    if w.ASKING.search(text):
        return Label.ASKING
    if solves:
        return Label.SOLVING
    if w.OFFER.search(text):
        return Label.OFFER
    if w.APOLOGY.intersection(words[:12]) - w.GENTLE:
        return Label.APOLOGY
    if w.REDIRECT.search(text):
        return Label.REDIRECT
    if w.FILLER.search(text):
        return Label.FILLER
    return Label.JUSTIFYING if w.JUSTIFY.search(text) else Label.CONTENT


def _solves(text: str) -> bool:
    if w.PLACE.search(text):
        return True
    return w.SOLVING.search(text) is not None and not w.REDIRECT.search(text)


def _first_person_negated(words: tuple[str, ...]) -> bool:
    for at, word in enumerate(words):
        following = words[at + 1 : at + 1 + WITHIN]
        if word in w.I and (_negates(following) or not w.LIMIT.isdisjoint(following[:3])):
            return True
        if word in w.JE and not w.NEGATIVE_FR.isdisjoint(following):
            return True
        if word in w.MINE:
            around = words[max(0, at - WITHIN) : at + 1 + WITHIN]
            if not w.LIMIT.isdisjoint(around) or _negates(around) or not w.NEGATIVE_FR.isdisjoint(around):
                return True
    return False


def _negates(words: tuple[str, ...]) -> bool:
    """English: a word that negates, or one that ends in n't."""
    if not w.NEGATIVE.isdisjoint(words):
        return True
    return any(one[-1] == "'" and one[-2:-1] == "n" and two == "t" for one, two in pairwise(words))
