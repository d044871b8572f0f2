"""Errors as OpenAI's endpoints give them; ours speak so too."""

from __future__ import annotations

from typing import Any

from cachestack.gateway.faults import Fault, Kind

_TYPES: dict[Kind, str] = {
    "invalid": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "invalid_request_error",
    "method": "invalid_request_error",
    "too_large": "invalid_request_error",
    "limit": "rate_limit_error",
    "not_cached": "not_cached_error",
    "timeout": "timeout_error",
    "upstream": "upstream_error",
    "unavailable": "service_unavailable_error",
    "internal": "server_error",
}


def openai_error(fault: Fault, trace_id: str) -> dict[str, Any]:
    if fault.body is not None and isinstance(fault.body.get("error"), dict):
        return {"error": fault.body["error"]}
    return {"error": {"message": fault.message, "type": _TYPES[fault.kind], "param": fault.param, "code": fault.code}}
