"""Numbers in digits and words, with the unit or currency beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING

from cachestack.semantic.lexicon.base import Lexicon
from cachestack.semantic.lexicon.units import COUNTED, MAGNITUDES, SIGNS, conversions, units

if TYPE_CHECKING:
    from cachestack.semantic.reading import Piece

_ATTACHED = re.compile(r"(\d+(?:[.,]\d+)*)([^\W\d_]+)")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th|er|ère|ere|e|ème|eme|è)")


def canonical(digits: str, lex: Lexicon) -> str:
    """`1,000` → `1000`; in French `1 000,50` → `1000.50`. Trailing zeros stay: 3.10 is not 3.1 as a version."""
    if lex.language == "fr":
        if re.fullmatch(r"\d{1,3}(?:[ .]\d{3})+(?:,\d+)?", digits):
            return digits.replace(" ", "").replace(".", "").replace(",", ".")
        if re.fullmatch(r"\d+,\d+", digits) and not re.fullmatch(r"[1-9]\d{0,2},\d{3}", digits):
            return digits.replace(",", ".")
    return digits.replace(",", "").replace(" ", "")


def merge(split: Sequence[Piece], lex: Lexicon) -> list[Piece]:
    """Number words to digits, numbers with their unit, `500 and 1000 rupees` with the unit on both."""
    return _shared_units(_with_units(_written_out(_attached(split, lex), lex)))


def _attached(split: Sequence[Piece], lex: Lexicon) -> list[Piece]:
    """`5kg`, `10k`, `2nd` apart; `1 000` together in French."""
    done: list[Piece] = []
    for piece in split:
        if piece.kind == "number":
            last = done[-1] if done else None
            if (
                lex.language == "fr"
                and last is not None
                and last.kind == "number"
                and re.fullmatch(r"\d{1,3}(?:000|\d{3})*", last.text)
                and re.fullmatch(r"\d{3}(?:,\d+)?", piece.text)
                and not last.text.startswith("0")
            ):
                joined = last.text + piece.text.replace(",", ".")
                done[-1] = replace(last, text=joined, value=joined)
                continue
            done.append(replace(piece, value=canonical(piece.text, lex)))
        elif piece.kind == "mixed" and (m := _ORDINAL.fullmatch(piece.text)):
            done.append(replace(piece, kind="ordinal", value=m[1]))
        elif piece.kind == "mixed" and (m := _ATTACHED.fullmatch(piece.text)):
            value = canonical(m[1], lex)
            if m[2] in ("am", "pm"):
                done.append(replace(piece, kind="number", text=m[1], value=value))
                done.append(replace(piece, kind="word", text=m[2]))
            elif m[2] in units() and not (m[2] in MAGNITUDES and m[2] != "m"):
                done.append(replace(piece, kind="number", value=value, units=units()[m[2]]))
            elif m[2] in MAGNITUDES:
                done.append(replace(piece, kind="number", value=_times(value, MAGNITUDES[m[2]])))
            else:
                done.append(piece)
        else:
            done.append(piece)
    return done


def _written_out(split: Sequence[Piece], lex: Lexicon) -> list[Piece]:
    """`twenty five`, `two hundred`, `10 million` as one number each."""
    done: list[Piece] = []
    i = 0
    while i < len(split):
        end, value = _number_at(split, i, lex)
        if end == i:
            done.append(split[i])
            i += 1
            continue
        text = " ".join(p.text for p in split[i:end])
        done.append(replace(split[i], kind="number", text=text, value=value))
        i = end
    return done


def _number_at(split: Sequence[Piece], start: int, lex: Lexicon) -> tuple[int, str]:
    """Where the number that starts at `start` ends, and its value; `start` itself where there is none."""
    total, current, i, spoken = Decimal(0), Decimal(0), start, False
    first = split[start]
    if first.kind == "number":
        if first.units or start + 1 >= len(split) or split[start + 1].text not in lex.multipliers:
            return start, ""
        current, i = decimal(first.value), start + 1
    while i < len(split):
        word = split[i].text
        if split[i].kind == "number" or split[i].kind == "stop":
            break
        if word in lex.number_words:
            value = lex.number_words[word]
            if spoken and not (current % 100 >= 20 and value < 20) and current % 100:
                break
            current += value
            spoken = True
        elif word in lex.multipliers and (i > start or word not in lex.weak_numbers):
            factor = lex.multipliers[word]
            current = (current or Decimal(1)) * factor
            if factor >= 1000:
                total, current = total + current, Decimal(0)
            spoken = True
        elif not (word in ("and", "et") and spoken and i + 1 < len(split) and _continues(split, i, lex)):
            break
        i += 1
    if i == start or (i == start + 1 and first.text in lex.weak_numbers and not _before_unit(split, i)):
        return start, ""
    return i, _plain(total + current)


def _continues(split: Sequence[Piece], i: int, lex: Lexicon) -> bool:
    """`hundred and five`, `vingt et un`: the `and` belongs to the number."""
    before, after = split[i - 1].text, split[i + 1].text
    if after not in lex.number_words:
        return False
    return before in lex.multipliers or (lex.language == "fr" and lex.number_words.get(before, 0) >= 20)


def _before_unit(split: Sequence[Piece], i: int) -> bool:
    return i < len(split) and split[i].text in units() and len(split[i].text) > 1


def _with_units(split: Sequence[Piece]) -> list[Piece]:
    done: list[Piece] = []
    i = 0
    table = units()
    while i < len(split):
        piece = split[i]
        if piece.kind != "number" or piece.units:
            done.append(piece)
            i += 1
            continue
        i += 1
        named: frozenset[str] = frozenset()
        # "100 €", "100 degrees celsius", "100 us dollars"
        while i < len(split) and split[i].text in table and split[i].kind in ("word", "sign", "mixed"):
            if named and "degree" not in named:
                break
            if _looks_like_year(piece) and not table[split[i].text].isdisjoint(COUNTED):
                break
            named = table[split[i].text]
            i += 1
        if not named and done and done[-1].text in SIGNS:
            named = table[done.pop().text]
            if i < len(split) and split[i].text in ("usd", "dollars", "dollar"):
                i += 1
        value = piece.value or ""
        if named:
            value = _plain(decimal(value))
        done.append(replace(piece, value=value, units=named))
    return done


def _looks_like_year(piece: Piece) -> bool:
    return re.fullmatch(r"(?:19|20)\d\d", piece.value or "") is not None


def _shared_units(split: list[Piece]) -> list[Piece]:
    """`500 and 1000 rupees`, `10-15 minutes`: the unit of the last holds for those before it."""
    for i in range(len(split) - 3, -1, -1):
        first, link, second = split[i], split[i + 1], split[i + 2]
        if (
            first.kind == second.kind == "number"
            and not first.units
            and second.units
            and link.text in ("and", "or", "to", "-", ",", "/", "&", "et", "ou", "à")
        ):
            split[i] = replace(first, units=second.units)
    return split


def _times(value: str, factor: int) -> str:
    return _plain(decimal(value) * factor)


def decimal(value: str | None) -> Decimal:
    """The number that `value` writes; 0 where it writes none."""
    try:
        return Decimal(value or "0")
    except InvalidOperation:
        return Decimal(0)


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


Quantity = tuple[str, Decimal]
"""A unit that others are converted to (empty for a bare number), and how many of it."""


@lru_cache(maxsize=1 << 14)
def quantities(value: str, named: frozenset[str]) -> frozenset[Quantity]:
    """What a number with these possible units can stand for: `2 hours` and `120 min` meet. A bare number has none."""
    number = decimal(value)
    if not named:
        return frozenset({("", number)})
    table = conversions()
    found = set()
    for name in named:
        base, factor = table.get(name, (name, Decimal(1)))
        found.add((base, number * factor))
    return frozenset(found)
