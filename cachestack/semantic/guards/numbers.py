"""Numbers, units, currencies, percentages: `2` is `two`, `$100` is `100 USD`, 30 minutes are not 30 hours."""

from __future__ import annotations

from decimal import Decimal

from cachestack.semantic.guards.base import Verdict, passed, rejected
from cachestack.semantic.guards.facing import facing
from cachestack.semantic.numbers import Quantity, decimal, quantities
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token

KIND = "numbers"
MAX_ROUNDED = Decimal("1.15")
"""Two quantities in two units (four weeks, a month) contradict each other only when they are further apart."""


def numbers(cached: Text, asked: Text) -> Verdict:
    """Rejects when a number has no equal on the other side. It is certain where two numbers of one unit, or without
    units, face each other, or the same number has another unit."""
    ours, theirs = _numbers(cached), _numbers(asked)
    if not ours and not theirs:
        return passed(KIND)
    alone, left, unsure = _matched(ours, theirs)
    if alone or left:
        conflict = _conflict(alone, left, cached, asked)
        if conflict:
            return rejected(KIND, [_written(conflict[0])], [_written(conflict[1])])
        return rejected(KIND, [_written(t) for t in alone], [_written(t) for t in left], certain=False)
    for a, b in unsure:
        if not _named_elsewhere(a, b, cached, asked):
            return rejected(KIND, _written(a), _written(b), certain=False)
    return passed(KIND)


def _matched(ours: list[Token], theirs: list[Token]) -> tuple[list[Token], list[Token], list[tuple[Token, Token]]]:
    """Numbers without an equal on either side, and equal numbers of which only one has a unit."""
    left = list(theirs)
    alone: list[Token] = []
    unsure: list[tuple[Token, Token]] = []
    for token in ours:
        match = next((t for t in left if _equal(token, t)), None)
        if match is None:
            match = next((t for t in left if _may_be_equal(token, t)), None)
            if match is not None:
                unsure.append((token, match))
        if match is None:
            alone.append(token)
        else:
            left.remove(match)
    return alone, left, unsure


def _conflict(alone: list[Token], left: list[Token], cached: Text, asked: Text) -> tuple[Token, Token] | None:
    """Two numbers that say different things of the same: in one gap, or alike but for the unit."""
    found = facing(cached, asked)
    if not found.shared or not alone or not left:
        return None
    mine, other = {id(t) for t in alone}, {id(t) for t in left}
    for gap in found.replaced():
        ours, theirs = [t for t in gap.cached if id(t) in mine], [t for t in gap.asked if id(t) in other]
        for a, b in zip(ours, theirs, strict=False):
            if _contradict(a, b):
                return a, b
    for a in alone:
        for b in left:
            if a.value == b.value and a.units and b.units:
                return a, b
    return None


def _equal(a: Token, b: Token) -> bool:
    """Without units to the letter: 3.10 is not 3.1 as a version."""
    if not a.units and not b.units:
        return a.value == b.value
    return not _meant(a).isdisjoint(_meant(b))


def _may_be_equal(a: Token, b: Token) -> bool:
    """Only one has a unit, or one says `degrees` only."""
    open_unit = bool(a.units) != bool(b.units) or "degree" in a.units | b.units
    return open_unit and decimal(a.value) == decimal(b.value)


def _contradict(a: Token, b: Token) -> bool:
    if a.units == b.units:
        return True
    if bool(a.units) != bool(b.units):
        return decimal(a.value) != decimal(b.value)
    apart = [_apart(x, y) for x in _meant(a) for y in _meant(b) if x[0] == y[0]]
    return all(ratio > MAX_ROUNDED for ratio in apart)


def _apart(x: Quantity, y: Quantity) -> Decimal:
    low, high = sorted((x[1], y[1]))
    return high / low if low > 0 else Decimal(2)


def _meant(token: Token) -> frozenset[Quantity]:
    return quantities(token.value or "", token.units)


def _numbers(text: Text) -> list[Token]:
    return [t for t in text.tokens if t.role is Role.NUMBER]


def _named_elsewhere(a: Token, b: Token, cached: Text, asked: Text) -> bool:
    """`banning 500 and 1000 notes` in a text that says `rupees` further on."""
    named, text = (a, asked) if a.units else (b, cached)
    keys = {f"unit {unit}" for unit in named.units}
    return any(not keys.isdisjoint(token.keys) for token in text.tokens) or any(
        not named.units.isdisjoint(token.units) for token in text.tokens
    )


def _written(token: Token) -> str:
    return f"{token.text} {'/'.join(sorted(token.units))}".strip()
