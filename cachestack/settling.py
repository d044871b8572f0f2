"""The last step of a request: whether its answer is kept, for whom, and as what."""

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
from cachestack.semantic.admission.confirming import Claim, SameAnswer, claim, same_text
from cachestack.semantic.admission.judging import Admission, Scope, admission_of
from cachestack.semantic.conversations import kept_context
from cachestack.semantic.freshness.life import life_of
from cachestack.semantic.language import identify
from cachestack.semantic.layer import Asked, embed_question
from cachestack.semantic.scopes import of_user
from cachestack.tracing import TraceBuilder


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine made. `is_own`: by the engine that was asked, or by one that answers alike. `engine`: its name."""

    generation: Generation
    is_own: bool
    engine: str = ""


class Admissions:
    """The judgement on one request's answer, made once for all that ask for it."""

    def __init__(self, request: Request, policy: Policy) -> None:
        self._request, self._policy = request, policy
        self._judged: tuple[Generation, Admission] | None = None
        self.needs_confirmation = policy.admission.confirmations > 0 and "user" not in policy.semantic.walls

    def of(self, answer: Answer) -> Admission:
        refusal = not_admitted(self._request, self._policy, answer)
        if refusal is not None:
            return Admission(Scope.NOBODY, refusal)
        if self._judged is None or self._judged[0] is not answer.generation:
            self._judged = (answer.generation, admission_of(self._request, self._policy, answer.generation))
        return self._judged[1]

    def is_for_all(self, made: Generation) -> bool:
        """Whether whoever asks the same may be given the entry that comes of it."""
        return not self.needs_confirmation and self.of(Answer(made, is_own=True)).scope is Scope.ALL


def settle(
    entry_id: str,
    asked: Asked | None,
    asked_at_s: float,
    looked_up: Miss | Bypass,
    policy: Policy,
    encoder_languages: frozenset[str],
    answer: Answer,
    trace: TraceBuilder,
    admissions: Admissions | None = None,
    same_answer: SameAnswer = same_text,
    keep_newer: bool = False,
) -> Generator[Effect, Any, str | None]:
    """Publish the answer if it may be kept; returns the entry's id, or None.

    Its life begins when the question was asked, not when the answer was ready: what was invalidated in between does
    not come back with an answer that was on its way.
    """
    if asked is None or looked_up.reason is Reason.STORE_UNAVAILABLE:
        return None
    request, generation = asked.request, answer.generation
    admissions = admissions or Admissions(request, policy)
    admission = admissions.of(answer)
    if admission.scope is Scope.NOBODY:
        assert admission.reason is not None, "a refusal has a reason"
        trace.add(Layer.SETTLE, Outcome.BYPASS, admission.reason, admission.detail)
        return None
    must_confirm = admissions.needs_confirmation and admission.scope is Scope.ALL
    if must_confirm and request.user is None:
        trace.add(Layer.SETTLE, Outcome.BYPASS, Reason.UNCONFIRMED, {"needed": policy.admission.confirmations})
        return None
    life = life_of(request, policy, asked_at_s)
    if not life.is_kept(asked_at_s):
        trace.add(Layer.SETTLE, Outcome.BYPASS, Reason.MOVES, life.told())
        return None
    cut = generation.finish_reason == "length"  # the same limit would cut it again; another question deserves better
    vector, encoder, states = None, None, b""
    if isinstance(looked_up, Miss):
        vector, encoder, states = looked_up.vector, looked_up.encoder, looked_up.states
    elif not cut:
        embedding = yield from embed_question(request, policy, encoder_languages)
        if not isinstance(embedding, Reason):
            vector, encoder, states = embedding.vector, embedding.encoder, embedding.states
    ends_at_s = life.end_s(asked_at_s)
    sliding_s = policy.retention.sliding_s
    stale_s = max(policy.freshness.stale_while_revalidate_s, policy.stale_if_error_s, policy.fallback.stale_within_s)
    place = of_user(asked) if admission.scope is Scope.USER else asked
    entry = Entry(
        entry_id=entry_id,
        partition=place.partition,
        contract=asked.contract.digest,
        exact=place.exact,
        question=request.question,
        answer=generation.text,
        finish_reason=generation.finish_reason,
        prompt_tokens=generation.usage.prompt_tokens,
        completion_tokens=generation.usage.completion_tokens,
        model=request.model,
        created_at_s=asked_at_s,
        expires_at_s=ends_at_s if sliding_s is None else min(ends_at_s, asked_at_s + sliding_s),
        stale_until_s=min(ends_at_s + stale_s, life.until_s),
        principal=request.user,
        version=request.version,
        part_versions=tuple(dict.fromkeys(v for v in request.part_versions if v is not None)),
        tags=request.tags,
        vector=None if cut else vector,
        encoder=None if cut else encoder,
        states=b"" if cut else states,
        language=identify(request.question),
        without_history="" if asked.contract.is_first else asked.contract.group,
        context="" if cut or vector is None else kept_context(asked.contract, request.messages, policy.semantic),
        engine_s=generation.ttft_s + generation.decode_s,
        engine=answer.engine,
        request_id=trace.request_id,
        changes=life.changes,
        own_state=life.own_state,
        ends_at_s=0.0 if sliding_s is None else ends_at_s,
    )
    kept_as = Reason.TRUNCATED if cut else Reason.STORED
    detail: dict[str, Any] = {}
    if admission.reason is not None:
        kept_as, detail = admission.reason, {"scope": Scope.USER.value, **admission.detail}
    try:
        if must_confirm:
            claimed = yield from claim(entry, asked, policy.admission.confirmations, same_answer)
            entry, kept_as, detail = claimed.entry, claimed.reason, _said(claimed, policy)
            if claimed.ledger is not None:
                yield PublishEntry(claimed.ledger, policy.retention.max_bytes)
        kept = yield PublishEntry(entry, policy.retention.max_bytes, keep_newer)
    except EntryTooLarge:
        trace.add(Layer.SETTLE, Outcome.BYPASS, Reason.TOO_LARGE)
        return None
    except StoreError as error:
        trace.add(Layer.SETTLE, Outcome.FAILED, Reason.STORE_FAILED, {"error": str(error)})
        return None
    if not kept:
        trace.add(Layer.SETTLE, Outcome.BYPASS, Reason.INVALIDATED)
        return None
    said = {"entry_id": entry.entry_id, "by_meaning": entry.vector is not None, **detail} | life.told()
    trace.add(Layer.SETTLE, Outcome.DONE, kept_as, said)
    return entry.entry_id


def _said(claimed: Claim, policy: Policy) -> dict[str, Any]:
    scope = Scope.ALL if claimed.reason is Reason.CONFIRMED else Scope.USER
    counts = {"agreeing": claimed.num_agreeing, "disagreeing": claimed.num_disagreeing}
    return {"scope": scope.value, **counts, "needed": policy.admission.confirmations}


def not_admitted(request: Request, policy: Policy, answer: Answer) -> Reason | None:
    """Why an answer is not kept whatever it says, or None."""
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
