"""Errors as Anthropic's endpoints give them."""

from __future__ import annotations

from typing import Any

from cachestack.gateway.faults import Fault, Kind

_TYPES: dict[Kind, str] = {
    "invalid": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "method": "invalid_request_error",
    "too_large": "request_too_large",
    "limit": "rate_limit_error",
    "not_cached": "timeout_error",
    "timeout": "timeout_error",
    "upstream": "api_error",
    "unavailable": "overloaded_error",
    "internal": "api_error",
}


def anthropic_error(fault: Fault, trace_id: str) -> dict[str, Any]:
    if fault.body is not None and fault.body.get("type") == "error":
        said = fault.body["error"]
        error = {"type": said.get("type") or _TYPES[fault.kind], "message": said["message"]}
        return {"type": "error", "error": error, "request_id": trace_id}
    error = {"type": _TYPES[fault.kind], "message": fault.message}
    return {"type": "error", "error": error, "request_id": trace_id}
