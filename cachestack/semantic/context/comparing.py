"""Whether what one question leaned on is what another one leans on.

::

    standing instructions, texts given, traits ─→ must be equal where they matter
    neither leans on its history               ─→ equal
    the history of both, exchange by exchange:
      the same facts                           ─→ equal
      some on one side only                    ─→ equal where those are nobody's matter
      told otherwise                           ─→ equal where enough is shared and nothing contradicts
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cachestack.semantic.context.kept import Context, Exchange, Fact
from cachestack.semantic.context.leaning import Leaning

SHARED = 0.6
"""Of the facts of the shorter of two stories, weighted, that the other must have where both are told otherwise."""
SHARED_LONGER = 0.45
A_STORY = 6.0
"""Weight of what is told, from which on two tellings can be seen to be of the same."""
TOUCHES = 1.0
TOUCHED_SHARE = 0.25
"""Weight of what a question shares with earlier turns, and part of its own weight, from which on they were about the
same."""
LINKED = 2.0
"""The same of two exchanges: one shop's customers have many words in common."""
ALIKE = 0.6
"""Two exchanges that share so much are one, edited: whatever differs then was put in another's place."""
WEIGHTS = {"common": 0.5, "word": 1.0, "rare": 2.0, "name": 3.0, "number": 2.0, "date": 2.0, "whole": 4.0}


IMPERSONAL = frozenset({"tool", "device"})
"""Traits that a question may take for granted without a word of the asker."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Whether two questions lean on the same. `kind` is one word for why: `stands_alone`, `same_facts`,
    `told_otherwise`, or what differs. `evidence` says what was found, in the words of who asks now alone."""

    same: bool
    kind: str
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """A last turn: how it leans, its own facts, what was before it, and which traits it names itself."""

    leaning: Leaning
    facts: tuple[Fact, ...]
    context: Context
    named: frozenset[tuple[str, str]] = frozenset()


def compared(cached: Turn, asked: Turn) -> Meeting:
    """Whether the answer to one serves the other as far as their histories go. Symmetric but for the evidence."""
    a, b = cached.context, asked.context
    if a.is_unread or b.is_unread:
        return _different("unread")
    if a.standing != b.standing:
        return _different("instructions", {"cached": len(a.standing), "asked": len(b.standing)})
    if a.passages != b.passages:
        return _different("passage", {"cached": len(a.passages), "asked": len(b.passages)})
    leans = _leans(cached) or _leans(asked)
    traits = _traits(cached, asked, bool(leans))
    if traits is not None:
        return traits
    if not leans:
        return Meeting(True, "stands_alone")
    return _leaning(cached, asked, leans)


def _different(kind: str, evidence: dict[str, Any] | None = None) -> Meeting:
    return Meeting(False, kind.replace(" ", "_"), evidence or {})


def _leans(turn: Turn) -> str:
    """Why it leans on its history, or empty."""
    if not turn.context.exchanges and not turn.context.older:
        return ""
    if not turn.leaning.alone:
        return turn.leaning.why
    if turn.context.asked_back and turn.leaning.remarks:
        return "was asked back"
    enough = max(TOUCHES, TOUCHED_SHARE * _weight(turn.facts))
    if _weight(_spoken_of(turn, turn.context.exchanges)) >= enough:
        return "spoken of before"
    claims = [exchange for exchange in turn.context.exchanges if exchange.claims]
    return "said to be so" if _weight(_spoken_of(turn, claims)) >= TOUCHES else ""


def _spoken_of(turn: Turn, exchanges: Iterable[Exchange]) -> list[Fact]:
    """Facts of the question that these exchanges have too."""
    ids = {i for exchange in exchanges for fact in exchange.facts for i in fact.ids}
    return [fact for fact in turn.facts if not ids.isdisjoint(fact.ids)]


def _traits(cached: Turn, asked: Turn, leans: bool) -> Meeting | None:
    """What askers say of themselves matters where the question is about them, or leans on anything."""
    a, b = cached.context.traits, asked.context.traits
    if a == b:
        return None
    is_personal = cached.leaning.is_personal or asked.leaning.is_personal
    is_a_way = cached.leaning.is_a_way or asked.leaning.is_a_way
    both = {kind for kind, _ in a} & {kind for kind, _ in b}
    named = {kind for kind, _ in cached.named | asked.named}
    differing = {
        (kind, said)
        for kind, said in a ^ b
        if kind not in named
        and ((leans and kind in both) or (not leans and (is_a_way if kind in IMPERSONAL else is_personal)))
    }
    return _different("traits", {"classes": sorted({kind for kind, _ in differing})}) if differing else None


