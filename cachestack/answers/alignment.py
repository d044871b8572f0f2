"""Which sentence of one answer speaks of what a sentence of the other speaks of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cachestack.answers.overlap import likeness
from cachestack.answers.reading import Answer, Unit, read
from cachestack.semantic.text import Text

Embed = Callable[[Sequence[str]], Any]
"""Texts → one vector of length 1 for each, in order: an array, or a sequence of them. None where it has none to give.
What it raises counts as none."""
MAX_UNITS = 40
MAX_CHARS = 16_000
"""Of the sentences that only one of the two answers has; of longer answers only these are compared."""
SPEAKS_OF_THE_SAME = 0.35


class TooLong(Exception):
    """More differs than is compared."""


@dataclass(frozen=True, slots=True)
class Side:
    """The sentences that the other answer does not have word for word. `texts`: the same, read."""

    units: tuple[Unit, ...]
    texts: tuple[Text, ...]
    whole: tuple[Text, ...]
    """All sentences of the answer."""
    inline: tuple[str, ...]
    """Its code between backquotes."""
    prose: str


@dataclass(frozen=True, slots=True)
class Aligned:
    """`pairs`: places in both sides, best partners of either. `cosines`: of each with each, or None."""

    x: Side
    y: Side
    pairs: tuple[tuple[int, int], ...]
    likenesses: tuple[tuple[float, ...], ...]
    cosines: Any | None


def align_answers(x: Answer, y: Answer, language: str | None, embed: Embed | None) -> Aligned:
    """Raises TooLong."""
    mine, its = _apart(x.units, y.units), _apart(y.units, x.units)
    for units in (mine, its):
        if len(units) > MAX_UNITS or sum(len(unit.raw) for unit in units) > MAX_CHARS:
            raise TooLong
    ours, theirs = _side(mine, x, language), _side(its, y, language)
    alike = tuple(tuple(likeness(a, b) for b in theirs.texts) for a in ours.texts)
    cosines = cosines_of([u.raw for u in mine], [u.raw for u in its], embed)
    return Aligned(ours, theirs, _pairs(alike, cosines), alike, cosines)


def _apart(units: Sequence[Unit], others: Sequence[Unit]) -> list[Unit]:
    """Those that the other has not; each counts as often as it is there."""
    left: dict[str, int] = {}
    for unit in others:
        left[unit.text] = left.get(unit.text, 0) + 1
    found = []
    for unit in units:
        if left.get(unit.text, 0):
            left[unit.text] -= 1
        else:
            found.append(unit)
    return found


def _side(units: Sequence[Unit], answer: Answer, language: str | None) -> Side:
    whole = tuple(read(unit.raw, language) for unit in _first(answer.units))
    texts = tuple(read(unit.raw, language) for unit in units)
    return Side(tuple(units), texts, whole, answer.parts.inline, answer.prose)


def _first(units: Sequence[Unit]) -> Sequence[Unit]:
    """As many as may be read whole."""
    left = 2 * MAX_CHARS
    for number, unit in enumerate(units[: 3 * MAX_UNITS]):
        left -= len(unit.raw)
        if left < 0:
            return units[:number]
    return units[: 3 * MAX_UNITS]


def cosines_of(ours: list[str], theirs: list[str], embed: Embed | None) -> Any | None:
    if embed is None or not ours or not theirs:
        return None
    import numpy as np

    try:
        made = embed([*ours, *theirs])
        if made is None:
            return None
        vectors = np.asarray(made, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(ours) + len(theirs) or not np.isfinite(vectors).all():
            return None
        return vectors[: len(ours)] @ vectors[len(ours) :].T
    except Exception:  # whatever an encoder raises: what is known without it is still known
        return None


def _pairs(alike: tuple[tuple[float, ...], ...], cosines: Any | None) -> tuple[tuple[int, int], ...]:
    if not alike or not alike[0]:
        return ()
    closeness = [list(row) for row in alike]
    if cosines is not None:
        closeness = [
            [0.5 * value + 0.5 * max(0.0, float(cosines[i][j])) for j, value in enumerate(row)]
            for i, row in enumerate(closeness)
        ]
    rows, columns = range(len(closeness)), range(len(closeness[0]))
    found = {(i, max(columns, key=closeness[i].__getitem__)) for i in rows}
    found |= {(max(rows, key=lambda i: closeness[i][j]), j) for j in columns}
    if len(closeness) == 1 and len(closeness[0]) == 1:
        return ((0, 0),)
    return tuple(sorted((i, j) for i, j in found if closeness[i][j] >= SPEAKS_OF_THE_SAME))
