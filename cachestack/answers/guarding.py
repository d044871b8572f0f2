"""The guards' evidence, as it counts between two answers: an answer may say more, so that a word that only one side has
says nothing; two that exclude each other do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cachestack.answers.finding import Facts, Finding, Pair
from cachestack.semantic.guards.base import Guard, Verdict
from cachestack.semantic.guards.identifiers import identifiers
from cachestack.semantic.guards.names import names
from cachestack.semantic.guards.opposites import opposites
from cachestack.semantic.guards.order import order
from cachestack.semantic.guards.quantifiers import quantifiers
from cachestack.semantic.guards.siblings import siblings
from cachestack.semantic.text import Text

GUARDS: tuple[Guard, ...] = (identifiers, opposites, siblings, names, quantifiers, order)
DOUBTING = frozenset({"opposites", "siblings", "quantifiers", "identifiers", "guard"})
"""Guards whose doubts count; those of the others only say that a word is missing."""
OPPOSED = 0.5
"""Share of the words, both ways, from which on two opposites are a contradiction."""
_PAIRS = ("all none", "all only", "all half", "at_least at_most", "more less", "more fewer", "most few")
EXCLUSIVE = frozenset(frozenset(pair.split()) for pair in _PAIRS)


def guarded(pair: Pair, facts: Facts) -> Iterable[Finding]:
    for guard in GUARDS:
        verdict = _asked(guard, pair)
        if verdict.passed:
            continue
        x, y = verdict.evidence.get("cached"), verdict.evidence.get("asked")
        if not (x and y) or (verdict.kind == "quantifiers" and not _exclude(x, y)):
            continue
        certain = _is_certain(verdict, pair, facts, x, y)
        if certain or verdict.kind in DOUBTING:
            yield Finding(verdict.kind, certain, {"x": x, "y": y})


def _asked(guard: Guard, pair: Pair) -> Verdict:
    try:
        return guard(pair.x, pair.y)
    except Exception as failure:  # it could not see that the pair is safe
        return Verdict(False, False, "guard", {"cached": repr(failure), "asked": repr(failure)})


def _is_certain(verdict: Verdict, pair: Pair, facts: Facts, x: Any, y: Any) -> bool:
    if verdict.kind not in ("opposites", "siblings", "names"):
        return verdict.certain
    if not (verdict.certain or (verdict.kind == "opposites" and pair.least >= OPPOSED)):
        return False
    return _is_foreign(pair.x, x, facts.keys_y) and _is_foreign(pair.y, y, facts.keys_x)


def _is_foreign(text: Text, words: Any, others: frozenset[str]) -> bool:
    """Whether the other answer has none of these words anywhere."""
    wanted = {words} if isinstance(words, str) else set(words)
    return all(others.isdisjoint(t.keys) for t in text.tokens if t.text in wanted)


def _exclude(x: Iterable[str], y: Iterable[str]) -> bool:
    theirs = list(y)
    return any(frozenset((a, b)) in EXCLUSIVE for a in x for b in theirs)
