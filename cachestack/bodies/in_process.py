"""What of a provider's request the engine in this process can do: it writes text, and says so where more is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.bodies.turns import Turns
from cachestack.errors import RequestError
from cachestack.requests import Request, Sampling

_TEXT_FORMAT: dict[str, Any] = {"type": "text"}
# What asks for nothing: clients send many fields with the value that they have anyway.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "background": (False,),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0, 0.0),
    "functions": ([],),
    "include": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0, 0.0),
    "suffix": ("",),
    "thinking": ({"type": "disabled"},),
    "tool_choice": ("auto", "none", {"type": "auto"}, {"type": "none"}),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}


def in_process_request(
    turns: Turns,
    sampling: Sampling,
    tools: tuple[Any, ...],
    response_format: Any,
    extra: Mapping[str, Any],
    standing: Mapping[str, Any],
) -> Request:
    """Raises RequestError that names all that cannot be done."""
    asked = {name: value for name, value in extra.items() if not _is_neutral(name, value)}
    lacking = [
        *(["n > 1"] if sampling.n > 1 else []),
        *(["tools"] if tools else []),
        *(["a response format other than text"] if response_format not in (None, {}, _TEXT_FORMAT) else []),
        *sorted(asked),
        *dict.fromkeys(turns.not_text),
    ]
    if lacking:
        what = ", ".join(lacking)
        raise RequestError(f"the in-process engine does not support {what}; leave it out, or use another engine")
    names = {"beside": turns.beside} if turns.beside else {}
    return Request(messages=tuple(turns.messages), sampling=sampling, extra=names, **standing)


def _is_neutral(name: str, value: Any) -> bool:
    neutral = _NEUTRAL.get(name, ())
    return value is None or any(type(value) is type(one) and value == one for one in neutral)
