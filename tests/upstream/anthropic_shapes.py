"""Answers as Anthropic's Messages API gives them: whole, and as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.upstream.answers import Answer
from tests.upstream.calls import OWN, Call, Seen
from tests.upstream.openai_shapes import Event


def message(seen: Seen, call: Call, answer: Answer) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "id": f"msg_{seen.number}",
        "type": "message",
        "role": "assistant",
        "model": seen.body.get("model", "scripted"),
        "content": _blocks(call, answer),
        "stop_reason": call.finish or ("tool_use" if answer.tool_calls else "end_turn"),
        "stop_sequence": None,
    }
    return whole if call.usage is None else whole | {"usage": _usage(call, answer)}


def message_events(seen: Seen, call: Call, answer: Answer) -> Iterator[Event]:
    whole = message(seen, call, answer)
    begun = whole | {"content": [], "stop_reason": None}
    if "usage" in whole:
        begun["usage"] = {**whole["usage"], "output_tokens": 1} if call.usage is OWN else whole["usage"]
    yield "message_start", {"type": "message_start", "message": begun}
    yield "ping", {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        for delta in _block_deltas(block, answer):
            if "content_block" in delta:
                yield "content_block_start", {"type": "content_block_start", "index": index, **delta}
            else:
                yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    ended: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": whole["stop_reason"]}}
    ended["delta"]["stop_sequence"] = None
    if "usage" in whole:
        ended["usage"] = {"output_tokens": answer.completion_tokens} if call.usage is OWN else whole["usage"]
    yield "message_delta", ended
    yield "message_stop", {"type": "message_stop"}


def _usage(call: Call, answer: Answer) -> Any:
    if call.usage is not OWN:
        return call.usage
    return {
        "input_tokens": answer.prompt_tokens - call.cached_tokens - call.cache_write_tokens,
        "cache_read_input_tokens": call.cached_tokens,
        "cache_creation_input_tokens": call.cache_write_tokens,
        "output_tokens": answer.completion_tokens,
        "service_tier": "standard",
    }


def _blocks(call: Call, answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if call.reasoning is not None:
        blocks.append({"type": "thinking", "thinking": call.reasoning, "signature": "signed"})
    if answer.text or not answer.tool_calls:
        blocks.append({"type": "text", "text": answer.text, "citations": None})
    for i, (name, arguments) in enumerate(answer.tool_calls):
        blocks.append({"type": "tool_use", "id": f"toolu_{i}", "name": name, "input": json.loads(arguments)})
    return blocks


def _block_deltas(block: dict[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
    """The opening of a block (`content_block`), then its deltas."""
    match block["type"]:
        case "thinking":
            yield {"content_block": {"type": "thinking", "thinking": "", "signature": ""}}
            yield {"type": "thinking_delta", "thinking": block["thinking"]}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case "tool_use":
            yield {"content_block": block | {"input": {}}}
            text = json.dumps(block["input"])
            for start in range(0, len(text), 4):
                yield {"type": "input_json_delta", "partial_json": text[start : start + 4]}
        case _:
            yield {"content_block": {"type": "text", "text": "", "citations": None}}
            for piece in answer.pieces:
                yield {"type": "text_delta", "text": piece}
