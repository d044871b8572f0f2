"""What holds for all answers of a conversation: instructions, texts that were given, what askers say of themselves."""

from __future__ import annotations

import re
from functools import lru_cache

from cachestack.semantic.context.facts import bare_text, turn_hash, written_out
from cachestack.semantic.context.kept import short_hash
from cachestack.semantic.lexicon.base import lexicon
from cachestack.semantic.lexicon.talk import talk
from cachestack.semantic.words import squeeze, unaccented

MAX_TURN = 80
"""Words from which on a user's turn is a text that later turns are about; fewer, where it says that one follows."""
MIN_GIVEN = 25
MAX_STATED = 1_500
"""Characters of a turn in which traits are looked for."""
_OF_ITSELF = re.compile(r"\b(?:i|my|je|mes|mon|from now on|désormais|à partir de maintenant)\b|\bj'")
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")


@lru_cache(maxsize=2048)
def instructions(text: str, language: str | None, *, of_itself: bool = False) -> frozenset[str]:
    """Digests of the sentences that want something of every answer from then on.

    Both languages' patterns are asked: who wants to slip one in chooses the language. `of_itself`: only where the
    speaker speaks of itself.
    """
    found = set()
    for sentence in _SENTENCE.split(text):
        folded = _plain(sentence, language)
        if of_itself and not _OF_ITSELF.search(folded):
            continue
        if any(talk(name).standing.search(folded) for name in ("en", "fr")):
            found.add(short_hash(bare_text(sentence)))
    return frozenset(found)


@lru_cache(maxsize=2048)
def traits(text: str, language: str | None) -> frozenset[tuple[str, str]]:
    """What an asker says of themselves that answers may depend on: a class and a hash of what was said."""
    words, found = talk(language), set()
    for sentence in _SENTENCE.split(text[:MAX_STATED]):
        folded = _plain(sentence, language)
        is_own = not words.personal.isdisjoint(_WORD.findall(folded))
        for kind, pattern in words.traits:
            for match in pattern.finditer(folded) if is_own or kind != "plan" else ():
                said = " ".join(group for group in match.groups() if group)
                found.add((kind, short_hash(unaccented(said))))
    return frozenset(found)


@lru_cache(maxsize=2048)
def passage(text: str, language: str | None) -> str | None:
    """A digest of a turn that is a text to be asked about, or None."""
    num_words = len(text.split())
    if "```" not in text and num_words < MIN_GIVEN:
        return None
    says_so = "```" in text or (("\n" in text or ":" in text) and bool(talk(language).passages.search(text)))
    return turn_hash(text) if says_so or num_words >= MAX_TURN else None


def _plain(text: str, language: str | None) -> str:
    return squeeze(written_out(text, lexicon(language)))
