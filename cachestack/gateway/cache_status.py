"""The header `Cache-Status` (RFC 9211): from a trace to what its caller may know.

It says whether this request was a hit, and which tier's. Of a miss it never says what was nearly found, how similar
it was, or how many entries there are: that would tell one caller what others have asked.
"""

from __future__ import annotations

from cachestack.decisions import Layer, Outcome, Reason, Trace

_NAME = "CacheStack"
_FORWARDED = {Reason.NO_LOOKUP: "request", Reason.EXPIRED: "stale"}


def cache_status(trace: Trace) -> str:
    """For example `CacheStack; hit; detail=exact`, or `CacheStack; fwd=uri-miss; stored`."""
    reasons = {step.reason for step in trace.steps}
    if (served := trace.served_from) not in ("engine", "shared"):
        return f"{_NAME}; hit; detail={served}"
    if Reason.NOT_CACHED in reasons:
        return f"{_NAME}; detail=not-cached"
    looked_up = trace.step(Layer.SEMANTIC)
    if looked_up is None:  # refused before the cache was asked
        return f"{_NAME}; detail=refused"
    fallback = "bypass" if looked_up.outcome is Outcome.BYPASS else "uri-miss"
    parts = [_NAME, f"fwd={_FORWARDED.get(looked_up.reason, fallback)}"]
    settled = trace.step(Layer.SETTLE)
    if settled is not None and settled.reason in (Reason.STORED, Reason.TRUNCATED):
        parts.append("stored")
    if Reason.SHARED in reasons:
        parts.append("collapsed")
    return "; ".join(parts)


def hit_id(trace: Trace) -> str | None:
    """The caller's own entry that a hit came from, as soon as the look-up is over."""
    step = trace.step(Layer.SEMANTIC)
    found = step.detail.get("entry_id") if step is not None and step.outcome is Outcome.HIT else None
    return found if isinstance(found, str) else None
