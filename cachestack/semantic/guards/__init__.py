"""The guards, in the order in which they are asked: the cheap and certain ones first."""

from __future__ import annotations

from functools import lru_cache

from cachestack.semantic.guards.base import Guard, Verdict
from cachestack.semantic.guards.content import content, weak
from cachestack.semantic.guards.dates import dates
from cachestack.semantic.guards.feature_names import FEATURE_NAMES
from cachestack.semantic.guards.features import guard_name, pair_features, verdict_features
from cachestack.semantic.guards.identifiers import identifiers
from cachestack.semantic.guards.languages import languages
from cachestack.semantic.guards.names import names
from cachestack.semantic.guards.negation import negation
from cachestack.semantic.guards.numbers import numbers
from cachestack.semantic.guards.opposites import opposites
from cachestack.semantic.guards.order import order
from cachestack.semantic.guards.person import person
from cachestack.semantic.guards.quantifiers import quantifiers
from cachestack.semantic.guards.quotations import quotations
from cachestack.semantic.guards.scope import modality, pointing, scope
from cachestack.semantic.guards.siblings import siblings
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
    siblings,
    names,
    quantifiers,
)


@lru_cache(maxsize=64)
def judge(cached: Text, asked: Text) -> tuple[Verdict, ...]:
    """What every guard says: all the evidence there is. A guard that fails counts as a certain rejection.

    Pure; the last pairs are remembered, because a verifier asks again.
    """
    return tuple(_asked(guard, cached, asked) for guard in GUARDS)


def features(cached: Text, asked: Text, verdicts: tuple[Verdict, ...] | None = None) -> dict[str, float]:
    """The pair as numbers, in the order of FEATURE_NAMES; the same whichever text comes first.

    `verdicts`: what `judge` said of the pair, where that is known already.
    """
    verdicts = judge(cached, asked) if verdicts is None else verdicts
    found = verdict_features(verdicts, tuple(map(guard_name, GUARDS))) | pair_features(cached, asked)
    return {name: found[name] for name in FEATURE_NAMES}


def _asked(guard: Guard, cached: Text, asked: Text) -> Verdict:
    try:
        return guard(cached, asked)
    except Exception as failure:
        return Verdict(False, True, guard_name(guard), {"error": repr(failure)})


def first_rejection(cached: Text, asked: Text) -> Verdict | None:
    """The first guard that rejects, or None. A guard that fails rejects: it could not see that the pair is safe."""
    return next((v for v in (_asked(guard, cached, asked) for guard in GUARDS) if not v.passed), None)


def first_veto(cached: Text, asked: Text) -> Verdict | None:
    """The first guard that rejects with certainty, or None. A guard that fails vetoes."""
    verdicts = (_asked(guard, cached, asked) for guard in GUARDS)
    return next((v for v in verdicts if not v.passed and v.certain), None)


__all__ = [
    "FEATURE_NAMES",
    "GUARDS",
    "Guard",
    "Verdict",
    "content",
    "dates",
    "features",
    "first_rejection",
    "first_veto",
    "identifiers",
    "judge",
    "languages",
    "modality",
    "names",
    "negation",
    "numbers",
    "opposites",
    "order",
    "person",
    "pointing",
    "quantifiers",
    "quotations",
    "scope",
    "siblings",
    "slot",
    "weak",
]
