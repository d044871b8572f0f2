"""From candidates to a decision: guards, verifiers, thresholds. No I/O, no clock of its own; a verifier that takes
time is asked for through an effect.

::

    cosine below reject_below ─→ never
    a guard that is certain   ─→ never; one in doubt, where nothing else differs ─→ never
    the local score:     doubt_score            accept_score
    ─────────────────────────┼──────────────────────┼──────────────
              never          │  the next verifier   │   served

A `sensitive` scope is served from `accept_from` of cosine on only, and only where no guard has even a doubt.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cachestack.decisions import Best, Hit, Miss, Reason
from cachestack.effects import Verify
from cachestack.entries import Candidate, Entry
from cachestack.policy import FallbackPolicy, SemanticPolicy
from cachestack.semantic.guards import Verdict, judge
from cachestack.semantic.minimal import only_difference
from cachestack.semantic.text import Text, analyse
from cachestack.semantic.verifiers.base import Agreement, Side, Verifier
from cachestack.semantic.verifiers.lexical import LexicalVerifier
from cachestack.semantic.verifiers.local import LocalVerifier

FIRST: Mapping[str, Verifier] = {"local": LocalVerifier(), "lexical": LexicalVerifier()}
"""The verifiers that are asked in place, by the policy's name; all others are asked for through an effect."""
MAX_CHARACTERS = 2_000
"""A longer text is not served by meaning: reading it would cost more than it saves, and a tokenizer's window alone does
not bound its length (one unknown word of any length is one token)."""
MAX_ASKED = 2
"""For how many candidates the verifiers after the first are asked: they take their time."""

Decision = Hit[Entry] | Miss


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked now: the last message's text, its language (ISO 639-1) or None where unknown, and its packed token
    states, or empty."""

    text: str
    language: str | None
    states: bytes = b""


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A candidate whose score lies between the thresholds."""

    candidate: Candidate
    score: float
    facts: dict[str, Any]


def decide(
    query: Query,
    candidates: Sequence[Candidate],
    policy: SemanticPolicy,
    fallback: FallbackPolicy,
    now_s: float,
    max_age_s: float = math.inf,
    verifier: Verifier | None = None,
) -> Generator[Verify, Agreement, Decision]:
    """The first candidate that is let through; if none is, of those in doubt the first that a further verifier agrees
    to. `verifier` is asked in place of the first that the policy names.

    `candidates` come best first. A miss gives the reason of the nearest live candidate, what stood in its way, and
    the best of those in doubt.
    """
    near = [c for c in candidates if c.similarity >= policy.reject_below]
    live = [c for c in near if c.entry.is_live(now_s, max_age_s)]
    if not near:
        return _too_far(candidates)
    if not live:
        return Miss(Reason.EXPIRED, _facts(near[0], now_s))
    first = verifier or (FIRST[policy.verifiers[0]] if policy.verifiers else None)
    refusals: dict[str, Miss] = {}
    doubts: list[_Doubt] = []
    for candidate in live:
        found = _one(query, candidate, policy, now_s, first)
        if isinstance(found, Hit):
            return found
        if isinstance(found, _Doubt):
            doubts.append(found)
            refusals[candidate.entry.entry_id] = Miss(Reason.NOT_VALIDATED, found.facts | {"in_doubt": True})
        else:
            refusals[candidate.entry.entry_id] = found
    for doubt in sorted(doubts, key=lambda d: -d.score)[:MAX_ASKED]:
        decision = yield from _second_opinion(query, doubt, policy, fallback)
        if isinstance(decision, Hit):
            return decision
        refusals[doubt.candidate.entry.entry_id] = decision
    refusal = refusals[live[0].entry.entry_id]
    if not doubts:
        return refusal
    nearest = max(doubts, key=lambda d: d.score)
    return replace(refusal, best=Best(nearest.candidate.entry, nearest.score))


def _too_far(candidates: Sequence[Candidate]) -> Miss:
    known = [c for c in candidates if math.isfinite(c.similarity)]
    if not known:
        return Miss(Reason.NO_ENTRY)
    best = max(known, key=lambda c: c.similarity)
    return Miss(Reason.BELOW_THRESHOLD, {"similarity": round(best.similarity, 4), "entry_id": best.entry.entry_id})


