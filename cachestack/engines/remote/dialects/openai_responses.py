"""OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cachestack.engines.remote.dialects.base import Read, cut_off, parsed, refuse_error
from cachestack.engines.remote.sse import Event
from cachestack.engines.remote.usage import openai_usage
from cachestack.errors import EngineError
from cachestack.requests import Delta, Dialect, FinishReason, Piece

_ENDS = ("response.completed", "response.incomplete")
_FRAME = ("response.created", "response.in_progress", "response.queued", "response.output_text.done")


class Responses:
    name: Dialect = "openai.responses"
    path = "/responses"

    def assembler(self) -> ResponsesAssembler:
        return ResponsesAssembler()

    def read(self, body: Mapping[str, Any]) -> Read:
        output, status = body.get("output"), body.get("status")
        if status in ("failed", "cancelled") or not isinstance(output, list):
            raise EngineError(f"the upstream's answer has no output; its status is {status!r}")
        texts: list[str] = []
        is_text = status in ("completed", "incomplete")
        finish: FinishReason = "stop"
        for item in output:
            kind = item.get("type") if isinstance(item, Mapping) else None
            if kind == "message":
                for part in item.get("content") or ():
                    if part.get("type") == "output_text" and isinstance(part.get("text"), str):
                        texts.append(part["text"])
                        is_text = is_text and not part.get("annotations") and not part.get("logprobs")
                    else:
                        is_text = False
            elif kind == "reasoning":
                is_text = is_text and not item.get("encrypted_content")
            else:
                is_text = False
                finish = "tool_calls" if kind in ("function_call", "custom_tool_call") else finish
        if status == "incomplete":
            reason = (body.get("incomplete_details") or {}).get("reason")
            finish = "content_filter" if reason == "content_filter" else "length"
        return Read("".join(texts), finish, openai_usage(body.get("usage")), is_text)


class ResponsesAssembler:
    """The last event has the whole answer; until then the pieces are passed on."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] | None = None

    def feed(self, event: Event) -> Iterator[Piece]:
        if event.data.strip() == "[DONE]":
            return
        body = parsed(event.data)
        kind = body.get("type")
        if kind in _ENDS and isinstance(body.get("response"), dict):
            self._whole = body["response"]
        elif kind == "response.failed":
            refuse_error((body.get("response") or {}).get("error") or kind)
        elif kind == "error":
            refuse_error(body)
        elif kind == "response.output_text.delta":
            if isinstance(body.get("delta"), str) and body["delta"]:
                yield body["delta"]
            if body.get("logprobs"):
                yield Delta(body | {"delta": ""})
        elif not isinstance(kind, str):
            raise EngineError("the upstream sent an event without a type")
        elif kind not in _FRAME and not _frames_text(body):
            yield Delta(body)

    def whole(self) -> dict[str, Any]:
        if self._whole is None:
            raise cut_off()
        return self._whole


def _frames_text(body: Mapping[str, Any]) -> bool:
    """Whether the event only opens or closes a message or its text."""
    item, part = body.get("item"), body.get("part")
    if isinstance(item, Mapping):
        return item.get("type") == "message"
    return isinstance(part, Mapping) and part.get("type") == "output_text"
