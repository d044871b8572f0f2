"""The content blocks of a message that is whole already, as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_WITH_INPUT = ("tool_use", "server_tool_use", "mcp_tool_use")


def block_events(content: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for index, block in enumerate(content):
        opened, deltas = _opened(block)
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def _opened(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The block as it begins, and what is added to it. Blocks of kinds that are not known begin whole."""
    match block.get("type"):
        case "text":
            cited = block.get("citations")
            deltas = [{"type": "text_delta", "text": block.get("text", "")}]
            deltas += [{"type": "citations_delta", "citation": citation} for citation in cited or ()]
            return {**block, "text": "", "citations": None if cited is None else []}, deltas
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block.get("thinking", "")}]
            deltas.append({"type": "signature_delta", "signature": block.get("signature", "")})
            return {**block, "thinking": "", "signature": ""}, deltas
        case kind if kind in _WITH_INPUT:
            given = json.dumps(block.get("input", {}))
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": given}]
        case _:
            return dict(block), []
