"""Dates and times put together: `18 March 2019`, `March 18, 2019` and `2019-03-18` are one token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cachestack.semantic.lexicon.base import Lexicon

if TYPE_CHECKING:
    from cachestack.semantic.reading import Piece

_ISO = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{2,4})")
_YEAR = re.compile(r"(?:1[5-9]|20|21)\d\d")
_DECADE = re.compile(r"((?:1[5-9]|20)?\d0)s")


def merge(split: Sequence[Piece], lex: Lexicon) -> list[Piece]:
    """Dates, clock times and weekdays become pieces of kind `date` with a canonical value."""
    done: list[Piece] = []
    i = 0
    while i < len(split):
        piece = split[i]
        end, value = i, None
        if piece.kind == "date":
            end, value = i + 1, _numeric(piece.text)
        elif piece.kind == "clock":
            end, value = _clock(split, i, piece.text.replace("h", ":"))
        elif piece.kind == "number" and i + 1 < len(split) and split[i + 1].text in ("am", "pm", "o'clock"):
            end, value = _clock(split, i, piece.value or "")
        elif _is_month(split, i, lex):
            end, value = _month(split, i, lex, done)
        elif piece.text in lex.weekdays and (piece.text not in lex.ambiguous_dates or _cued(split, i, lex)):
            end, value = i + 1, f"weekday {lex.weekdays[piece.text]}"
        elif piece.kind == "number" and not piece.units and _YEAR.fullmatch(piece.value or ""):
            end, value = i + 1, f"{piece.value}"
        elif piece.kind == "mixed" and (m := _DECADE.fullmatch(piece.text)):
            end, value = i + 1, f"{m[1]}s"
        if value is None:
            done.append(piece)
            i += 1
        else:
            text = " ".join(p.text for p in split[i:end])
            done.append(replace(piece, kind="date", text=text, value=value, units=frozenset()))
            i = end
    return done


def _numeric(text: str) -> str:
    if m := _ISO.fullmatch(text):
        return f"{m[1]}-{int(m[2])}-{int(m[3])}"
    m = _SLASHED.fullmatch(text)
    if m is None:
        return text
    first, second = int(m[1]), int(m[2])
    year = m[3] if len(m[3]) == 4 else "20" + m[3]
    if first > 12:
        return f"{year}-{second}-{first}"
    return f"{year}-{first}-{second}" if second > 12 else text


def _clock(split: Sequence[Piece], i: int, time: str) -> tuple[int, str]:
    hour, _, rest = time.partition(":")
    half = split[i + 1].text if i + 1 < len(split) else ""
    end = i + 2 if half in ("am", "pm", "o'clock") else i + 1
    if half in ("am", "pm") and hour.isdigit():
        hour = str(int(hour) % 12 + (12 if half == "pm" else 0))
    return end, f"{int(hour) if hour.isdigit() else hour}:{rest or '00'}"


def _cued(split: Sequence[Piece], i: int, lex: Lexicon) -> bool:
    """Whether an ambiguous name stands where a date would."""
    before = split[i - 1] if i else None
    after = split[i + 1] if i + 1 < len(split) else None
    if after is not None and after.kind in ("number", "ordinal", "date"):
        return True
    return before is not None and (before.kind in ("number", "ordinal") or before.text in lex.date_cues)


def _is_month(split: Sequence[Piece], i: int, lex: Lexicon) -> bool:
    word = split[i].text
    return word in lex.months and (word not in lex.ambiguous_dates or _cued(split, i, lex))


def _month(split: Sequence[Piece], i: int, lex: Lexicon, done: list[Piece]) -> tuple[int, str]:
    """Month with the day and year around it; a day already in `done` is taken back."""
    month, day, year, end = lex.months[split[i].text], "", "", i + 1
    if done and done[-1].kind in ("number", "ordinal") and not done[-1].units and _is_day(done[-1].value):
        day = done.pop().value or ""
    elif len(done) > 1 and done[-1].text in ("of", "de") and done[-2].kind == "ordinal":
        day = done[-2].value or ""
        del done[-2:]
    elif end < len(split) and split[end].kind in ("number", "ordinal") and _is_day(split[end].value):
        day, end = split[end].value or "", end + 1
    after = end + 1 if end < len(split) and split[end].text == "," else end
    if after < len(split) and split[after].kind == "number" and _YEAR.fullmatch(split[after].value or ""):
        year, end = split[after].value or "", after + 1
    return end, f"{year}-{month}-{day}"


def _is_day(value: str | None) -> bool:
    return value is not None and value.isdigit() and 1 <= int(value) <= 31
