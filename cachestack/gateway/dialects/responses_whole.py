"""The output items of a response that is whole already, as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SAID: Mapping[str, tuple[str, str]] = {
    "output_text": ("text", "response.output_text"),
    "refusal": ("refusal", "response.refusal"),
}
_GIVEN: Mapping[str, tuple[str, str]] = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}


def item_events(output: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Items of kinds that are not known are added and done as they are."""
    for number, item in enumerate(output):
        place = {"output_index": number, "item_id": item.get("id", "")}
        kind = str(item.get("type"))
        begun = dict(item) if item.get("status") is None else {**item, "status": "in_progress"}
        if kind == "message":
            begun["content"] = []
        elif kind in _GIVEN:
            begun[_GIVEN[kind][0]] = ""
        yield {"type": "response.output_item.added", "output_index": number, "item": begun}
        if kind == "message":
            for index, part in enumerate(item.get("content") or ()):
                yield from _part_events(part, {**place, "content_index": index})
        elif kind in _GIVEN:
            field, name = _GIVEN[kind]
            yield {"type": f"{name}.delta", "delta": item.get(field, ""), **place}
            yield {"type": f"{name}.done", field: item.get(field, ""), "name": item.get("name"), **place}
        yield {"type": "response.output_item.done", "output_index": number, "item": dict(item)}


def _part_events(part: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    known = _SAID.get(str(part.get("type")))
    begun = dict(part) if known is None else {**part, known[0]: ""}
    yield {"type": "response.content_part.added", "part": begun, **place}
    if known is not None:
        field, name = known
        logprobs = {"logprobs": part.get("logprobs") or []} if field == "text" else {}
        yield {"type": f"{name}.delta", "delta": part.get(field, ""), **logprobs, **place}
        yield {"type": f"{name}.done", field: part.get(field, ""), **logprobs, **place}
    yield {"type": "response.content_part.done", "part": dict(part), **place}
