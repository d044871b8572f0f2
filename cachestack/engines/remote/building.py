"""From a Request to a body, for requests that did not come as one of the provider's dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.errors import RequestError
from cachestack.requests import Request

_INSTRUCTING = ("system", "developer")
_CARRIED = {
    "openai.chat": frozenset(
        ["model", "messages", "temperature", "top_p", "seed", "stop", "max_tokens", "max_completion_tokens", "n"]
    ),
    "openai.responses": frozenset(["model", "input", "instructions", "temperature", "top_p", "max_output_tokens"]),
    "anthropic.messages": frozenset(
        ["model", "messages", "system", "temperature", "top_p", "stop_sequences", "max_tokens"]
    ),
}
"""What the Request's own fields say as well."""
_NO_PART_OF_THE_ANSWER = frozenset(
    [
        *["stream", "stream_options", "metadata", "user", "safety_identifier", "service_tier", "store", "tool_choice"],
        *["parallel_tool_calls", "cache_control", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"],
    ]
)
_NOTHING_ASKED: tuple[Any, ...] = (None, False, [], {}, "", {"type": "text"}, {"format": {"type": "text"}})


def openai_body(request: Request, model: str, *, max_tokens_name: str) -> dict[str, Any]:
    """A chat completion."""
    if request.dialect:
        check_convertible(request, "an OpenAI-compatible engine")
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
    }
    given: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        max_tokens_name: sampling.max_new_tokens,
        "n": sampling.n if sampling.n > 1 else None,
    }
    if not request.dialect:
        given |= {"tools": list(request.tools) or None, "response_format": request.response_format}
    return _with_extra(body | {key: value for key, value in given.items() if value is not None}, request)


def anthropic_body(request: Request, model: str, *, default_max_tokens: int) -> dict[str, Any]:
    """A message. Raises RequestError for what Anthropic's API has no word for."""
    if request.dialect:
        check_convertible(request, "an Anthropic engine")
    sampling = request.sampling
    for name, given in (
        ("n > 1", sampling.n > 1),
        ("seed", sampling.seed is not None),
        ("response_format", request.response_format not in _NOTHING_ASKED),
        ("messages of the role tool", any(m.role == "tool" for m in request.messages)),
    ):
        if given:
            raise RequestError(f"an Anthropic engine cannot be asked for {name} in this way")
    system: list[str] = []
    for message in request.messages:
        if message.role not in _INSTRUCTING:
            break
        system.append(message.content)
    turns = request.messages[len(system) :]
    if any(message.role in _INSTRUCTING for message in turns):
        raise RequestError("an Anthropic engine takes system messages only before all others")
    if not turns:
        raise RequestError("an Anthropic engine needs a message besides the system's")
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": sampling.max_new_tokens or default_max_tokens,
        "messages": [{"role": m.role, "content": m.content} for m in turns],
    }
    optional: dict[str, Any] = {
        "system": "\n\n".join(system) or None,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stop_sequences": list(sampling.stop) or None,
        "tools": (list(request.tools) or None) if not request.dialect else None,
    }
    return _with_extra(body | {key: value for key, value in optional.items() if value is not None}, request)


def check_convertible(request: Request, to: str) -> None:
    """Raises RequestError unless the body is a conversation of texts, which any dialect can carry."""
    body, carried = request.body or {}, _CARRIED.get(request.dialect)
    if carried is None:
        raise RequestError(f"a request of the dialect {request.dialect} cannot be given to {to}")
    left = sorted(
        key
        for key, value in body.items()
        if key not in carried and key not in _NO_PART_OF_THE_ANSWER and value not in _NOTHING_ASKED
    )
    if left:
        raise RequestError(f"{to} cannot be given the {request.dialect} request's {', '.join(left)}")
    turns = body.get("messages", body.get("input"))
    for turn in turns if isinstance(turns, list) else ():
        _check_turn(turn, to)
    if isinstance(body.get("system"), list):
        _check_turn({"role": "system", "content": body["system"]}, to)


def _check_turn(turn: Any, to: str) -> None:
    if not isinstance(turn, Mapping) or turn.get("type", "message") != "message":
        raise RequestError(f"{to} cannot be given a turn that is no message")
    said = {key for key, value in turn.items() if value not in _NOTHING_ASKED}
    if more := sorted(said - {"role", "content", "type", "id", "status"}):
        raise RequestError(f"{to} cannot be given a message's {', '.join(more)}")
    content = turn.get("content")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", "input_text", "output_text"):
            raise RequestError(f"{to} cannot be given content of the type {kind} from another dialect")


def _with_extra(body: dict[str, Any], request: Request) -> dict[str, Any]:
    """A body of its own dialect says its parameters itself; without one, `extra` holds them."""
    if request.dialect:
        return body
    return {**request.extra, **body}
