"""The guards, in the order in which they are asked: the cheap and certain ones first."""

from __future__ import annotations

from cachestack.semantic.guards.base import Guard, Verdict
from cachestack.semantic.guards.content import content, weak
from cachestack.semantic.guards.dates import dates
from cachestack.semantic.guards.identifiers import identifiers, quotations
from cachestack.semantic.guards.languages import languages
from cachestack.semantic.guards.negation import negation
from cachestack.semantic.guards.numbers import numbers
from cachestack.semantic.guards.opposites import opposites
from cachestack.semantic.guards.order import order
from cachestack.semantic.guards.person import person
from cachestack.semantic.guards.scope import modality, pointing, scope
from cachestack.semantic.guards.slot import slot
from cachestack.semantic.text import Text

GUARDS: tuple[Guard, ...] = (
    languages,
    quotations,
    identifiers,
    numbers,
    dates,
    negation,
    opposites,
    scope,
    modality,
    pointing,
    order,
    slot,
    person,
    content,
    weak,
)


def judge(cached: Text, asked: Text) -> tuple[Verdict, ...]:
    """What every guard says: all the evidence there is."""
    return tuple(guard(cached, asked) for guard in GUARDS)


def first_rejection(cached: Text, asked: Text) -> Verdict | None:
    """The first guard that rejects, or None. A guard that fails rejects: it could not see that the pair is safe."""
    for guard in GUARDS:
        try:
            verdict = guard(cached, asked)
        except Exception as failure:
            return Verdict(False, False, getattr(guard, "__name__", "guard"), {"error": repr(failure)})
        if not verdict.passed:
            return verdict
    return None


__all__ = [
    "GUARDS",
    "Guard",
    "Verdict",
    "content",
    "dates",
    "first_rejection",
    "identifiers",
    "judge",
    "languages",
    "modality",
    "negation",
    "numbers",
    "opposites",
    "order",
    "person",
    "pointing",
    "quotations",
    "scope",
    "slot",
    "weak",
]
