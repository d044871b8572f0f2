"""Warm-up: the stable part of a prompt computed and kept before anybody asks, without generating anything."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from cachestack.decisions import Bypass, Reason
from cachestack.engines.base import Prompt, TokenEngine
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer, PrefixPlan
from cachestack.requests import Message, Request

STAND_IN = Message("user", "?")
"""Stands where a later request's own message will: a boundary is found between it and what comes before."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """What a warm-up has made ready: the first `num_tokens` tokens of such prompts, `num_bytes` of KV.

    `reason`: PUBLISHED, or PREFIX_FULL or PREFIX_PARTIAL where nothing more was to be computed, or why nothing (or not
    all) could be kept: NO_BOUNDARY, PREFIX_TOO_SHORT, UNCLEAN_BOUNDARY, UNSUPPORTED_CACHE, DISABLED, OVER_BUDGET,
    MOSTLY_KEPT, INVALIDATED, NOT_FINITE, MODEL_CHANGED. `saved_s` is what each request that begins so saves by the
    prefill-cost model. `pinned_until` is a time of the stack's clock (Unix time), None where nothing is pinned;
    `pin_reason` says what became of the pin that was asked for.
    """

    reason: Reason
    num_tokens: int = 0
    reused_tokens: int = 0
    computed_tokens: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    saved_s: float = 0.0
    pinned_until: float | None = None
    pin_reason: Reason | None = None


def is_duration(value: object) -> bool:
    """Whether it is a positive number of seconds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def with_stand_in(request: Request) -> Request:
    """The request as one that somebody will send: with a user's message last."""
    if request.messages[-1].role == "user":
        return request
    return replace(request, messages=(*request.messages, STAND_IN))


def warm(
    engine: TokenEngine,
    prefix: PrefixLayer,
    policy: Policy,
    request: Request,
    *,
    pin_s: float | None = None,
    clock: Callable[[], float] = time.time,
    timer: Callable[[], float] = time.perf_counter,
) -> Warmed:
    """Compute and keep the prompt's beginning up to its last boundary, in the passes that a first request would make.

    Raises ContextTooLong, RequestError and EngineError, as a request would.
    """
    fingerprint = engine.fingerprint  # opens the model and hashes it, once: not part of what warming takes
    began = timer()
    prompt = engine.prepare(with_stand_in(request))
    plan = prefix.lookup(
        prompt,
        fingerprint=fingerprint,
        model=engine.model,
        tenant=request.tenant,
        policy=policy.prefix,
        fallback=policy.fallback,
        user=request.user,
        unsupported=engine.unsupported_cache,
    )
    if isinstance(plan.lookup, Bypass):
        return Warmed(plan.lookup.reason, seconds=timer() - began)
    try:
        # Not the rest of the prompt: nobody has asked it.
        plan = replace(plan, publish_at=tuple(p for p in plan.publish_at if p < len(prompt.ids)))
        done = _filled(engine, prefix, plan, prompt)
        if done.num_tokens and pin_s is not None:
            cap = policy.prefix.max_pinned_bytes
            pinned = prefix.pin(prompt, plan, num_tokens=done.num_tokens, for_s=pin_s, max_bytes=cap)
            until = clock() + pinned.for_s if pinned.reason is Reason.PINNED else None
            done = replace(done, pin_reason=pinned.reason, pinned_until=until)
        return replace(done, seconds=timer() - began)
    finally:
        plan.release()


def _filled(engine: TokenEngine, prefix: PrefixLayer, plan: PrefixPlan, prompt: Prompt) -> Warmed:
    reused = sum(run.num_tokens for run in plan.past)
    num_bytes = sum(run.num_bytes for run in plan.past)
    cost = prefix.costs.of(plan.fingerprint)
    if not plan.publish_at:
        return Warmed(plan.lookup.reason, reused, reused, 0, num_bytes, saved_s=cost.saved_s(0, reused))
    computed = engine.compute(prompt, plan.past, plan.publish_at, kv_dtype=plan.kv_dtype)
    num_computed = plan.publish_at[-1] - reused
    cost.observe(num_computed, computed.prefill_s, past_tokens=reused, num_passes=len(plan.publish_at))
    report = prefix.publish(plan, prompt, computed)
    assert report is not None, "something was asked for"
    num_tokens = reused + report.num_tokens + report.num_shared_tokens
    num_bytes += sum(run.num_bytes for run in computed.runs if run.start + run.num_tokens <= num_tokens)
    return Warmed(report.reason, num_tokens, reused, num_computed, num_bytes, saved_s=cost.saved_s(0, num_tokens))
