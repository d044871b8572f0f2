"""A text, analysed once, as the guards read it."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

from cachestack.semantic import reading
from cachestack.semantic.lexicon.base import Lexicon, lexicon
from cachestack.semantic.words import Role, Token, fold, squeeze


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """Compared by identity: `align` remembers the last pairs it saw."""

    raw: str
    language: str | None
    folded: str
    plain: str
    """After greetings, politeness and stock openings were taken out."""
    tokens: tuple[Token, ...]
    matter: tuple[Token, ...]
    """The tokens that are compared: all but grammar."""
    slots: frozenset[str]
    """What is asked for: `how`, `who`, `can`, … Empty for a text without a question or with none that is known."""
    code: tuple[str, ...]
    """Code between backquotes, letter case kept."""
    quoted: tuple[str, ...]
    """What stands between double quotes, folded."""
    lexicon: Lexicon = field(repr=False)


_CODE = re.compile(r"```(.+?)```|`([^`\n]+)`", re.DOTALL)
_QUOTED = re.compile(r'"+([^"]+?)"+')
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_DOTTED = re.compile(r"\b(?:[^\W\d_]\.)+[^\W\d_]\b\.?")


def analyse(text: str, language: str | None = None) -> Text:
    """Everything the guards need to know of one text. `language` chooses the word lists (None: English)."""
    lex = lexicon(language)
    code = tuple((m[1] or m[2]).strip() for m in _CODE.finditer(unicodedata.normalize("NFC", text)))
    folded = fold(_CODE.sub(" ", text)) if code else fold(text)
    quoted = tuple(m[1].strip(" .,!?") for m in _QUOTED.finditer(folded))
    plain = _plain(folded.replace('"', " "), lex)
    tokens = reading.tokens(plain, lex)
    return Text(
        raw=text,
        language=language,
        folded=folded,
        plain=plain,
        tokens=tokens,
        matter=tuple(t for t in tokens if t.role is not Role.FUNCTION),
        slots=reading.slots(tokens, lex),
        code=code,
        quoted=quoted,
        lexicon=lex,
    )


def _plain(text: str, lex: Lexicon) -> str:
    text = _DOTTED.sub(lambda m: _undotted(m[0]), text)
    text = _WORD.sub(lambda m: lex.spellings.get(m[0], m[0]), text)
    for pattern, replacement in lex.rewrites:
        text = pattern.sub(replacement, text)
    text = squeeze(text)
    for pattern, replacement in lex.frames:
        shorter = pattern.sub(replacement, text)
        if shorter is not text and any(c.isalnum() for c in shorter):
            text = squeeze(shorter)
    return text


def _undotted(word: str) -> str:
    letters = word.replace(".", "")
    return "usa" if letters == "us" else letters
