"""The facts of a turn: names, numbers, dates, identifiers, and the words that carry meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from cachestack.semantic.context.kept import Fact, FactKind, long_hash, short_hash
from cachestack.semantic.lexicon.base import Lexicon, lexicon
from cachestack.semantic.lexicon.talk import talk
from cachestack.semantic.numbers import quantities
from cachestack.semantic.reading import plain_words, tokens
from cachestack.semantic.words import Role, Token, fold, frequency, unaccented

MAX_READ = 800
"""Characters of a turn that are read. A longer one counts as a whole besides."""
RARE = 20_000
"""A word seen less often than this (of some 10^8) says more than others."""
COMMON = 250_000
"""A word seen more often than this says little about what is spoken of."""
UNKNOWN = 300
"""Less often still: a name, or as good as one."""
_SENTENCE = re.compile(r"(?<=[.!?;\n])\s+|\n+")
_DIGIT = re.compile(r"\d")
_CAPITAL = re.compile(r"(?<![.!?:;\n]\s)(?<!^)\b[A-ZÀ-Ý][\w'-]+")


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """`facts` in the order in which they are said, each once; `negations`: how many there are."""

    facts: tuple[Fact, ...]
    negations: int


@lru_cache(maxsize=2048)
def facts_of(text: str, language: str | None, max_read: int = MAX_READ) -> TurnFacts:
    """The facts of one turn. Remembered: the next request of a conversation has the same turns before it."""
    lex = lexicon(language)
    read = text[:max_read]
    capitals = {fold(m[0]) for m in _CAPITAL.finditer(read)}
    found: dict[tuple[str, ...], Fact] = {}
    negations = 0
    for sentence in _SENTENCE.split(read):
        for token in sentence_tokens(sentence, lex):
            negations += token.text in lex.negators
            fact = _fact(token, lex, capitals)
            if fact is not None:
                found.setdefault(fact.ids, fact)
    if len(text) > max_read:
        whole = Fact("whole", (short_hash(bare_text(text)),))
        found[whole.ids] = whole
    return TurnFacts(tuple(found.values()), negations)


def sentence_tokens(sentence: str, lex: Lexicon) -> list[Token]:
    """Words, and numbers and dates put together where there may be some."""
    folded = written_out(sentence, lex)
    words = plain_words(folded, lex)
    if _DIGIT.search(folded) or any(_is_dated(word.text, lex) for word in words):
        return list(tokens(folded, lex))
    return words


def written_out(text: str, lex: Lexicon) -> str:
    """Folded, without contractions."""
    folded = fold(text)
    if "'" in folded:
        for pattern, replacement in lex.rewrites:
            folded = pattern.sub(replacement, folded)
    return folded


def bare_text(text: str) -> str:
    """Words alone, folded: for texts that are compared as a whole."""
    return " ".join(re.findall(r"\w+", fold(text)))


@lru_cache(maxsize=2048)
def turn_hash(text: str) -> str:
    """Of a turn that is compared as a whole."""
    return long_hash(bare_text(text))


def _is_dated(word: str, lex: Lexicon) -> bool:
    return (
        word in lex.number_words
        or word in lex.multipliers
        or word in lex.months
        or word in lex.weekdays
        or word in lex.ordinals
    )


def _fact(token: Token, lex: Lexicon, capitals: set[str]) -> Fact | None:
    if token.role is Role.FUNCTION or token.role is Role.LIGHT or token.role is Role.WEAK:
        return None
    if token.role is Role.NUMBER:
        amounts = quantities(token.value or "0", token.units)
        ids = tuple(sorted({short_hash(f"{unit} {number.normalize()}") for unit, number in amounts})[:3])
        return Fact("number", ids, token.text, short_hash(" ".join(sorted(unit for unit, _ in amounts))))
    if token.role is Role.DATE:
        return Fact("date", (short_hash(f"@{token.value}"),), token.text)
    return _word_fact(token.text, token.keys, token.related, lex.language, token.text in capitals)


@lru_cache(maxsize=1 << 14)
def _word_fact(
    text: str, keys: frozenset[str], related: frozenset[str], language: str, is_capital: bool
) -> Fact | None:
    if text in talk(language).polite:
        return None
    seen = frequency(text, language)
    is_name = is_capital or seen < UNKNOWN or _DIGIT.search(text) is not None
    kind: FactKind = "name" if is_name else "rare" if seen < RARE else "word" if seen < COMMON else "common"
    return Fact(kind, _ids(keys, related), text)


def _ids(keys: frozenset[str], related: frozenset[str]) -> tuple[str, ...]:
    """The word's own form first, then its root and the words that may stand for it."""
    stems = sorted((key for key in keys if key.startswith("~")), key=lambda key: (len(key), key))
    own = unaccented(stems[0] if stems else min(keys))
    groups = sorted(key for key in related if key.startswith("="))[:2]
    root = next((key for key in related if key.startswith("^")), "")
    roots = [root] if root and root[1:] != own[1:] else []
    return tuple(dict.fromkeys(short_hash(key) for key in (own, *roots, *groups)))
