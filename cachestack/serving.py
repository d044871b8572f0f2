"""From a kept entry, or another request's answer, to a response."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from cachestack.decisions import Hit, Layer, Outcome, Reason, Response, Step
from cachestack.effects import Effect, Prolong, Touch
from cachestack.entries import Entry
from cachestack.errors import StoreError
from cachestack.leases import Landed
from cachestack.policy import PricePolicy
from cachestack.requests import Usage
from cachestack.tally import HitKind
from cachestack.tracing import TraceBuilder

WORTH_WRITING = 0.1
"""An entry is not written anew for less than this share of `retention.sliding_s`."""


def serve(
    found: Hit[Entry], trace: TraceBuilder, sliding_s: float | None, now_s: float
) -> Generator[Effect, Any, Response]:
    """A hit. `sliding_s`: how long after a use an entry lives, where use prolongs."""
    trace.add(Layer.SEMANTIC, Outcome.HIT, found.reason, found.detail)
    yield from _touch(found.value, trace, None if found.reason is Reason.STALE else sliding_s, now_s)
    return replay(found.value, trace)


def _touch(entry: Entry, trace: TraceBuilder, sliding_s: float | None, now_s: float) -> Generator[Effect, Any, None]:
    """Note the use. That it cannot be noted is no reason to keep an answer back."""
    try:
        yield Touch(entry.partition, entry.entry_id)
        if sliding_s is not None:
            gained_s = entry.used(now_s, sliding_s).expires_at_s - entry.expires_at_s
            if gained_s > WORTH_WRITING * sliding_s:
                yield Prolong(entry, sliding_s)
    except StoreError as error:
        trace.add(Layer.SETTLE, Outcome.FAILED, Reason.STORE_FAILED, {"error": str(error)})


class Served:
    """Hits of one entry in the exact tier, told as the pipeline's steps would tell them; what all have is made once."""

    __slots__ = ("_kind", "_policy", "_replayed", "_usage", "entry", "model", "touched_s")

    def __init__(self, entry: Entry, model: str) -> None:
        self.entry, self.model = entry, model
        self._policy = Step(Layer.POLICY, Outcome.DONE, Reason.POLICY_RESOLVED, 0.0, {"model": model})
        self._replayed = Step(Layer.DECODE, Outcome.DONE, Reason.REPLAYED, 0.0, _replayed(entry))
        self._usage = _usage_of(entry)
        self._kind: HitKind | None = None
        self.touched_s = -math.inf
        """When its use was noted last."""

    def response(self, trace: TraceBuilder, now_s: float) -> Response:
        entry = self.entry
        detail = {"entry_id": entry.entry_id, "age_s": round(now_s - entry.created_at_s, 3)}
        found = Step(Layer.SEMANTIC, Outcome.HIT, Reason.EXACT, trace.seconds, detail)
        told = trace.of((self._policy, found, self._replayed))
        return Response(entry.answer, told, self._usage, entry.finish_reason, entry.entry_id)

    def kind(self, prices: PricePolicy) -> HitKind:
        """What statistics take from such a hit."""
        kind = self._kind
        if kind is None or kind.prices is not prices:
            kind = self._kind = HitKind(self._usage, self.entry.engine_s, self.model, prices)
        return kind


def share(landed: Landed, trace: TraceBuilder) -> Response:
    """Another request's answer: no token of it was computed for this one."""
    if landed.stale is not None:
        trace.add(Layer.FALLBACK, Outcome.DONE, Reason.STALE, {"entry_id": landed.stale.entry_id})
        return replay(landed.stale, trace)
    made = landed.generation
    assert made is not None, "a flight lands with an answer or a stale entry"
    detail = {"request_id": landed.request_id, "chars": len(made.text)}
    trace.add(Layer.DECODE, Outcome.DONE, Reason.SHARED, detail | ({"engine": landed.engine} if landed.engine else {}))
    usage = replace(made.usage, cached_tokens=made.usage.prompt_tokens)
    return Response(made.text, trace.trace(), usage, made.finish_reason, landed.entry_id, made.body, made.is_text)


def replay(entry: Entry, trace: TraceBuilder) -> Response:
    trace.add(Layer.DECODE, Outcome.DONE, Reason.REPLAYED, _replayed(entry))
    return Response(entry.answer, trace.trace(), _usage_of(entry), entry.finish_reason, entry.entry_id)


def _replayed(entry: Entry) -> dict[str, Any]:
    return {"chars": len(entry.answer), "saved_s": entry.engine_s}


def _usage_of(entry: Entry) -> Usage:
    return Usage(entry.prompt_tokens, entry.prompt_tokens, entry.completion_tokens)
