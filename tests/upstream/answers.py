"""What an upstream says, before it has a dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.upstream.calls import Call, Seen


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    tool_calls: tuple[tuple[str, str], ...]
    prompt_tokens: int
    completion_tokens: int

    @property
    def pieces(self) -> list[str]:
        """Words with the space before them."""
        return pieces_of(self.text)


def pieces_of(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+$", text)


def answer_to(seen: Seen, call: Call) -> Answer:
    body: Mapping[str, Any] = seen.body
    tool_calls = _asked_tools(body) if call.tool_calls is None else call.tool_calls
    schema = _asked_schema(body)
    if call.text is not None:
        text = call.text
    elif tool_calls:
        text = ""
    elif schema is not None:
        text = json.dumps(sample_of(schema))
    else:
        text = f"Answer {seen.number}: {seen.question}"
    prompt = json.dumps([body.get(name) for name in ("system", "instructions", "messages", "input", "prompt")])
    completion = len(pieces_of(text)) + sum(len(pieces_of(arguments)) for _, arguments in tool_calls)
    return Answer(text, tool_calls, len(prompt.split()) + call.cached_tokens + call.cache_write_tokens, completion)


def sample_of(schema: Mapping[str, Any]) -> Any:
    """A small value that fits a plain JSON schema."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: sample_of(inner) for name, inner in schema.get("properties", {}).items()}
        case "array":
            return [sample_of(schema.get("items", {}))]
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case _:
            return "text"


def _asked_tools(body: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """A call of the first tool, or of the one that is asked for."""
    tools, choice = body.get("tools"), body.get("tool_choice")
    turns = body.get("messages", body.get("input"))
    if not tools or choice == "none" or (isinstance(choice, Mapping) and choice.get("type") == "none"):
        return ()
    if isinstance(turns, list) and turns and _is_tool_result(turns[-1]):
        return ()
    named = {}
    for tool in tools:
        inner = tool.get("function", tool)
        named[inner.get("name")] = inner.get("parameters", inner.get("input_schema", {}))
    wanted = (choice.get("function", choice).get("name") if isinstance(choice, Mapping) else None) or next(iter(named))
    return ((wanted, json.dumps(sample_of(named.get(wanted, {"type": "object"})))),)


def _is_tool_result(turn: Mapping[str, Any]) -> bool:
    if turn.get("role") == "tool" or turn.get("type") == "function_call_output":
        return True
    content = turn.get("content")
    return isinstance(content, list) and any(part.get("type") == "tool_result" for part in content)


def _asked_schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    asked = body.get("response_format") or (body.get("text") or {}).get("format")
    asked = asked or (body.get("output_config") or {}).get("format")
    if not isinstance(asked, Mapping):
        return None
    match asked.get("type"):
        case "json_schema":
            inner: Mapping[str, Any] = asked.get("json_schema", asked)
            schema: Mapping[str, Any] = inner.get("schema", {"type": "object"})
            return schema
        case "json_object":
            return {"type": "object", "properties": {"answer": {"type": "string"}}}
        case _:
            return None
