"""Answers of a word or two: other words, of which none is a form or a synonym of the other, are another answer."""

from __future__ import annotations

from cachestack.answers.alignment import Embed, cosines_of
from cachestack.answers.overlap import keys_of
from cachestack.answers.reading import Answer, read, without_label
from cachestack.answers.sameness import Sameness, told_apart

MAX_WORDS = 3
MAX_CHARS = 80
MAY_BE_SAME = 0.7
"""Cosine from which on two short answers may be two words for one thing."""


def compare_short(x: Answer, y: Answer, language: str | None, embed: Embed | None) -> Sameness | None:
    """None where either is longer, or they have a word in common."""
    ours, theirs = without_label(x.normal), without_label(y.normal)
    if max(ours.count(" "), theirs.count(" ")) >= MAX_WORDS or max(len(ours), len(theirs)) > MAX_CHARS:
        return None
    a, b = read(ours, language), read(theirs, language)
    if not a.matter or not b.matter or not keys_of(a).isdisjoint(keys_of(b)):
        return None
    cosines = cosines_of([ours], [theirs], embed)
    if cosines is not None and float(cosines[0][0]) >= MAY_BE_SAME:
        return Sameness(None, "label", 0.5, {"unknown": "short", "x": ours, "y": theirs})
    return told_apart("label", 0.1, "short", ours, theirs)
