"""What a wrapped client is answered with where the provider's own answer is not to hand."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from cachestack.clients.calling import Call
from cachestack.clients.provider import Provider
from cachestack.decisions import Response
from cachestack.errors import (
    AccessDenied,
    CacheStackError,
    ConfigError,
    EngineError,
    LimitExceeded,
    NotCached,
    UsageError,
)
from cachestack.requests import Delta, Piece


class Shaping:
    """The bytes of one streamed answer: those that came where the provider answers, else written in its dialect."""

    def __init__(self, call: Call, provider: Provider) -> None:
        self._provider = provider
        self._writer = call.dialect.writer(call.about(secrets.token_hex(12)))
        self._has_written = False  # what was begun here is ended here

    def piece(self, piece: Piece) -> bytes:
        came = None if self._has_written else self._provider.taken()
        if came is not None:
            return came
        self._has_written = True
        return self._writer.delta(piece.body) if isinstance(piece, Delta) else self._writer.text(piece)

    def end(self, response: Response) -> bytes:
        came = self._provider.is_whole and not self._has_written
        return self._provider.rest() if came else self._writer.end(response)

    def lacks(self, response: Response) -> bool:
        """Whether there is more to the answer than can be told here: another call's, which did not stream."""
        return not (response.is_text or self._provider.is_whole or self._has_written)


def whole_answer(call: Call, response: Response) -> Mapping[str, Any]:
    if response.body is not None:
        return response.body
    return call.dialect.body(call.about(response.trace.request_id), response)


def headers_of(response: Response | None) -> dict[str, str]:
    """How the answer came about: `Cache-Status` (RFC 9211), and the ids to ask and to report by."""
    if response is None:
        return {"cache-status": "CacheStack; fwd=miss"}
    served = response.trace.served_from
    status = f"CacheStack; hit; detail={served}" if served != "engine" else "CacheStack; fwd=miss"
    if served == "engine" and response.hit_id is not None:
        status += "; stored"
    ids = {"x-cachestack-trace-id": response.trace.request_id, "x-cachestack-hit-id": response.hit_id}
    return {"cache-status": status} | {name: value for name, value in ids.items() if value is not None}


def error_answer(error: CacheStackError, dialect: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers for an error of ours: the client raises its own error of it, and does not try again."""
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    match error:
        case NotCached():
            status, kind = 504, "not_cached"
        case LimitExceeded():
            status, kind = 429, "rate_limit_error"
            headers["retry-after"] = f"{error.retry_after_s:.0f}"
        case AccessDenied():
            status, kind = error.status, "permission_error"
        case UsageError() | ConfigError():
            status, kind = 400, "invalid_request_error"
        case EngineError():
            status, kind = 502, "engine_error"
        case _:
            status, kind = 500, type(error).__name__
    said = {"type": kind, "message": f"CacheStack: {error}"}
    if dialect == "anthropic.messages":
        return status, {"type": "error", "error": said}, headers
    return status, {"error": said | {"code": kind, "param": None}}, headers
