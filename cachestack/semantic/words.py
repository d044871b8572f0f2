"""Words: folding a text to one form, and the forms under which two words are the same.

Two spellings of one text (letter case, white space, Unicode form, typographic quotes) fold to the same string.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Any

from cachestack.semantic.lexicon.base import Lexicon


class Role(Enum):
    """How much a word that only one side has says."""

    FUNCTION = "function"
    LIGHT = "light"
    WEAK = "weak"
    SCOPE = "scope"
    CONTENT = "content"
    NUMBER = "number"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class Token:
    """One word, number or date. Two tokens whose `keys` meet are the same word."""

    text: str
    keys: frozenset[str]
    role: Role
    related: frozenset[str] = frozenset()
    """Weaker forms: derivations and synonyms."""
    marker: str = ""
    """The preposition that leads to it: `to`, `from`, `in`, … or empty."""
    sentence: int = 0
    opens: bool = False
    """First of a clause: at the start, or after a comma or a full stop."""
    value: str | None = None
    """Of a number or date: its canonical form."""
    units: frozenset[str] = frozenset()
    """Of a number: the units it may have; empty where it has none."""


_CHARACTERS = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u02bc": "'", "`": "'", "\u00b4": "'"}
    | {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u00ab": '"', "\u00bb": '"', "\u2033": '"'}
    | {"\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": " - ", "\u2212": "-"}
    | {"\u0153": "oe", "\u00e6": "ae", "\u200b": "", "\ufeff": "", "\u00ad": ""}
)
_SPACE = re.compile(r"\s+")


def fold(text: str) -> str:
    """Lower case, one kind of quote, hyphen and space, compatibility forms resolved, composed (NFC)."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = unicodedata.normalize("NFKC", text).translate(_CHARACTERS)
    return squeeze(text)


def squeeze(text: str) -> str:
    """White space to single spaces, none outside."""
    return _SPACE.sub(" ", text).strip()


@lru_cache(maxsize=1 << 15)
def unaccented(word: str) -> str:
    if word.isascii():
        return word
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


@cache
def _lemmatizer() -> Any:
    from simplemma import Lemmatizer

    return Lemmatizer()


@cache
def _frequencies(language: str) -> dict[str, int]:
    from spellchecker import SpellChecker

    counts: dict[str, int] = SpellChecker(language=language, distance=1).word_frequency.dictionary
    return counts


def counted_in(word: str, language: str) -> int:
    """How often a word was seen in a large collection of spoken `en` or `fr` (up to some 10^8); 0: unknown."""
    return _frequencies(language).get(word, 0)


def frequency(word: str, language: str | None) -> int:
    """As `counted_in`, for a text in `language`: French texts hold English words too."""
    known = counted_in(word, "fr") if language == "fr" else 0
    return known or counted_in(word, "en")


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of one word: `base` for look-ups in word lists, `keys` and `related` for comparing."""

    base: tuple[str, ...]
    keys: frozenset[str]
    related: frozenset[str]


_UNCHANGED = "better best worse worst more most less least left found media data"
_IRREGULAR = frozenset(_UNCHANGED.split())


@lru_cache(maxsize=1 << 15)
def forms(word: str, lex: Lexicon) -> Forms:
    """Forms of a folded word. Cached: traffic repeats its words."""
    plain = unaccented(word)
    lemma = word
    if word not in _IRREGULAR and word.isalpha():
        lemma = fold(_lemmatizer().lemmatize(word, lang=lex.language))
    if " " in lemma or not lemma:
        lemma = word
    stem = _french_stem(unaccented(lemma)) if lex.language == "fr" else _english_stem(word)
    base = tuple(dict.fromkeys((word, plain, lemma, unaccented(lemma))))
    if lex.language == "en":
        base = tuple(dict.fromkeys((*base, stem)))
    keys = {*base, "~" + _short(stem), "~" + _short(unaccented(lemma))}
    related = {group for form in base for group in lex.synonyms.get(form, ())}
    root = _root(_short(stem), lex.language)
    if len(root) >= 4:
        related.add("^" + root)
    return Forms(base, frozenset(keys), frozenset(related))


def _short(stem: str) -> str:
    return stem[:-1] if len(stem) > 4 and stem.endswith("e") else stem


_VOWEL = re.compile(r"[aeiouy]")
_SINGLE_SYLLABLE = re.compile(r"^[^aeiou]*[aeiouy][^aeiouwxy]$")


def _english_stem(word: str) -> str:
    """Inflection taken off, after step 1 of M. F. Porter, "An algorithm for suffix stripping" (1980)."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        return word[:-3] + ("y" if len(word) > 4 else "ie")
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is", "ous")):
        return word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending):
            base = word[: -len(ending)]
            if len(base) < 2 or not _VOWEL.search(base):
                return word
            if len(base) > 2 and base[-1] == base[-2] and base[-1] not in "lsz":
                return base[:-1]
            if base.endswith(("at", "bl", "iz", "us", "v", "c", "ur")) or _SINGLE_SYLLABLE.match(base):
                return base + "e"
            if ending == "ed" and base.endswith("i"):
                return base[:-1] + "y"
            return base
    return word


def _french_stem(word: str) -> str:
    """Inflection taken off an unaccented word."""
    for ending in ("issement", "eraient", "aient", "erait", "erons", "erez", "ees", "ant", "ons", "ait", "ais", "ent"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    for ending in ("aux", "eux"):
        if word.endswith(ending) and len(word) > 4:
            return word[: -len(ending)] + {"aux": "al", "eux": "eu"}[ending]
    for ending in ("es", "er", "ez", "ee", "ir", "s", "x", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_ENGLISH_ENDINGS = (
    "ically ation ition ment ness ance ence able ible ally ical ity ion ing ive ian ese ly al an ic ed y e i a"
)
_FRENCH_ENDINGS = "issement issant ement ation ition ment ance ence able ible elle ite ion ien ais ois al e i a"
_ROOT_ENDINGS = {"en": tuple(_ENGLISH_ENDINGS.split()), "fr": tuple(_FRENCH_ENDINGS.split())}
_OWN_ROOT = frozenset(["department", "apartment", "basement", "statement", "station", "nation", "business", "general"])


def _root(stem: str, language: str) -> str:
    """A derivation's root: `improvement` and `improve`, `indian` and `india`. Never from a person to a thing."""
    if stem in _OWN_ROOT:
        return stem
    for ending in _ROOT_ENDINGS[language]:
        if stem.endswith(ending) and len(stem) - len(ending) >= 4:
            return stem[: -len(ending)]
    return stem