def _leaning(cached: Turn, asked: Turn, why: str) -> Meeting:
    a, b = cached.context, asked.context
    if a.older != b.older:
        return _different("older turns", {"leans": why})
    answers = cached.leaning.answers or asked.leaning.answers
    if answers and not _alike(a.asked_back, b.asked_back):
        return _different("asked back", {"asked": _texts(b.asked_back)})
    if (cached.leaning.orders or asked.leaning.orders) and _last(a) != _last(b):
        return _different("order", {"leans": why})
    ours, theirs = _without_equals(a.exchanges, b.exchanges)
    if not ours and not theirs:
        return Meeting(True, "same_facts", {"leans": why})
    if not ours or not theirs:
        rest, full, turn = (ours, a, cached) if ours else (theirs, b, asked)
        one_sided = {kind for kind, _ in a.traits ^ b.traits} - IMPERSONAL if turn.leaning.is_personal else set()
        return _beside(rest, full, turn, one_sided, why)
    if len(ours) < len(a.exchanges):
        return _different("edited", {"leans": why})
    return _told_otherwise(ours, theirs, a, b, why)


def _without_equals(a: Sequence[Exchange], b: Sequence[Exchange]) -> tuple[list[Exchange], list[Exchange]]:
    """What is left when exchanges with the same facts are taken out of both."""
    ours, theirs = [], list(b)
    for exchange in a:
        same = next((other for other in theirs if _equal(exchange, other)), None)
        if same is None:
            ours.append(exchange)
        else:
            theirs.remove(same)
    return ours, theirs


def _equal(a: Exchange, b: Exchange) -> bool:
    return a.order == b.order


def _last(context: Context) -> str:
    return context.exchanges[-1].order if context.exchanges else ""


def _unmatched(a: Iterable[Fact], b: Iterable[Fact]) -> tuple[list[Fact], list[Fact]]:
    a, b = list(a), list(b)
    ids_a, ids_b = {i for f in a for i in f.ids}, {i for f in b for i in f.ids}
    return [f for f in a if ids_b.isdisjoint(f.ids)], [f for f in b if ids_a.isdisjoint(f.ids)]


def _alike(a: Sequence[Fact], b: Sequence[Fact]) -> bool:
    ours, theirs = _unmatched(a, b)
    return not ours and not theirs


def _beside(rest: Sequence[Exchange], full: Context, turn: Turn, one_sided: set[str], why: str) -> Meeting:
    """Exchanges that one side alone has: they do not matter where they are not the last, and share nothing with the
    question or the rest."""
    if one_sided:
        return _different("traits", {"leans": why, "classes": sorted(one_sided)})
    others = [x for x in full.exchanges if not any(x is r for r in rest)]
    touched = {i for x in others for f in x.facts for i in f.ids} | {i for f in turn.facts for i in f.ids}
    for exchange in rest:
        is_last = exchange is full.exchanges[-1]
        shared = [f for f in exchange.facts if not touched.isdisjoint(f.ids)]
        if is_last or not others or _weight(shared) >= LINKED:
            return _different("said on one side", {"leans": why, "last": is_last, "shared": _texts(shared)})
    return Meeting(True, "same_facts", {"leans": why, "beside": len(rest)})


def _told_otherwise(ours: Sequence[Exchange], theirs: Sequence[Exchange], a: Context, b: Context, why: str) -> Meeting:
    all_a = _facts(a.exchanges)
    all_b = _facts(b.exchanges)
    only_a, only_b = _unmatched(all_a, all_b)
    for kind in ("number", "date", "name", "whole"):
        left, right = ([fact for fact in some if fact.kind == kind] for some in (only_a, only_b))
        if left and right:
            return _different(kind, {"leans": why, "cached": len(left), "asked": _texts(right)})
    for one in ours:
        for other in theirs:
            if _shared(one.facts, other.facts)[1] >= ALIKE:
                left, right = _unmatched(one.facts, other.facts)
                return _different("edited", {"leans": why, "cached": len(left), "asked": _texts(right)})
    of_shorter, of_longer = _shared(all_a, all_b)
    enough = min(_weight(all_a), _weight(all_b)) >= A_STORY
    if not enough or of_shorter < SHARED or of_longer < SHARED_LONGER:
        return _different("another story", {"leans": why, "shared": round(of_shorter, 2)})
    return Meeting(True, "told_otherwise", {"leans": why, "shared": round(of_shorter, 2)})


def _facts(exchanges: Iterable[Exchange]) -> list[Fact]:
    return list({f.ids: f for x in exchanges for f in x.facts}.values())


def _shared(a: Sequence[Fact], b: Sequence[Fact]) -> tuple[float, float]:
    """The weighted share of facts that the other side has, of each side; the larger share first."""
    only_a, only_b = _unmatched(a, b)
    shares = [1 - _weight(only) / (_weight(all_) or 1.0) for only, all_ in ((only_a, a), (only_b, b))]
    return max(shares), min(shares)


def _weight(facts: Iterable[Fact]) -> float:
    return sum(WEIGHTS[f.kind] for f in facts)


def _texts(facts: Iterable[Fact]) -> list[str]:
    return [f.text for f in facts if f.text][:6]
