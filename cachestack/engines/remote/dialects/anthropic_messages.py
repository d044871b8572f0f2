"""Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cachestack.engines.remote.dialects.base import Read, cut_off, parsed
from cachestack.engines.remote.sse import Event
from cachestack.engines.remote.usage import anthropic_usage
from cachestack.errors import EngineError
from cachestack.requests import Delta, Dialect, FinishReason, Piece

FINISHED: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_NOT_TOLD = ("stop_sequence", "model_context_window_exceeded")
"""Ends of which a kept text could not tell: which sequence it was, which limit."""
_CONTINUED = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class Messages:
    name: Dialect = "anthropic.messages"
    path = "/v1/messages"

    def assembler(self) -> MessagesAssembler:
        return MessagesAssembler()

    def read(self, body: Mapping[str, Any]) -> Read:
        blocks = body.get("content")
        if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
            raise EngineError("the upstream's answer has no content")
        texts = [block.get("text") for block in blocks if block.get("type") == "text"]
        said = body.get("stop_reason")
        finish = FINISHED.get(said) if isinstance(said, str) else None
        is_text = (
            finish is not None
            and said not in _NOT_TOLD
            and len(texts) == len(blocks)
            and not any(b.get("citations") for b in blocks)
        )
        text = "".join(text for text in texts if isinstance(text, str))
        return Read(text, finish or "stop", anthropic_usage(body.get("usage")), is_text)


class MessagesAssembler:
    def __init__(self) -> None:
        self._whole: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}

    def feed(self, event: Event) -> Iterator[Piece]:
        body = parsed(event.data)
        match body.get("type"):
            case "message_start":
                self._whole = dict(_object(body, "message"))
            case "content_block_start":
                block = _object(body, "content_block")
                self._blocks[_index(body)] = dict(block)
                if block.get("type") != "text":
                    yield Delta(body)
                elif isinstance(block.get("text"), str) and block["text"]:
                    yield block["text"]
            case "content_block_delta":
                yield from self._continue(body)
            case "content_block_stop":
                if self._block(body).get("type") != "text":
                    yield Delta(body)
            case "message_delta":
                self._end(body)
            case "ping" | "message_stop":
                pass
            case str():
                yield Delta(body)
            case _:
                raise EngineError("the upstream sent an event without a type")

    def whole(self) -> dict[str, Any]:
        if self._whole is None or self._whole.get("stop_reason") is None:
            raise cut_off()
        for index, text in self._inputs.items():
            try:
                self._blocks[index]["input"] = json.loads(text or "{}")
            except ValueError as error:
                raise EngineError("the upstream's tool call is no JSON") from error
        return self._whole | {"content": [self._blocks[index] for index in sorted(self._blocks)]}

    def _continue(self, body: dict[str, Any]) -> Iterator[Piece]:
        block, delta = self._block(body), _object(body, "delta")
        kind = delta.get("type")
        field = _CONTINUED.get(kind) if isinstance(kind, str) else None
        if field is not None:
            text = delta.get(field)
            if not isinstance(text, str):
                raise EngineError(f"the upstream sent a {kind} without {field}")
            block[field] = (block.get(field) or "") + text
        elif kind == "input_json_delta":
            index = _index(body)
            self._inputs[index] = self._inputs.get(index, "") + str(delta.get("partial_json", ""))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]
        if kind != "text_delta":
            yield Delta(body)
        elif delta["text"]:
            yield delta["text"]

    def _end(self, body: dict[str, Any]) -> None:
        if self._whole is None:
            raise EngineError("the upstream ended a message that it had not begun")
        self._whole |= {key: value for key, value in _object(body, "delta").items() if value is not None}
        usage, before = body.get("usage"), self._whole.get("usage")
        if isinstance(usage, dict):
            known = before if isinstance(before, dict) else {}
            self._whole["usage"] = known | {key: value for key, value in usage.items() if value is not None}

    def _block(self, body: dict[str, Any]) -> dict[str, Any]:
        if _index(body) not in self._blocks:
            raise EngineError("the upstream continued a block that it had not begun")
        return self._blocks[_index(body)]


def _index(body: Mapping[str, Any]) -> int:
    index = body.get("index")
    if not isinstance(index, int):
        raise EngineError("the upstream sent an event without its block's index")
    return index


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = body.get(name)
    if not isinstance(inner, dict):
        raise EngineError(f"the upstream sent an event without {name}")
    return inner
