"""The order of the semantic layer, as a generator of effects: exact first, then by meaning.

`chat`, `explain`, `compare` and `eval` all run this very generator; they differ only in who performs its effects.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from cachestack.decisions import Bypass, Hit, Miss, Reason
from cachestack.effects import Embed, Embedding, EmbedFormer, FindExact, Search, Verify
from cachestack.entries import Candidate, Entry
from cachestack.keys import Contract, Partition, exact_key
from cachestack.policy import Policy, SemanticPolicy
from cachestack.requests import Request
from cachestack.semantic.decide import MAX_CHARACTERS, Query, decide
from cachestack.semantic.language import by_meaning_refusal, identify

SemanticEffect = FindExact | Embed | EmbedFormer | Search | Verify
SemanticLookup = Hit[Entry] | Miss | Bypass


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the semantic layer sees it, worked out once."""

    request: Request
    contract: Contract
    partition: Partition
    exact: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact", exact_key(self.partition, self.contract, self.request.question))


def bypass_reason(request: Request, policy: SemanticPolicy) -> Reason | None:
    """Why this request has no business with the semantic cache at all, or None."""
    temperature = request.sampling.temperature
    if not policy.enabled:
        return Reason.DISABLED
    if ("user" in policy.walls and not request.user) or ("role" in policy.walls and not request.role):
        return Reason.NO_PRINCIPAL
    if temperature is not None and temperature > policy.max_temperature:
        return Reason.TEMPERATURE
    if request.tools and not policy.allow_tools:
        return Reason.TOOLS
    if request.sampling.n > 1:
        return Reason.MANY_ANSWERS
    return None


def partition_of(request: Request, policy: SemanticPolicy) -> Partition:
    """The wall around this request's entries: tenant, and the principals that the policy separates by."""
    return Partition(
        request.tenant,
        user=request.user if "user" in policy.walls else None,
        role=request.role if "role" in policy.walls else None,
        epoch=request.epoch,
    )


def semantic_lookup(
    asked: Asked, policy: Policy, encoder_languages: frozenset[str], now_s: float
) -> Generator[SemanticEffect, Any, Hit[Entry] | Miss]:
    """Look the question up. The caller has checked `bypass_reason`."""
    max_age_s = max_served_age(asked.request, policy)
    found: Entry | None = yield FindExact(asked.partition, asked.exact)
    if found is not None and found.is_live(now_s, max_age_s):
        return Hit(Reason.EXACT, found, {"entry_id": found.entry_id, "age_s": round(now_s - found.created_at_s, 3)})
    stale = found is not None and found.is_stale(now_s, max_age_s, policy.fallback.stale_within_s)
    embedding = yield from embed_question(asked.request, policy, encoder_languages)
    language = identify(asked.request.question)
    if isinstance(embedding, Reason):
        reason = embedding if found is None else Reason.EXPIRED
        return Miss(reason, {"language": language, "by_meaning": embedding.value}, language=language, has_stale=stale)
    decision = yield from _nearest(asked, embedding, language, policy, now_s)
    if not isinstance(decision, Hit) and embedding.has_former:
        wait_s = policy.semantic.encoder_deadline_ms / 1000
        former: Embedding | None = yield EmbedFormer(asked.request.question, asked.partition, wait_s)
        if former is not None:
            of_former = yield from _nearest(asked, former, language, policy, now_s)
            decision = of_former if isinstance(of_former, Hit) else decision
    if isinstance(decision, Hit):
        return decision
    if isinstance(decision, Reason):
        return Miss(decision, {}, embedding.vector, embedding.encoder, language, stale, embedding.states)
    reason = decision.reason if found is None else Reason.EXPIRED
    return Miss(reason, decision.detail, embedding.vector, embedding.encoder, language, stale, embedding.states)


def _nearest(
    asked: Asked, embedding: Embedding, language: str | None, policy: Policy, now_s: float
) -> Generator[SemanticEffect, Any, Hit[Entry] | Miss | Reason]:
    """What is decided about the entries of this embedding's encoder."""
    candidates: list[Candidate] | Reason = yield Search(
        asked.partition, asked.contract, embedding.vector, embedding.encoder, policy.semantic.num_candidates
    )
    if isinstance(candidates, Reason):
        return candidates
    query = Query(asked.request.question, language, embedding.states)
    max_age_s = max_served_age(asked.request, policy)
    return (yield from decide(query, candidates, policy.semantic, policy.fallback, now_s, max_age_s))


def max_age(request: Request, policy: Policy) -> float:
    """How long the answer to this request lives, in seconds: by the policy of today and the request's own wish,
    whatever held when the answer was kept."""
    ttl_s = policy.retention.ttl_s
    return ttl_s if request.ttl_s is None else min(request.ttl_s, ttl_s)


def max_served_age(request: Request, policy: Policy) -> float:
    """How old an answer may be, in seconds, to serve this request."""
    kept_s = max_age(request, policy)
    return kept_s if request.max_age_s is None else min(request.max_age_s, kept_s)


def embed_question(
    request: Request, policy: Policy, encoder_languages: frozenset[str]
) -> Generator[SemanticEffect, Any, Embedding | Reason]:
    """The question's embedding, or why it is not matched by meaning."""
    if not policy.semantic.by_meaning:
        return Reason.EXACT_ONLY
    if request.messages[-1].role != "user":
        return Reason.NOT_A_QUESTION
    if len(request.question) > MAX_CHARACTERS:
        return Reason.BEYOND_WINDOW  # the guards would refuse it anyhow: no time is spent on it
    refusal = by_meaning_refusal(identify(request.question), encoder_languages, policy.semantic)
    if refusal is not None:
        return refusal
    embedding: Embedding | Reason = yield Embed(request.question, policy.semantic.encoder_deadline_ms / 1000)
    return embedding
