"""From candidates to a decision: bands, guards, verifier. Pure: no I/O, no clock of its own.

::

    similarity   reject_below          accept_from
    ─────────────────┼──────────────────────┼──────────────
        never        │  guards + verifier   │   guards
                     │  (never: sensitive)  │
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cachestack.decisions import Hit, Miss, Reason
from cachestack.entries import Candidate, Entry
from cachestack.policy import FallbackPolicy, SemanticPolicy
from cachestack.semantic.guards import GUARDS, first_rejection
from cachestack.semantic.text import Text, analyse
from cachestack.semantic.verify import Agreement, LexicalVerifier, Verifier

DEFAULT_VERIFIER = LexicalVerifier()
MAX_CHARACTERS = 2_000
"""A longer text is not served by meaning: reading it would cost more than it saves, and a tokenizer's window alone does
not bound its length (one unknown word of any length is one token)."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked now: the last message's text, and its language (ISO 639-1) or None where unknown."""

    text: str
    language: str | None


def decide(
    query: Query,
    candidates: Sequence[Candidate],
    policy: SemanticPolicy,
    fallback: FallbackPolicy,
    now_s: float,
    max_age_s: float = math.inf,
    verifier: Verifier = DEFAULT_VERIFIER,
) -> Hit[Entry] | Miss:
    """The first candidate that its band, the guards and, in the middle band, the verifier let through.

    `candidates` come best first. A miss gives the reason of the nearest live candidate, and what stood in its way.
    """
    near = [c for c in candidates if c.similarity >= policy.reject_below]
    live = [c for c in near if c.entry.is_live(now_s, max_age_s)]
    if not near:
        return _too_far(candidates)
    if not live:
        return Miss(Reason.EXPIRED, _facts(near[0], now_s))
    refused: Miss | None = None
    for candidate in live:
        decision = _one(query, candidate, policy, fallback, now_s, verifier)
        if isinstance(decision, Hit):
            return decision
        refused = refused or decision
    assert refused is not None, "a live candidate was neither served nor refused"
    return refused


def _too_far(candidates: Sequence[Candidate]) -> Miss:
    if not candidates:
        return Miss(Reason.NO_ENTRY)
    best = max(candidates, key=lambda c: c.similarity)
    return Miss(Reason.BELOW_THRESHOLD, {"similarity": round(best.similarity, 4), "entry_id": best.entry.entry_id})


def _one(
    query: Query,
    candidate: Candidate,
    policy: SemanticPolicy,
    fallback: FallbackPolicy,
    now_s: float,
    verifier: Verifier,
) -> Hit[Entry] | Miss:
    facts = _facts(candidate, now_s)
    in_doubt = candidate.similarity < policy.accept_from
    if in_doubt and policy.sensitive:
        return Miss(Reason.SENSITIVE_SCOPE, facts)
    if max(len(candidate.entry.question), len(query.text)) > MAX_CHARACTERS:
        return Miss(Reason.GUARD_REJECTED, {"guard": "length", "max_characters": MAX_CHARACTERS} | facts)
    try:
        cached, asked = _analysed(candidate.entry, query)
    except Exception as failure:  # fail closed: what could not be read was not seen to be safe
        error = f"{type(failure).__name__}: {failure}"
        return Miss(Reason.GUARD_REJECTED, {"guard": "reading", "evidence": {"error": error}} | facts)
    verdict = first_rejection(cached, asked)
    if verdict is not None:
        return Miss(
            Reason.GUARD_REJECTED,
            {"guard": verdict.kind, "certain": verdict.certain, "evidence": dict(verdict.evidence)} | facts,
        )
    facts |= {"band": "validate" if in_doubt else "accept", "guards_passed": len(GUARDS)}
    if not in_doubt:
        return Hit(Reason.SIMILAR, candidate.entry, facts)
    agreement = _asked_verifier(verifier, cached, asked, candidate.similarity)
    facts |= {"verifier_score": round(agreement.score, 4), "verifier": dict(agreement.evidence)}
    if agreement.agrees or (agreement.agrees is None and fallback.semantic_doubt == "serve"):
        return Hit(Reason.VALIDATED, candidate.entry, facts | {"in_doubt": agreement.agrees is None})
    return Miss(Reason.NOT_VALIDATED, facts)


def _asked_verifier(verifier: Verifier, cached: Text, asked: Text, similarity: float) -> Agreement:
    """What the verifier says; one that fails does not agree, whatever `semantic_doubt` says."""
    try:
        return verifier.verify(cached, asked, similarity)
    except Exception as failure:
        return Agreement(False, 0.0, {"error": f"{type(failure).__name__}: {failure}"})


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


__all__ = ["Query", "decide"]
