"""Sentences that are nearly the same: what stands in one instead, or is added as a condition, was put there on purpose.
All of these are doubts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cachestack.answers.finding import Facts, Finding, Pair, alone
from cachestack.answers.overlap import keys_of
from cachestack.semantic.guards.facing import facing

LAID = 0.6
"""Share of the shorter sentence that stands in the other in the same order."""
LIMITED = 0.8
"""Share of the words of either, from which on a limit that only one has is a doubt."""
REORDERED = 0.7
MAX_INVERTED = 0.4
MAX_WORDS = 40
_CONDITIONS = "if provided unless condition si pourvu sauf"
CONDITIONS = frozenset(_CONDITIONS.split())
_COMPARES = re.compile(
    r"\b(?:than|the \w{2,}est|most|least|before|after|first|last|then|from|versus|vs"
    r"|plus|moins|avant|après|premier|dernier|puis)\b"
)


def replaced(pair: Pair, facts: Facts) -> Iterable[Finding]:
    """Two answers that are the same but for a sentence, or two sentences but for a word."""
    if facts.is_copied:
        ours, theirs = alone(pair.x.matter, facts.keys_y), alone(pair.y.matter, facts.keys_x)
        if ours and theirs:
            yield Finding("replaced", False, {"x": ours[:6], "y": theirs[:6]})
            return
    laid = facing(pair.x, pair.y)
    if laid.shared < LAID:
        return
    for gap in laid.replaced():
        ours, theirs = alone(gap.cached, keys_of(pair.y)), alone(gap.asked, keys_of(pair.x))
        if ours and theirs:
            yield Finding("replaced", False, {"x": ours, "y": theirs})
            return


def limited(pair: Pair) -> Iterable[Finding]:
    """`It is free`, `It is free if you book online`."""
    if pair.most < LIMITED:
        return
    ours, theirs = ({t.text for t in text.tokens} & (text.lexicon.limits | CONDITIONS) for text in (pair.x, pair.y))
    if bool(ours) != bool(theirs):
        yield Finding("condition", False, {"x": sorted(ours), "y": sorted(theirs)})


def turned_round(pair: Pair) -> Iterable[Finding]:
    """The same words in another order, where something is compared: `A is faster than B`."""
    a, b = pair.x, pair.y
    if pair.least < REORDERED or not (_COMPARES.search(a.plain) and _COMPARES.search(b.plain)):
        return
    places = [next((j for j, t in enumerate(b.matter) if not t.keys.isdisjoint(s.keys)), None) for s in a.matter]
    found = [place for place in places if place is not None][:MAX_WORDS]
    pairs = [(i, j) for n, i in enumerate(found) for j in found[n + 1 :] if i != j]
    if pairs and sum(i > j for i, j in pairs) > MAX_INVERTED * len(pairs):
        yield Finding("order", False, {"x": a.plain[:80], "y": b.plain[:80]})
