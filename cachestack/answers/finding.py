"""What speaks against two answers being the same, and the two sentences in which it is looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cachestack.answers.overlap import share
from cachestack.answers.reading import Unit
from cachestack.semantic.text import Text
from cachestack.semantic.words import Role, Token


@dataclass(frozen=True, slots=True)
class Finding:
    """`certain`: the answers differ; else it is a reason not to call them the same."""

    kind: str
    certain: bool
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds for all pairs of sentences of two answers. `keys_x`: all words of x; `prose_x`: x, folded."""

    keys_x: frozenset[str]
    keys_y: frozenset[str]
    prose_x: str
    prose_y: str
    asked: frozenset[str]
    """The words of the question."""
    is_copied: bool
    """Whether the answers have sentences in common word for word."""
    language: str | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences that speak of the same. `least` and `most`: the smaller and the larger share of one's words that
    the other has."""

    x: Text
    y: Text
    unit_x: Unit
    unit_y: Unit
    least: float
    most: float


def pair_of(x: Text, y: Text, unit_x: Unit, unit_y: Unit) -> Pair:
    one, other = share(x, y), share(y, x)
    return Pair(x, y, unit_x, unit_y, min(one, other), max(one, other))


def alone(tokens: Iterable[Token], others: frozenset[str]) -> list[str]:
    """The words that carry meaning and are not among `others`, in no form."""
    return [
        t.text for t in tokens if t.role is Role.CONTENT and others.isdisjoint(t.keys) and others.isdisjoint(t.related)
    ]
