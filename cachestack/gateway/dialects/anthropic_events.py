"""A streamed message: `message_start`, the content blocks one after the other, `message_delta`, `message_stop`."""

from __future__ import annotations

from typing import Any

from cachestack.bodies.call import Call
from cachestack.decisions import Response
from cachestack.gateway.dialects.anthropic_error import anthropic_error
from cachestack.gateway.dialects.anthropic_shapes import STOP_REASONS, message_of, usage_of
from cachestack.gateway.dialects.anthropic_whole import block_events
from cachestack.gateway.faults import Fault
from cachestack.gateway.wire import event
from cachestack.requests import Chunk


class MessageEvents:
    """Text goes into blocks that are opened and closed here. Blocks of other kinds come as the provider's events, and
    are only numbered anew, so that all blocks of this stream are counted from 0 without a gap."""

    def __init__(self, call: Call, trace_id: str) -> None:
        self._trace_id = trace_id
        self._model = call.model
        self._num_blocks = 0
        self._text_block: int | None = None
        self._passed: dict[int, int] = {}  # from the provider's number of a block to ours

    def begin(self) -> bytes:
        return _event({"type": "message_start", "message": message_of(self._trace_id, self._model)})

    def feed(self, chunk: Chunk) -> bytes:
        if chunk.delta is not None:
            return self._pass_on(dict(chunk.delta.body))
        if not chunk.text:
            return b""
        opened = b"" if self._text_block is not None else self._open_text()
        delta = {"type": "text_delta", "text": chunk.text}
        return opened + _event({"type": "content_block_delta", "index": self._text_block, "delta": delta})

    def end(self, response: Response) -> bytes:
        made = response.body or {}
        delta = {
            "stop_reason": made.get("stop_reason") or STOP_REASONS[response.finish_reason],
            "stop_sequence": made.get("stop_sequence"),
        }
        usage = made.get("usage") or usage_of(response.usage)
        last = _event({"type": "message_delta", "delta": delta, "usage": usage})
        return self._close_text() + last + _event({"type": "message_stop"})

    def whole(self, response: Response) -> bytes:
        blocks = (response.body or {}).get("content") or []
        return b"".join(map(_event, block_events(blocks))) + self.end(response)

    def failed(self, fault: Fault) -> bytes:
        return event(anthropic_error(fault, self._trace_id), "error")

    def _pass_on(self, body: dict[str, Any]) -> bytes:
        number = body.get("index")
        match body.get("type"), number:
            case "content_block_start", int():
                closed = self._close_text()
                self._passed[number] = self._new_block()
                return closed + _event({**body, "index": self._passed[number]})
            case (("content_block_delta" | "content_block_stop"), int()) if number in self._passed:
                return _event({**body, "index": self._passed[number]})
            case "content_block_delta", _ if self._text_block is not None:  # a citation in the text
                return _event({**body, "index": self._text_block})
            case _:
                return b""

    def _open_text(self) -> bytes:
        self._text_block = self._new_block()
        block = {"type": "text", "text": "", "citations": None}
        return _event({"type": "content_block_start", "index": self._text_block, "content_block": block})

    def _close_text(self) -> bytes:
        if self._text_block is None:
            return b""
        number, self._text_block = self._text_block, None
        return _event({"type": "content_block_stop", "index": number})

    def _new_block(self) -> int:
        self._num_blocks += 1
        return self._num_blocks - 1


def _event(value: dict[str, Any]) -> bytes:
    return event(value, value["type"])
