"""The order of the semantic layer, as a generator of effects: exact first, then by meaning.

`chat`, `explain`, `compare` and `eval` all run this very generator; they differ only in who performs its effects.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

from cachestack.decisions import Bypass, Hit, Miss, Reason
from cachestack.effects import Consult, Embed, Embedding, EmbedFormer, FindExact, Search, Verify
from cachestack.entries import Candidate, Entry
from cachestack.keys import Contract, Partition, exact_key
from cachestack.policy import Policy, SemanticPolicy
from cachestack.requests import Request
from cachestack.semantic.budget.terms import Terms
from cachestack.semantic.conversations import WIDER, Sorted, evidence_of, sort_out
from cachestack.semantic.decide import MAX_CHARACTERS, Query, decide
from cachestack.semantic.freshness.life import Life, life_of, max_served_age, serves, serves_stale
from cachestack.semantic.language import by_meaning_refusal, identify

SemanticEffect = FindExact | Embed | EmbedFormer | Search | Verify | Consult
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
    asked: Asked, policy: Policy, encoder_languages: frozenset[str], now_s: float, *, refreshing: bool = False
) -> Generator[SemanticEffect, Any, Hit[Entry] | Miss]:
    """Look the question up. The caller has checked `bypass_reason`.

    A Hit that is STALE has ended: the caller sees to it that a new answer is made. `refreshing`: this is how it is
    made, so that neither a stale answer nor that of another question will do.
    """
    request = asked.request
    found: Entry | None = yield FindExact(asked.partition, asked.exact)
    stale = False
    if found is not None:
        if serves(found, request, policy, now_s, max_served_age(request, policy)):
            return Hit(Reason.EXACT, found, {"entry_id": found.entry_id, "age_s": round(now_s - found.created_at_s, 3)})
        if not refreshing:
            within_s = policy.freshness.stale_while_revalidate_s
            if within_s and _may_refresh(request) and serves_stale(found, request, policy, now_s, within_s):
                age_s = round(now_s - found.created_at_s, 3)
                return Hit(Reason.STALE, found, {"entry_id": found.entry_id, "age_s": age_s, "revalidates": True})
            stale = serves_stale(found, request, policy, now_s, policy.stale_if_error_s)
    life = life_of(request, policy, now_s)
    language = identify(request.question)
    if not life.is_kept(now_s):
        return Miss(Reason.MOVES, life.told(), language=language, has_stale=stale)
    embedding = yield from embed_question(request, policy, encoder_languages)
    if isinstance(embedding, Reason):
        reason = embedding if found is None else Reason.EXPIRED
        return Miss(reason, {"language": language, "by_meaning": embedding.value}, language=language, has_stale=stale)
    if refreshing:
        return Miss(Reason.EXPIRED, {}, embedding.vector, embedding.encoder, language, stale, embedding.states)
    terms: Terms | None = None
    if policy.budget.is_on:
        terms = yield Consult(asked.partition, asked.exact, language, embedding.encoder, policy)
    decision = yield from _nearest(asked, embedding, language, policy, now_s, life, terms)
    if not isinstance(decision, Hit) and embedding.has_former:
        wait_s = policy.semantic.encoder_deadline_ms / 1000
        former: Embedding | None = yield EmbedFormer(request.question, asked.partition, wait_s)
        if former is not None:
            of_former = yield from _nearest(asked, former, language, policy, now_s, life, terms)
            decision = of_former if isinstance(of_former, Hit) else decision
    if isinstance(decision, Hit):
        return decision
    if isinstance(decision, Reason):
        return Miss(decision, {}, embedding.vector, embedding.encoder, language, stale, embedding.states)
    reason = decision.reason if found is None else Reason.EXPIRED
    return replace(
        decision,
        reason=reason,
        vector=embedding.vector,
        encoder=embedding.encoder,
        language=language,
        has_stale=stale,
        states=embedding.states,
    )


def _nearest(
    asked: Asked,
    embedding: Embedding,
    language: str | None,
    policy: Policy,
    now_s: float,
    life: Life,
    terms: Terms | None,
) -> Generator[SemanticEffect, Any, Hit[Entry] | Miss | Reason]:
    """What is decided about the entries of this embedding's encoder."""
    wanted = policy.semantic.num_candidates
    search = Search(asked.partition, asked.contract, embedding.vector, embedding.encoder, wanted)
    candidates: list[Candidate] | Reason = yield search
    if isinstance(candidates, Reason):
        return candidates
    messages = asked.request.messages
    found = sort_out(asked.contract, messages, candidates, policy.semantic)
    if found.refused and len(candidates) == wanted:
        candidates = yield replace(search, num_candidates=wanted * WIDER)
        if isinstance(candidates, Reason):
            return candidates
        found = sort_out(asked.contract, messages, candidates, policy.semantic)
    query = Query(asked.request.question, language, embedding.states)
    max_age_s = min(life.ttl_s, max_served_age(asked.request, policy))
    fitting = [_as_for(candidate, asked, policy, now_s, max_age_s) for candidate in found.fitting[:wanted]]
    if terms is None:
        decision = yield from decide(query, fitting, policy.semantic, policy.fallback, now_s, max_age_s)
    else:
        decision = yield from decided_under(terms, query, fitting, policy, now_s, max_age_s)
    return _with_context(decision, found, now_s, max_age_s)


def decided_under(
    terms: Terms, query: Query, candidates: list[Candidate], policy: Policy, now_s: float, max_age_s: float
) -> Generator[Verify, Any, Hit[Entry] | Miss]:
    """As `decide`, within what the error budget allows."""
    allowed = terms.allowed(candidates)
    found: Hit[Entry] | Miss | None = terms.known(allowed, policy.semantic, now_s, max_age_s)
    if found is None:
        semantic, fallback = terms.policies(policy.semantic, policy.fallback)
        found = yield from decide(query, allowed, semantic, fallback, now_s, max_age_s)
    return terms.applied(found)


def _with_context(decision: Hit[Entry] | Miss, found: Sorted, now_s: float, max_age_s: float) -> Hit[Entry] | Miss:
    """A hit under another history says why; a miss, that a nearer entry leans on something else."""
    if isinstance(decision, Hit):
        meeting = found.meetings.get(decision.value.entry_id)
        return replace(decision, detail={**decision.detail, "context": evidence_of(meeting)}) if meeting else decision
    refused = [(c, why) for c, why in found.refused if c.entry.is_live(now_s, max_age_s)]
    if not refused or refused[0][0].similarity < max((c.similarity for c in found.fitting), default=-1.0):
        return decision
    nearest, why = refused[0]
    facts = {"similarity": round(nearest.similarity, 4), "entry_id": nearest.entry.entry_id}
    return Miss(Reason.CONTEXT_DIFFERS, evidence_of(why) | facts)


def _as_for(candidate: Candidate, asked: Asked, policy: Policy, now_s: float, max_age_s: float) -> Candidate:
    """A candidate that its class or its owner keeps from this asker is as good as expired."""
    entry = candidate.entry
    if not entry.is_live(now_s, max_age_s) or serves(entry, asked.request, policy, now_s, max_age_s):
        return candidate
    return replace(candidate, entry=replace(entry, expires_at_s=-math.inf))


def _may_refresh(request: Request) -> bool:
    """Whether a new answer may be made and kept for this request while it is served an old one."""
    return request.store and not request.only_if_cached


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
