"""Word lists and patterns for what is said in a conversation besides the matter itself.

One text file a language, beside this one; a comment in it explains each section. `expletive` patterns are taken out
before words that point back are looked for; in all other patterns case does not matter, except in `persons_are`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from cachestack.semantic.lexicon.base import bare, sections_of, word_set

Pattern = re.Pattern[str]


@dataclass(frozen=True, slots=True, eq=False)
class Talk:
    """One language's lists, ready to use. `traits` maps each pattern to its class: place, plan, device, age, …"""

    pointing: frozenset[str]
    pointing_out: frozenset[str]
    leading: frozenset[str]
    answers: frozenset[str]
    ordinals: frozenset[str]
    polite: frozenset[str]
    small_talk: frozenset[str]
    personal: frozenset[str]
    turning: Pattern
    narrows: frozenset[str]
    own: frozenset[str]
    expletive: Pattern
    points_on: Pattern
    of_mine: Pattern
    standing: Pattern
    traits: tuple[tuple[str, Pattern], ...]
    persons_are: Pattern
    passages: Pattern


def talk(language: str | None) -> Talk:
    """The lists of a language; the English ones for a language that has none."""
    return _load("french" if language == "fr" else "english")


@cache
def _load(name: str) -> Talk:
    source = sections_of(f"talk_{name}.txt")
    return Talk(
        pointing=word_set(source["pointing"]),
        pointing_out=word_set(source["pointing_out"]),
        leading=word_set(source["leading"]),
        answers=word_set(source["answers"]),
        ordinals=word_set(source["ordinals"]),
        polite=word_set(source["polite"]),
        small_talk=word_set(source["small_talk"]),
        personal=word_set(source["personal"]),
        turning=_any(source["turning"]),
        narrows=word_set(source["narrows"]),
        own=word_set(source["own"]),
        expletive=_any(source["expletive"]),
        points_on=_any(source["points_on"]),
        of_mine=_any(source["of_mine"]),
        standing=_any(source["standing"]),
        traits=tuple((kind, _any([rule])) for kind, rule in (line.split(maxsplit=1) for line in source["traits"])),
        persons_are=_any(source["persons_are"], 0, accents_too=False),
        passages=_any(source["passages"]),
    )


def _any(lines: list[str], flags: int = re.IGNORECASE, accents_too: bool = True) -> Pattern:
    rules = dict.fromkeys([*lines, *(bare(line) for line in lines if accents_too)])
    return re.compile("|".join(f"(?:{rule})" for rule in rules), flags)
