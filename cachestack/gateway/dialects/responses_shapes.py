"""What a response object of `/v1/responses` looks like, from its beginning to its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from cachestack.bodies.call import Call
from cachestack.decisions import Reason, Response
from cachestack.gateway.dialect import Body
from cachestack.requests import Usage

_DEFAULTS: Body = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
_OF_THE_CALLER = ("metadata", "user", "safety_identifier", "prompt_cache_key")


def begun(call: Call, trace_id: str) -> dict[str, Any]:
    """A response that has no output yet."""
    return {
        **_DEFAULTS,
        **call.echo,
        "id": f"resp_{trace_id}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": call.model,
        "output": [],
        "usage": None,
        "store": False,
    }


def finished(call: Call, response: Response, output: Sequence[Any] | None = None) -> dict[str, Any]:
    """The whole response; `output` where its items are known already."""
    trace_id = response.trace.request_id
    cut = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(response.finish_reason)
    status = "completed" if cut is None else "incomplete"
    items = [text_item(trace_id, 0, response.text, status)] if output is None and response.text else output or []
    return {
        **begun(call, trace_id),
        "status": status,
        "incomplete_details": None if cut is None else {"reason": cut},
        "output": list(items),
        "usage": usage_of(response.usage),
    }


def passed_on(call: Call, response: Response, body: Body) -> Body:
    """The provider's whole response; where another request's call gave it, without what that one said of itself."""
    if not any(step.reason is Reason.SHARED for step in response.trace.steps):
        return body
    return {**body, **{name: call.echo.get(name, _DEFAULTS.get(name)) for name in _OF_THE_CALLER if name in body}}


def text_item(trace_id: str, number: int, text: str | None, status: str) -> dict[str, Any]:
    """The message that the text stands in; without a text it has just begun."""
    content = [] if text is None else [text_part(text)]
    item_id = f"msg_{trace_id}_{number}"
    return {"id": item_id, "type": "message", "role": "assistant", "status": status, "content": content}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
