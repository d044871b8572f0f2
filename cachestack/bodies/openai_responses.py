"""A body of `/v1/responses`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models
from cachestack.bodies.openai_chat import NO_EFFECT
from cachestack.bodies.reading import Asked, Fields, request_of
from cachestack.bodies.turns import Turns
from cachestack.errors import RequestError
from cachestack.requests import Sampling

_ROLES = ("system", "developer", "user", "assistant")
_OF_TOOLS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_approval_response")
_BOOK_KEEPING = ("type", "id", "status")  # of an item that an earlier answer gave
_WHOLE = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
_STATE = ("previous_response_id", "conversation")
_ECHOED = (
    "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "previous_response_id", "temperature",
    "text", "tool_choice", "tools", "top_p", "truncation", "user", "safety_identifier", "prompt_cache_key",
)  # fmt: skip


def read_response(models: Models, body: dict[str, Any], given: Given) -> Call:
    """Raises RequestError."""
    fields = Fields(body)
    fields.drop(*NO_EFFECT, "stream_options")
    model = fields.required_text("model")
    stream = fields.flag("stream")
    if fields.rest.get("background"):
        raise RequestError("background is not supported: there is nowhere to fetch the answer from later")
    turns = Turns()
    instructions = fields.text("instructions")
    if instructions is not None:
        turns.add("system", instructions)
    _add_input(turns, fields.take("input"))
    sampling = Sampling(
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        max_new_tokens=fields.whole("max_output_tokens", 1),
    )
    tools = tuple(fields.items("tools"))
    text = fields.mapping("text")
    wanted = text.pop("format", None) if set(text) <= {"format"} else text  # beside a format, all of it counts
    marks = {} if instructions is None else {"instructions": True}
    is_stateful = any(map(fields.rest.get, _STATE)) or _refers(body["input"]) or may_change(fields.rest.get("prompt"))
    asked = Asked("openai.responses", turns, sampling, tools, wanted, fields.rest, marks, is_stateful)
    offered = models.find(model)
    request = request_of(asked, offered, model, body, given)
    echo = {name: body[name] for name in _ECHOED if body.get(name) is not None}
    return Call(request, model, offered.engine, stream, echo=echo)


def _add_input(turns: Turns, given: Any) -> None:
    if isinstance(given, str):
        turns.add("user", given)
        return
    if not isinstance(given, list) or not given:
        raise RequestError("input must be text or a list with at least one item")
    for number, item in enumerate(given):
        if not isinstance(item, Mapping):
            raise RequestError(f"input.{number} must be an object")
        kind = item.get("type", "message")
        if not isinstance(kind, str):
            raise RequestError(f"input.{number}.type must be text")
        if kind != "message":
            dropped = ("id", "status") if kind in _WHOLE else ("status",)  # of others the provider knows more by the id
            kept = {name: value for name, value in item.items() if name not in dropped}
            turns.add("tool" if kind in _OF_TOOLS else "assistant", [kept])
            continue
        role = item.get("role")
        if role not in _ROLES:
            raise RequestError(f"input.{number}.role must be one of {', '.join(_ROLES)}, not {role!r}")
        others = {k: v for k, v in item.items() if k not in ("role", "content", *_BOOK_KEEPING)}
        turns.add(role, item.get("content"), others)


def _refers(given: Any) -> bool:
    """Whether there are items that only the provider has."""
    return isinstance(given, list) and any(item.get("type") == "item_reference" for item in given)


def may_change(prompt: Any) -> bool:
    """Whether a prompt that the provider keeps may be another one tomorrow."""
    return bool(prompt) and not (isinstance(prompt, Mapping) and prompt.get("version"))
