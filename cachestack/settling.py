"""The last step of a request: whether its answer is kept, and as what."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from cachestack.decisions import Bypass, Layer, Miss, Outcome, Reason
from cachestack.effects import Effect, PublishEntry
from cachestack.entries import Entry
from cachestack.errors import EntryTooLarge, StoreError
from cachestack.policy import Policy
from cachestack.requests import Generation, Request
from cachestack.semantic.language import identify
from cachestack.semantic.layer import Asked, embed_question, max_age
from cachestack.tracing import TraceBuilder


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine made. `is_own`: by the engine that was asked, or by one that answers alike."""

    generation: Generation
    is_own: bool


def settle(
    entry_id: str,
    asked: Asked | None,
    asked_at_s: float,
    looked_up: Miss | Bypass,
    policy: Policy,
    encoder_languages: frozenset[str],
    answer: Answer,
    trace: TraceBuilder,
) -> Generator[Effect, Any, str | None]:
    """Publish the answer if it may be kept; returns the entry's id, or None.

    Its life begins when the question was asked, not when the answer was ready: what was invalidated in between does
    not come back with an answer that was on its way.
    """
    if asked is None or looked_up.reason is Reason.STORE_UNAVAILABLE:
        return None
    request, generation = asked.request, answer.generation
    refusal = not_admitted(request, policy, answer)
    if refusal is not None:
        trace.add(Layer.SETTLE, Outcome.BYPASS, refusal)
        return None
    cut = generation.finish_reason == "length"  # the same limit would cut it again; another question deserves better
    vector, encoder, states = None, None, b""
    if isinstance(looked_up, Miss):
        vector, encoder, states = looked_up.vector, looked_up.encoder, looked_up.states
    elif not cut:
        embedding = yield from embed_question(request, policy, encoder_languages)
        if not isinstance(embedding, Reason):
            vector, encoder, states = embedding.vector, embedding.encoder, embedding.states
    expires_at_s = asked_at_s + max_age(request, policy)
    entry = Entry(
        entry_id=entry_id,
        partition=asked.partition,
        contract=asked.contract.digest,
        exact=asked.exact,
        question=request.question,
        answer=generation.text,
        finish_reason=generation.finish_reason,
        prompt_tokens=generation.usage.prompt_tokens,
        completion_tokens=generation.usage.completion_tokens,
        model=request.model,
        created_at_s=asked_at_s,
        expires_at_s=expires_at_s,
        stale_until_s=expires_at_s + policy.fallback.stale_within_s,
        principal=request.user,
        version=request.version,
        part_versions=tuple(dict.fromkeys(v for v in request.part_versions if v is not None)),
        tags=request.tags,
        vector=None if cut else vector,
        encoder=None if cut else encoder,
        states=b"" if cut else states,
        language=identify(request.question),
        engine_s=generation.ttft_s + generation.decode_s,
    )
    try:
        kept = yield PublishEntry(entry, policy.retention.max_bytes)
    except EntryTooLarge:
        trace.add(Layer.SETTLE, Outcome.BYPASS, Reason.TOO_LARGE)
        return None
    except StoreError as error:
        trace.add(Layer.SETTLE, Outcome.FAILED, Reason.STORE_FAILED, {"error": str(error)})
        return None
    if not kept:
        trace.add(Layer.SETTLE, Outcome.BYPASS, Reason.INVALIDATED)
        return None
    reason = Reason.TRUNCATED if cut else Reason.STORED
    trace.add(Layer.SETTLE, Outcome.DONE, reason, {"entry_id": entry.entry_id, "by_meaning": entry.vector is not None})
    return entry.entry_id


def not_admitted(request: Request, policy: Policy, answer: Answer) -> Reason | None:
    """Why an answer is not kept, or None."""
    text = answer.generation.text
    if not request.store:
        return Reason.NO_STORE
    if not answer.is_own:
        return Reason.OTHER_ENGINE
    if answer.generation.finish_reason == "content_filter":
        return Reason.FILTERED
    if not answer.generation.is_text or answer.generation.finish_reason == "tool_calls":
        return Reason.NOT_TEXT
    if not text.strip():
        return Reason.EMPTY_ANSWER
    if len(text.encode("utf-8", "surrogatepass")) > policy.retention.max_entry_bytes:
        return Reason.TOO_LARGE
    return None