def _one(
    query: Query, candidate: Candidate, policy: SemanticPolicy, now_s: float, verifier: Verifier | None
) -> Decision | _Doubt:
    facts = _facts(candidate, now_s)
    is_close = candidate.similarity >= policy.accept_from
    if policy.sensitive and not is_close:
        return Miss(Reason.SENSITIVE_SCOPE, facts)
    if max(len(candidate.entry.question), len(query.text)) > MAX_CHARACTERS:
        return Miss(Reason.GUARD_REJECTED, {"guard": "length", "max_characters": MAX_CHARACTERS} | facts)
    try:
        cached, asked = _analysed(candidate.entry, query)
        verdicts = judge(cached, asked)
    except Exception as failure:  # fail closed: what could not be read was not seen to be safe
        error = f"{type(failure).__name__}: {failure}"
        return Miss(Reason.GUARD_REJECTED, {"guard": "reading", "evidence": {"error": error}} | facts)
    rejection = _rejection(cached, asked, verdicts, policy)
    if rejection is not None:
        why = {"guard": rejection.kind, "certain": rejection.certain, "evidence": dict(rejection.evidence)}
        return Miss(Reason.GUARD_REJECTED, why | facts)
    facts |= {"band": "accept" if is_close else "validate", "guards_passed": sum(v.passed for v in verdicts)}
    facts |= {"doubts": [v.kind for v in verdicts if not v.passed]} if not all(v.passed for v in verdicts) else {}
    if verifier is None or not policy.verifiers:
        return Hit(Reason.SIMILAR, candidate.entry, facts) if is_close else Miss(Reason.NOT_VALIDATED, facts)
    return _scored(candidate, Side(cached, candidate.entry.states), Side(asked, query.states), facts, policy, verifier)


def _rejection(cached: Text, asked: Text, verdicts: tuple[Verdict, ...], policy: SemanticPolicy) -> Verdict | None:
    """A certain one first; in a sensitive scope, or where no verifier weighs them, or where the texts differ in nothing
    else, a doubt is enough."""
    refused = [v for v in verdicts if not v.passed and not (policy.cross_language and v.kind == "language")]
    certain = next((v for v in refused if v.certain), None)
    strict = policy.sensitive or not policy.verifiers
    if certain is not None or (refused and strict):
        return certain or refused[0]
    return only_difference(cached, asked, refused)


def _scored(
    candidate: Candidate,
    cached: Side,
    asked: Side,
    facts: dict[str, Any],
    policy: SemanticPolicy,
    verifier: Verifier,
) -> Decision | _Doubt:
    """What the first verifier says; one that fails does not agree."""
    try:
        agreement = verifier.verify(cached, asked, candidate.similarity)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
        return Miss(Reason.NOT_VALIDATED, facts | {"verifier": {"name": verifier.name, "error": error}})
    facts = facts | {"verifier": _said(verifier.name, agreement, policy)}
    if _refuses(agreement, policy):
        return Miss(Reason.NOT_VALIDATED, facts)
    if agreement.agrees or agreement.score >= policy.accept_score:
        return Hit(Reason.VALIDATED, candidate.entry, facts)
    return _Doubt(candidate, agreement.score, facts)


def _second_opinion(
    query: Query, doubt: _Doubt, policy: SemanticPolicy, fallback: FallbackPolicy
) -> Generator[Verify, Agreement, Decision]:
    """The next verifiers in the policy's order, until one is sure. One that fails does not agree."""
    entry, facts = doubt.candidate.entry, doubt.facts
    for name in policy.verifiers[1:]:
        said = yield Verify(name, entry.question, query.text, doubt.score, policy.verifier_deadline_ms / 1000)
        facts = facts | {"before": facts["verifier"], "verifier": _said(name, said, policy)}
        if _refuses(said, policy):
            return Miss(Reason.NOT_VALIDATED, facts)
        if said.agrees or said.score >= policy.accept_score:
            return Hit(Reason.VALIDATED, entry, facts)
    facts = facts | {"in_doubt": True}
    if fallback.semantic_doubt == "serve":
        return Hit(Reason.VALIDATED, entry, facts)
    return Miss(Reason.NOT_VALIDATED, facts)


def _refuses(said: Agreement, policy: SemanticPolicy) -> bool:
    """Also where the score is no number from 0 to 1: what cannot be read is not agreement."""
    return said.agrees is False or not policy.doubt_score <= said.score <= 1


def _said(name: str, said: Agreement, policy: SemanticPolicy) -> dict[str, Any]:
    score = round(said.score, 4) if math.isfinite(said.score) else None
    thresholds = {"accept_score": policy.accept_score, "doubt_score": policy.doubt_score}
    return {"name": name, "score": score, **thresholds, **said.evidence}


def _analysed(entry: Entry, query: Query) -> tuple[Text, Text]:
    """Both texts. A language that is not known is taken to be the other's; where neither is, English word lists are
    read, which compares every word and finds no opposites of another language."""
    ours, theirs = entry.language or query.language, query.language or entry.language
    return _analyse(entry.question, ours), _analyse(query.text, theirs)


@lru_cache(maxsize=256)
def _analyse(text: str, language: str | None) -> Text:
    return analyse(text, language)


def _facts(candidate: Candidate, now_s: float) -> dict[str, Any]:
    entry = candidate.entry
    return {
        "similarity": round(candidate.similarity, 4),
        "entry_id": entry.entry_id,
        "age_s": round(now_s - entry.created_at_s, 3),
    }


__all__ = ["MAX_CHARACTERS", "Query", "decide"]
