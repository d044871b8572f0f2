"""Anthropic's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.clients.dialect import (
    Asking,
    Body,
    Dialect,
    Heard,
    Written,
    given,
    number,
    parts_of,
    stops_of,
    text_of,
    turns_of,
    without,
)
from cachestack.clients.sse import Event, written
from cachestack.decisions import Response
from cachestack.requests import Delta, FinishReason, Generation, Message, Piece, Sampling, Usage

# Where the provider says more than that it is done (which stop sequence it was), the answer is not text alone.
_FINISHED: dict[Any, FinishReason] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_STOPPED = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def ask(body: Body) -> Asking:
    turns, others = turns_of(body["messages"], ("text",))
    if body.get("system") is not None:
        system, rest = text_of(body["system"], ("text",))
        turns = (Message("system", system), *turns)
        others = [["system", rest], *others]
    return Asking(
        model=body["model"],
        messages=turns,
        others=others,
        sampling=Sampling(
            body.get("temperature"),
            body.get("top_p"),
            None,
            stops_of(body.get("stop_sequences")),
            body.get("max_tokens"),
        ),
        tools=tuple(body.get("tools") or ()),
        response_format=None,
        rest=without(
            body,
            "model",
            "messages",
            "system",
            "stream",
            "temperature",
            "top_p",
            "stop_sequences",
            "max_tokens",
            "tools",
        ),
        streams=bool(body.get("stream")),
        is_stateful=body.get("container") is not None,
    )


def generation(body: Any) -> Generation:
    """Anything that is not one finished block of text alone is no text."""
    blocks = body.get("content") if isinstance(body, dict) else None
    if not isinstance(blocks, list) or body.get("type") != "message":
        return Generation("", body=body if isinstance(body, dict) else None, is_text=False)
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    finish = _FINISHED.get(body.get("stop_reason"))
    text = texts[0] if len(texts) == 1 and isinstance(texts[0], str) else ""
    is_text = len(blocks) == len(texts) == 1 and finish is not None and not given(blocks[0].get("citations"))
    return Generation(text, finish or "stop", usage(body.get("usage")), body=body, is_text=is_text)


def usage(said: Any) -> Usage:
    """All tokens of the prompt, those read from the provider's cache among them."""
    if not isinstance(said, Mapping):
        return Usage()
    cached = number(said.get("cache_read_input_tokens"))
    written_to_cache = number(said.get("cache_creation_input_tokens"))
    return Usage(
        number(said.get("input_tokens")) + cached + written_to_cache, cached, number(said.get("output_tokens"))
    )


class MessageReader:
    def __init__(self) -> None:
        self._heard = Heard()
        self._usage: dict[str, Any] = {}
        self._num_blocks = 0
        self._stop_reason: Any = None
        self._is_whole = False

    def feed(self, event: Event) -> Piece | None:
        if not event.data:
            return None
        body: Any = event.json()
        match body:
            case {"type": "message_start", "message": dict(message)}:
                self._usage.update(message.get("usage") or {})
            case {"type": "content_block_start", "content_block": {"type": "text", **block}}:
                self._num_blocks += 1
                if self._num_blocks == 1 and not given(block.get("citations")):
                    return self._heard.add(str(block.get("text") or ""))
                return self._more(body)
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                return self._heard.add(text) if self._num_blocks == 1 else self._more(body)
            case {"type": "content_block_start" | "content_block_delta"}:
                self._num_blocks += body["type"] == "content_block_start"
                return self._more(body)
            case {"type": "message_delta"}:
                delta = body.get("delta") or {}
                self._stop_reason = delta.get("stop_reason")
                self._usage.update({k: v for k, v in (body.get("usage") or {}).items() if v is not None})
            case {"type": "message_stop"}:
                self._is_whole = True
            case {"type": "content_block_stop" | "ping"}:
                pass
            case _:  # an error, an event that is not known, no JSON
                self._heard.is_text = False
        return None

    def _more(self, body: Body) -> Delta:
        self._heard.is_text = False
        return Delta(body)

    def generation(self) -> Generation:
        finish, heard = _FINISHED.get(self._stop_reason), self._heard
        is_text = heard.is_text and finish is not None and self._is_whole and self._num_blocks == 1
        return Generation(heard.text, finish or "stop", usage(self._usage), is_text=is_text)


def body(about: Written, response: Response) -> dict[str, Any]:
    return _message(about, [{"type": "text", "text": response.text, "citations": None}]) | {
        "stop_reason": _STOPPED[response.finish_reason],
        "usage": _usage(response.usage),
    }


def _message(about: Written, content: list[Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{about.answer_id}",
        "type": "message",
        "role": "assistant",
        "model": about.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(Usage()),
    }


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


class MessageWriter:
    def __init__(self, about: Written) -> None:
        self._about = about
        self._sent = ""
        self._begun = False
        self._block_is_open = False

    def text(self, piece: str) -> bytes:
        self._sent += piece
        events = [self._opening()]
        if not self._block_is_open:
            self._block_is_open = True
            events.append(_event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
        events.append(_event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece}))
        return b"".join(events)

    def delta(self, body: Body) -> bytes:
        return self._opening() + written(str(body.get("type")), body)

    def end(self, response: Response) -> bytes:
        events = [self._opening()]
        events += [self.text(part) for part in parts_of(response.text.removeprefix(self._sent))]
        if self._block_is_open:
            events.append(_event("content_block_stop", index=0))
        stopped = {"stop_reason": _STOPPED[response.finish_reason], "stop_sequence": None}
        events.append(_event("message_delta", delta=stopped, usage=_usage(response.usage)))
        return b"".join([*events, _event("message_stop")])

    def _opening(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return _event("message_start", message=_message(self._about, []))


def _event(kind: str, **fields: Any) -> bytes:
    return written(kind, {"type": kind, **fields})


ANTHROPIC_MESSAGES = Dialect("anthropic.messages", "/messages", ask, generation, MessageReader, body, MessageWriter)
