"""The numbers, dates and times that an answer names, and which of them one answer alone names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from cachestack.answers.digits import WORKING_DAYS
from cachestack.semantic.lexicon.units import COUNTED
from cachestack.semantic.numbers import decimal, quantities
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token, frequency

Relation = Literal["equal", "contrary", "apart"]
"""`apart`: of different things, so that neither speaks against the other."""
_MORE_UNITS = {
    "mile": ("meter", "1609.344"),
    "foot": ("meter", "0.3048"),
    "inch": ("meter", "0.0254"),
    "yard": ("meter", "0.9144"),
    "pound": ("gram", "453.59237"),
    "ounce": ("gram", "28.349523"),
    "gallon": ("liter", "3.785412"),
}
_WITH_CENTS = ("usd", "eur", "cad", "aud", "chf")
_ROUNDED = Decimal("0.02")
"""Between two systems of measures (a mile, 1.6 km) numbers are rounded; within one they are not."""
_MONTHS_DAYS = Decimal("0.02")
"""Four weeks and a month differ by more, 30 days and a month by less."""
_FULL = re.compile(r"(\d*)-(\d+)-(\d*)")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::\d\d)?")
_ORDINAL = re.compile(r"(\d{1,9})(?:st|nd|rd|th|er|ère|e|ème|eme)")
_YEAR = re.compile(r"\d{4}")


@dataclass(frozen=True, slots=True)
class Quantity:
    """`values`: what it may stand for, by unit. `date`: of a date, its canonical form."""

    written: str
    values: frozenset[tuple[str, Decimal]]
    date: str = ""
    unit_names: frozenset[str] = frozenset()
    literal: str = ""


@lru_cache(maxsize=4096)
def quantity(token: Token) -> Quantity:
    if token.role is Role.DATE:
        value = token.value or token.text
        clock = _CLOCK.fullmatch(value)
        if clock:
            seconds = Decimal(int(clock[1]) * 3600 + int(clock[2]) * 60)
            times = {("second", seconds)} | ({("second", Decimal(86400))} if not seconds else set())
            return Quantity(token.text, frozenset(times), "", frozenset({"clock"}))
        if _YEAR.fullmatch(value):
            return Quantity(token.text, frozenset({("", Decimal(value))}), value)
        return Quantity(token.text, frozenset(), value)
    if not _is_decimal(token.value or ""):
        return Quantity(token.text, frozenset(), token.value or token.text)
    values = set(quantities(token.value or "", token.units))
    for name in token.units:
        if name in _MORE_UNITS:
            base, factor = _MORE_UNITS[name]
            values.add((base, decimal(token.value) * Decimal(factor)))
    if "cent" in token.units:
        values |= {(money, decimal(token.value) / 100) for money in _WITH_CENTS}
    return Quantity(token.text, frozenset(values), "", token.units, token.value or "")


def _is_decimal(value: str) -> bool:
    """20.11.1 is a version, no number."""
    return re.fullmatch(r"\d+(?:\.\d+)?", value) is not None


def named(texts: Iterable[Text]) -> list[Quantity]:
    """All numbers and dates of some sentences, in order; all days of `Monday to Friday`."""
    return [q for text in texts for q in _named(text)]


@lru_cache(maxsize=2048)
def _named(text: Text) -> tuple[Quantity, ...]:
    found: list[Quantity] = []
    tokens = text.tokens
    for i, token in enumerate(tokens):
        if token.text == WORKING_DAYS and not (i and tokens[i - 1].role is Role.NUMBER):
            found += map(_weekday, range(1, 6))
        elif token.text in ("weekend", "week-end", "weekends", "week-ends"):
            found += map(_weekday, (6, 7))
        elif token.role is Role.NUMBER and i + 1 < len(tokens) and tokens[i + 1].text == WORKING_DAYS:
            days = frozenset({("working day", decimal(token.value))})
            found.append(
                Quantity(f"{token.text} working days", days, "", frozenset({"working day"}), token.value or "")
            )
        elif token.text[:1].isdigit() and (ordinal := _ORDINAL.fullmatch(token.text)):
            found.append(Quantity(token.text, frozenset({("", Decimal(ordinal[1]))}), "", frozenset(), ordinal[1]))
        elif token.role is Role.NUMBER and not token.units and (unit := _unknown_unit(tokens, i + 1, text)):
            values = frozenset({(unit, decimal(token.value))})
            found.append(Quantity(f"{token.text} {unit}", values, "", frozenset({unit}), token.value or ""))
        elif token.role in (Role.NUMBER, Role.DATE):
            if (first := _day_number(token)) and i >= 1:
                before = next((_day_number(t) for t in tokens[max(0, i - 2) : i] if t.role is Role.DATE), None)
                joined = [t.text for t in tokens[max(0, i - 2) : i] if t.role is not Role.DATE]
                if before and before < first and all(word in _UNTIL for word in joined):
                    found += map(_weekday, range(before + 1, first))
            found.append(quantity(token))
    return tuple(found)


@lru_cache(maxsize=2048)
def implied(text: Text) -> tuple[Quantity, ...]:
    """What a unit alone says: `a month`, `daily`. Evidence that a number is named too, never against one."""
    names = {key[5:] for t in text.tokens for key in t.keys if key.startswith("unit ")}
    names |= {_EVERY[t.text] for t in text.tokens if t.text in _EVERY}
    return tuple(Quantity(f"a {n}", quantities("1", frozenset({n})), "", frozenset({n}), "1") for n in sorted(names))


def unit_words(text: Text) -> frozenset[str]:
    """The words of a sentence that are taken for units."""
    tokens = text.tokens
    return frozenset(
        tokens[i].text
        for i in range(1, len(tokens))
        if tokens[i - 1].role is Role.NUMBER and not tokens[i - 1].units and _unknown_unit(tokens, i, text)
    )


def _unknown_unit(tokens: Sequence[Token], i: int, text: Text) -> str | None:
    """A rare short word after a number, that no list of units has: `µg`, `mmol`, `rpm`."""
    if i >= len(tokens) or not _is_decimal(tokens[i - 1].value or ""):
        return None
    word = tokens[i].text
    if tokens[i].role is not Role.CONTENT or not 2 <= len(word) <= MAX_UNIT or not word.isalpha():
        return None
    if word in text.lexicon.siblings:
        return None
    return None if frequency(word, text.language) > KNOWN_WORD else _UNIT_NAMES.get(word, word)


MAX_UNIT = 4
KNOWN_WORD = 20_000
"""A word that is seen more often (of some 10^8) is no unit."""
_UNIT_NAMES = {"mcg": "μg", "ui": "iu"}
_EVERY = {"daily": "day", "weekly": "week", "monthly": "month", "yearly": "year", "annual": "year", "annually": "year"}
_EVERY |= {"quotidien": "day", "hebdomadaire": "week", "mensuel": "month", "annuel": "year", "mensuelle": "month"}
_UNTIL = frozenset(["to", "through", "thru", "until", "till", "au", "à", "a", "jusque", "the", "le"])


def _day_number(token: Token) -> int | None:
    value = token.value or ""
    return int(value[8:]) if token.role is Role.DATE and value.startswith("weekday ") else None


def _weekday(number: int) -> Quantity:
    return Quantity(f"weekday {number}", frozenset(), f"weekday {number}")


def relation(a: Quantity, b: Quantity) -> Relation:
    """Equal, contrary (of one unit, or both without, and different), or of different things."""
    if a.date or b.date:
        return _dates(a, b)
    if "clock" in a.unit_names | b.unit_names and not (a.unit_names and b.unit_names):
        return "equal" if _hours(a) & _hours(b) else "apart"
    contrary = False
    for unit, one in a.values:
        for other_unit, other in b.values:
            if unit != other_unit:
                continue
            if one == other or (a.unit_names != b.unit_names and _close(one, other)):
                return "equal"
            contrary = True
    if contrary:
        return "contrary"
    if not a.unit_names or not b.unit_names or "degree" in a.unit_names | b.unit_names:
        # `12` and `12 items`: the same; `12` and `13 items` may be two things.
        return "equal" if decimal(a.literal) == decimal(b.literal) and a.literal and b.literal else "apart"
    alike = a.literal and a.literal == b.literal and a.unit_names.isdisjoint(b.unit_names)
    return "contrary" if alike and counts_something(a) and counts_something(b) else "apart"


def _hours(q: Quantity) -> set[Decimal]:
    """Of a clock time the hour, by 12 and by 24; of a bare number itself."""
    if "clock" not in q.unit_names:
        return {value for _, value in q.values}
    hours = {value / 3600 for _, value in q.values}
    return hours | {hour - 12 for hour in hours if hour > 12}


def bare_contrary(a: Quantity, b: Quantity) -> bool:
    """For two lone numbers, of which one may lack its unit."""
    return relation(a, b) == "contrary" or (
        relation(a, b) == "apart" and bool(a.literal and b.literal) and decimal(a.literal) != decimal(b.literal)
    )


def _close(one: Decimal, other: Decimal) -> bool:
    return abs(one - other) <= _ROUNDED * max(abs(one), abs(other))


def _dates(a: Quantity, b: Quantity) -> Relation:
    if not (a.date and b.date):
        return "apart"
    if a.date == b.date:
        return "equal"
    if "/" in a.date or "/" in b.date:
        return "equal" if _readings(a.date) & _readings(b.date) else "contrary"
    first, second = _FULL.fullmatch(a.date), _FULL.fullmatch(b.date)
    if first and second:
        same = all(x == y or not x or not y for x, y in zip(first.groups(), second.groups(), strict=True))
        return "equal" if same else "contrary"
    for full, plain in ((first, b.date), (second, a.date)):
        if full and _YEAR.fullmatch(plain):
            return "apart" if not full[1] else "equal" if full[1] == plain else "contrary"
    return "contrary" if _shape(a.date) == _shape(b.date) else "apart"


def _readings(date: str) -> set[str]:
    """`01/03/2025` is in January or in March."""
    parts = date.split("/")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        full = _FULL.fullmatch(date)
        return {date, f"-{full[2]}-{full[3]}"} if full else {date}
    first, second, year = (int(part) for part in parts)
    year += 2000 if year < 100 else 0
    return {f"{y}-{m}-{d}" for y in (year, "") for m, d in ((first, second), (second, first))}


def _shape(date: str) -> str:
    if _YEAR.fullmatch(date):
        return "year"
    return "version" if re.fullmatch(r"\d+(?:\.\d+)+", date) else date.partition(" ")[0]


def lone(ours: Sequence[Quantity], theirs: Sequence[Quantity]) -> list[Quantity]:
    """Those that have no equal on the other side."""
    return [q for q in ours if not any(relation(q, other) == "equal" for other in theirs)]


def contradiction(ours: Sequence[Quantity], theirs: Sequence[Quantity]) -> tuple[Quantity, Quantity] | None:
    """Two numbers of one kind that each side has alone."""
    left = list(theirs)
    for a in ours:
        for b in left:
            if relation(a, b) == "contrary":
                return a, b
    return None


def counts_something(q: Quantity) -> bool:
    """Whether a number has a unit of measure, money or time, and not `times` or `pages`."""
    return bool(q.unit_names - COUNTED)


def equal_numbers(ours: Iterable[Text], theirs: Iterable[Text]) -> frozenset[str]:
    """The keys of our numbers and dates that the others say too, maybe in another unit."""
    said = named(theirs)
    tokens = [t for text in ours for t in text.tokens if t.role in (Role.NUMBER, Role.DATE)]
    return frozenset(key for t in tokens if not lone([quantity(t)], said) for key in t.keys)
