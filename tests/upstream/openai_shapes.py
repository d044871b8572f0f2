"""Answers as OpenAI's chat and text completions give them: whole, and as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.upstream.answers import Answer
from tests.upstream.calls import OWN, Call, Seen

Event = tuple[str | None, Any]
"""The event's name, where the dialect names them, and its data."""
DONE = "[DONE]"


def chat(seen: Seen, call: Call, answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": call.refusal}
    if call.reasoning is not None:
        message["reasoning_content"] = call.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [_tool_call(i, *made) for i, made in enumerate(answer.tool_calls)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(call, answer)}
    if call.logprobs:
        choice["logprobs"] = {"content": [_logprob(piece) for piece in answer.pieces], "refusal": None}
    return _with_usage(_head(seen, "chat.completion") | {"choices": [choice]}, call, answer)


def chat_events(seen: Seen, call: Call, answer: Answer) -> Iterator[Event]:
    head = _head(seen, "chat.completion.chunk")

    def event(delta: Mapping[str, Any], finish: str | None = None, logprobs: Any = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return None, head | {"choices": [choice]}

    yield event({"role": "assistant", "content": "", "refusal": None})
    if call.reasoning is not None:
        yield event({"reasoning_content": call.reasoning})
    for piece in answer.pieces:
        yield event({"content": piece}, logprobs={"content": [_logprob(piece)]} if call.logprobs else None)
    if call.refusal is not None:
        yield event({"refusal": call.refusal})
    for i, (name, arguments) in enumerate(answer.tool_calls):
        whole = _tool_call(i, name, "")
        yield event({"tool_calls": [{"index": i, **whole}]})
        for start in range(0, len(arguments), 4):
            part = {"index": i, "function": {"arguments": arguments[start : start + 4]}}
            yield event({"tool_calls": [part]})
    yield event({}, _finish(call, answer))
    if (seen.body.get("stream_options") or {}).get("include_usage"):
        yield None, _with_usage(head | {"choices": []}, call, answer)
    yield None, DONE


def completion(seen: Seen, call: Call, answer: Answer) -> dict[str, Any]:
    choice = {"index": 0, "text": answer.text, "logprobs": None, "finish_reason": _finish(call, answer)}
    return _with_usage(_head(seen, "text_completion") | {"choices": [choice]}, call, answer)


def completion_events(seen: Seen, call: Call, answer: Answer) -> Iterator[Event]:
    head = _head(seen, "text_completion")
    for piece in answer.pieces:
        yield None, head | {"choices": [{"index": 0, "text": piece, "logprobs": None, "finish_reason": None}]}
    last = {"index": 0, "text": "", "logprobs": None, "finish_reason": _finish(call, answer)}
    yield None, head | {"choices": [last]}
    if (seen.body.get("stream_options") or {}).get("include_usage"):
        yield None, _with_usage(head | {"choices": []}, call, answer)
    yield None, DONE


def _head(seen: Seen, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{seen.number}",
        "object": kind,
        "created": 1_700_000_000,
        "model": seen.body.get("model", "scripted"),
        "system_fingerprint": "fp_scripted",
        "service_tier": "default",
    }


def _with_usage(body: dict[str, Any], call: Call, answer: Answer) -> dict[str, Any]:
    if call.usage is not OWN:
        return body if call.usage is None else body | {"usage": call.usage}
    details = {"cached_tokens": call.cached_tokens, "cache_write_tokens": call.cache_write_tokens, "audio_tokens": 0}
    usage = {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    return body | {"usage": usage}


def _finish(call: Call, answer: Answer) -> str:
    return call.finish or ("tool_calls" if answer.tool_calls else "stop")


def _tool_call(i: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _logprob(piece: str) -> dict[str, Any]:
    return {"token": piece, "logprob": -0.1, "bytes": list(piece.encode()), "top_logprobs": []}
