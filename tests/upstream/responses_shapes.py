"""Answers as OpenAI's Responses API gives them: whole, and as events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.upstream.answers import Answer
from tests.upstream.calls import OWN, Call, Seen
from tests.upstream.openai_shapes import Event


def response(seen: Seen, call: Call, answer: Answer, status: str = "completed") -> dict[str, Any]:
    whole: dict[str, Any] = {
        "id": f"resp_{seen.number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": call.finish or status,
        "model": seen.body.get("model", "scripted"),
        "output": _items(seen, call, answer),
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if call.finish == "incomplete" else None,
        "instructions": seen.body.get("instructions"),
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": seen.body.get("tool_choice", "auto"),
        "tools": seen.body.get("tools", []),
        "top_p": 1.0,
    }
    if call.usage is not OWN:
        return whole if call.usage is None else whole | {"usage": call.usage}
    usage = {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": call.cached_tokens, "cache_write_tokens": call.cache_write_tokens},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
    return whole | {"usage": usage}


def response_events(seen: Seen, call: Call, answer: Answer) -> Iterator[Event]:
    number = 0

    def event(kind: str, **fields: Any) -> Event:
        nonlocal number
        number += 1
        return kind, {"type": kind, "sequence_number": number - 1, **fields}

    whole = response(seen, call, answer)
    begun = whole | {"output": [], "status": "in_progress", "usage": None}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(whole["output"]):
        where: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        if item["type"] == "function_call":
            yield event(
                "response.output_item.added",
                output_index=index,
                item=item | {"arguments": "", "status": "in_progress"},
            )
            for start in range(0, len(item["arguments"]), 4):
                part = item["arguments"][start : start + 4]
                yield event("response.function_call_arguments.delta", **where, delta=part)
            yield event("response.function_call_arguments.done", **where, arguments=item["arguments"])
        else:
            opened = item | {"content": [], "status": "in_progress"}
            yield event("response.output_item.added", output_index=index, item=opened)
            for content_index, part in enumerate(item["content"]):
                place = where | {"content_index": content_index}
                if part["type"] == "refusal":
                    yield event("response.content_part.added", **place, part=part | {"refusal": ""})
                    yield event("response.refusal.delta", **place, delta=part["refusal"])
                    yield event("response.refusal.done", **place, refusal=part["refusal"])
                else:
                    yield event("response.content_part.added", **place, part=part | {"text": ""})
                    for piece in answer.pieces:
                        yield event("response.output_text.delta", **place, delta=piece, logprobs=[])
                    yield event("response.output_text.done", **place, text=answer.text, logprobs=[])
                yield event("response.content_part.done", **place, part=part)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{whole['status']}", response=whole)


def _items(seen: Seen, call: Call, answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    if answer.text:
        content.append({"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []})
    if call.refusal is not None:
        content.append({"type": "refusal", "refusal": call.refusal})
    if content or not answer.tool_calls:
        message = {"type": "message", "id": f"msg_{seen.number}", "role": "assistant", "status": "completed"}
        items.append(message | {"content": content})
    for i, (name, arguments) in enumerate(answer.tool_calls):
        made = {"type": "function_call", "id": f"fc_{i}", "call_id": f"call_{i}", "status": "completed"}
        items.append(made | {"name": name, "arguments": arguments})
    return items
