"""What went wrong, as HTTP says it: one place from errors to a status; each dialect gives it its provider's shape.

Nothing of the inside goes out: what an operator has to know (files, other tenants' names, a traceback) is in the log,
under the trace id that the caller gets.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cachestack.bodies.offered import UnknownModel
from cachestack.errors import (
    AccessDenied,
    CircuitOpen,
    ContextTooLong,
    EncoderError,
    EngineError,
    EngineTimeout,
    LimitExceeded,
    ModelError,
    NotCached,
    StoreError,
    UnknownTenant,
    UpstreamError,
    UsageError,
)
from cachestack.gateway.masking import masked, masked_error

log = logging.getLogger("cachestack.gateway")

Kind = Literal[
    "invalid", "authentication", "permission", "not_found", "method", "too_large", "limit", "not_cached", "timeout",
    "upstream", "unavailable", "internal",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that is an error. `body`: the provider's own, as far as callers may read it, where it has one."""

    status: int
    kind: Kind
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


class Refused(Exception):
    """Raised by the gateway itself where no error of CacheStack says it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def not_found(message: str, *, code: str = "not_found", param: str | None = None) -> Refused:
    return Refused(Fault(404, "not_found", message, code, param))


def fault_of(error: BaseException, trace_id: str) -> Fault:
    """What the caller is told of an error. What is nobody's mistake, and what only an operator can mend, is logged."""
    match error:
        case Refused():
            return error.fault
        case UnknownModel():
            return Fault(404, "not_found", str(error), "model_not_found", "model")
        case UsageError() | ContextTooLong():
            code = "context_length_exceeded" if isinstance(error, ContextTooLong) else None
            return Fault(400, "invalid", str(error), code)
        case AccessDenied(status=403):
            return Fault(403, "permission", str(error), "access_denied")
        case AccessDenied():
            headers = {"WWW-Authenticate": "Bearer"}
            return Fault(error.status, "authentication", str(error), "invalid_api_key", headers=headers)
        case UnknownTenant():  # the message names the file and the other tenants
            log.warning("request %s refused: %s", trace_id, error)
            return Fault(403, "permission", "your tenant has no policy at this gateway", "no_policy")
        case LimitExceeded():
            return Fault(429, "limit", str(error), "rate_limit_exceeded", headers=_later(error.retry_after_s))
        case NotCached():
            return Fault(504, "not_cached", f"{error} (Cache-Control: only-if-cached)", "not_cached")
        case UpstreamError():
            return _upstream(error, trace_id)
        case EngineTimeout():
            log.warning("request %s: %s", trace_id, error)
            return Fault(504, "timeout", "the model did not answer in time, or cannot be reached", "timeout")
        case CircuitOpen():
            headers = _later(error.retry_after_s)
            return Fault(
                503, "unavailable", "the model fails and is left alone for a while", "circuit_open", headers=headers
            )
        case EncoderError():
            log.error("request %s: %s", trace_id, error)
            return Fault(
                502, "upstream", f"the encoder failed at this request; see the log for {trace_id}", "encoder_error"
            )
        case StoreError():
            log.error("request %s: %s", trace_id, error)
            return Fault(
                503, "unavailable", f"the gateway's state cannot be used; see the log for {trace_id}", "no_state"
            )
        case ModelError():
            log.error("request %s: %s", trace_id, error)
            return Fault(
                503, "unavailable", f"the model cannot be used; see the log for {trace_id}", "model_unavailable"
            )
        case EngineError():
            log.error("request %s: the engine failed", trace_id, exc_info=error)
            return Fault(
                502, "upstream", f"the model failed at this request; see the log for {trace_id}", "engine_error"
            )
        case _:
            log.error("request %s: an unexpected error", trace_id, exc_info=error)
            return Fault(500, "internal", f"an unexpected error; whoever runs this finds it in the log as {trace_id}")


def _upstream(error: UpstreamError, trace_id: str) -> Fault:
    """The provider's status and words, but for what names the operator's account: see masking.py. An error that came
    with a status of success is a bad gateway."""
    status = error.status if 400 <= error.status < 600 else 502
    kinds: dict[int, Kind] = {
        401: "authentication", 403: "permission", 404: "not_found", 413: "too_large", 429: "limit",
    }  # fmt: skip
    kind = kinds.get(status, "invalid" if status < 500 else "upstream")
    if status in (401, 403):  # it is the gateway's key that was refused: the caller's is well
        log.error("request %s: %s", trace_id, error)
        message = (
            f"the model's provider refuses this gateway; whoever runs it finds the reason in the log as {trace_id}"
        )
        return Fault(status, kind, message, "upstream_error")
    given = error.body or {}
    said = masked_error(given.get("error"))
    body = None if said is None else {"error": said, **({"type": "error"} if given.get("type") == "error" else {})}
    return Fault(status, kind, masked(str(error)), "upstream_error", headers=_later(error.retry_after_s), body=body)


def _later(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"Retry-After": str(max(1, math.ceil(seconds)))}
