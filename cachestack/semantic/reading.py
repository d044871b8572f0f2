"""From folded text to tokens: splitting, set phrases, numbers with units, dates, roles, markers, and the asked slot."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cachestack.semantic import dates, numbers
from cachestack.semantic.lexicon.base import Lexicon
from cachestack.semantic.lexicon.units import units
from cachestack.semantic.words import Forms, Role, Token, forms

_TOKEN = re.compile(
    r"""
    (?P<url>https?://\S+|www\.\S+|[\w.+-]+@[\w-]+\.[\w.-]*\w)
  | (?P<date>\d{4}-\d{1,2}-\d{1,2}(?![\w-])|\d{1,2}/\d{1,2}/\d{2,4}(?![\w/]))
  | (?P<clock>\d{1,2}(?::\d{2}){1,2}(?!\d)|\d{1,2}h\d{2}(?!\w))
  | (?P<name>\w+-[a-z](?![\w-])|(?:c|g|notepad|dev-c)\+\+|[cfj]\#|\.net\b)
  | (?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d\w])|\d+(?:[.,]\d+)*(?!\w|[.,]\d))
  | (?P<mixed>(?=[\w.-]*\d)\w+(?:[.\-_]\w*\d\w*)*)
  | (?P<word>[^\W\d_]+(?:_[^\W\d_]+)+|[^\W\d_]+(?:'[^\W\d_]+)*|'s\b)
  | (?P<op>={2,3}|!==?|<=|>=|=>|->|&&|\|\||[<>+*^~|\\=])
  | (?P<sign>[%$€£₹¥₩°\#@&/])
  | (?P<stop>[.?!;:,]+)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A token before its meaning is known. `kind` is the group of the pattern that found it."""

    text: str
    kind: str
    value: str | None = None
    units: frozenset[str] = frozenset()


def pieces(text: str, lex: Lexicon) -> list[Piece]:
    """Split, set phrases rewritten, numbers and dates put together."""
    split = [Piece(m[0], m.lastgroup or "word") for m in _TOKEN.finditer(text)]
    return dates.merge(numbers.merge(_rewrite(split, lex), lex), lex)


def plain_words(text: str, lex: Lexicon) -> list[Token]:
    """Words alone, each for itself: no set phrases, no numbers put together. Ten times as fast as `tokens`."""
    found = []
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "word":
            word, keys, role, related = _word(match[0], lex)
            found.append(Token(word, keys, role, related))
    return found


def _rewrite(split: Sequence[Piece], lex: Lexicon) -> list[Piece]:
    done: list[Piece] = []
    i = 0
    while i < len(split):
        for left, right in lex.phrases.get(split[i].text, ()):
            if all(i + k < len(split) and split[i + k].text == word for k, word in enumerate(left)):
                done += (Piece(word, "word") for word in right)
                i += len(left)
                break
        else:
            done.append(split[i])
            i += 1
    return done


def tokens(text: str, lex: Lexicon) -> tuple[Token, ...]:
    """The tokens of a plain text, each with the preposition that leads to it."""
    found: list[Token] = []
    marker, sentence, opens, led = "", 0, True, 0
    for piece in pieces(text, lex):
        if piece.kind == "stop":
            marker, opens = "", True
            sentence += piece.text[0] in ".?!;"
            continue
        if piece.text in lex.markers:
            if marker == lex.markers[piece.text] == "to":
                # `to convert A to B`: the first was the infinitive's, and says nothing of A.
                found[led:] = [replace(t, marker="") for t in found[led:]]
            marker, led = lex.markers[piece.text], len(found)
        elif piece.text in lex.question_words or piece.text in lex.persons:
            marker = ""
        text, keys, role, related = _meaning(piece, lex)
        found.append(Token(text, keys, role, related, marker, sentence, opens, piece.value, piece.units))
        opens = False
    return tuple(_mentioned(found, lex))


def _mentioned(found: Sequence[Token], lex: Lexicon) -> list[Token]:
    """Small words that are spoken of, not used: `the difference between has and had`, `who or whom`."""
    small = [
        t.role is Role.FUNCTION
        and t.text not in lex.articles
        and t.text not in lex.conjunctions
        and t.text not in lex.markers
        for t in found
    ]
    done: list[Token] = []
    for i, token in enumerate(found):
        beside = any(
            0 <= i + step < len(found)
            and 0 <= i + 2 * step < len(found)
            and found[i + step].text in lex.conjunctions
            and small[i + 2 * step]
            for step in (1, -1)
        )
        if small[i] and (token.marker == "between" or beside):
            token = replace(token, role=Role.CONTENT, keys=token.keys | {f"word {token.text}"})
        done.append(token)
    return done


_NONE: frozenset[str] = frozenset()
Meaning = tuple[str, frozenset[str], Role, frozenset[str]]


def _meaning(piece: Piece, lex: Lexicon) -> Meaning:
    """Text, keys, role and related forms of a piece."""
    word = piece.text
    if piece.kind == "number":
        return word, frozenset((f"#{piece.value}",)), Role.NUMBER, _NONE
    if piece.kind in ("date", "clock"):
        return word, frozenset((f"@{piece.value}",)), Role.DATE, _NONE
    if piece.kind == "sign" and word in "&/":
        return word, frozenset((word,)), Role.FUNCTION, _NONE
    if piece.kind in ("url", "op", "sign", "name", "mixed"):
        return word, frozenset((word,)), Role.CONTENT, _NONE
    if piece.kind == "ordinal" or word in lex.ordinals:
        number = piece.value if piece.kind == "ordinal" else lex.ordinals[word]
        return word, frozenset((word, f"#{number}th")), Role.SCOPE if word in lex.scope else Role.CONTENT, _NONE
    return _word(word, lex)


@lru_cache(maxsize=1 << 15)
def _word(word: str, lex: Lexicon) -> Meaning:
    if word in lex.function or word in lex.negators or word in lex.question_words:
        return word, frozenset((word,)), Role.FUNCTION, _NONE
    found = forms(word, lex)
    if word.endswith("'s") and len(word) > 4:
        owner = forms(word[:-2], lex)
        found = Forms((*found.base, *owner.base), found.keys | owner.keys, found.related | owner.related)
    if word in lex.scope:
        role = Role.SCOPE
    elif any(form in lex.light for form in found.base):
        role = Role.LIGHT
    elif any(form in lex.weak for form in found.base):
        role = Role.WEAK
    else:
        role = Role.CONTENT
    keys = found.keys
    if role is Role.CONTENT and word in units():
        keys |= {f"unit {name}" for name in units()[word]}
    return word, keys, role, found.related


def slots(found: Sequence[Token], lex: Lexicon) -> frozenset[str]:
    """What each clause asks for: its leading question word, or the opener of a yes-or-no question."""
    asked: set[str] = set()
    start, previous = True, ""
    for i, token in enumerate(found):
        word, follower = token.text, found[i + 1] if i + 1 < len(found) else None
        start = start or token.opens
        if word in lex.question_words:
            last = follower is None or follower.sentence != token.sentence
            if start or last or previous in lex.conjunctions or previous in lex.markers:
                asked.add(_slot(word, follower, lex))
                start = False
        elif start and word in lex.openers:
            asked.add(lex.openers[word])
            start = False
        elif token.role is not Role.FUNCTION or word in lex.persons:
            start = False
        previous = word
    return frozenset(asked)


def _slot(word: str, follower: Token | None, lex: Lexicon) -> str:
    """`how` before a quantity or a degree asks something else: `how many`, `how safe`."""
    if word in lex.degree_words and follower is not None and follower.role is not Role.FUNCTION:
        return "how_much" if follower.text in lex.quantity_words else "how_degree"
    return lex.question_words[word]
