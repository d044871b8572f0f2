"""OpenAI's responses."""

from __future__ import annotations

from typing import Any

from cachestack.bodies.openai_responses import may_change
from cachestack.clients.dialect import (
    Asking,
    Body,
    Dialect,
    Heard,
    Written,
    given,
    number,
    parts_of,
    turns_of,
    without,
)
from cachestack.clients.sse import Event, written
from cachestack.decisions import Response
from cachestack.errors import RequestError
from cachestack.requests import Delta, FinishReason, Generation, Message, Piece, Sampling, Usage

_TEXTS = ("input_text", "output_text", "text")
_INCOMPLETE: dict[Any, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_REASONS: dict[FinishReason, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
_STATE = ("previous_response_id", "conversation", "background")
_ECHOED = (
    "instructions", "metadata", "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p",
    "max_output_tokens", "reasoning", "text", "truncation", "user", "store",
)  # fmt: skip
# Events that say nothing which the last one does not say again.
_AROUND = {
    "response.created", "response.queued", "response.in_progress", "response.output_item.added",
    "response.output_item.done", "response.content_part.added", "response.content_part.done",
    "response.output_text.done",
}  # fmt: skip
ANSWER_ID = "resp_cachestack_"


def ask(body: Body) -> Asking:
    asked = body.get("input")
    items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    if not isinstance(items, list):
        raise RequestError("input is text or a list of items")
    turns, others = turns_of([_turn(item) for item in items], _TEXTS)
    if body.get("instructions") is not None:
        turns, others = (Message("system", body["instructions"]), *turns), ["instructions", *others]
    referring = any(isinstance(item, dict) and item.get("type") == "item_reference" for item in items)
    return Asking(
        model=body["model"],
        messages=turns,
        others=others,
        sampling=Sampling(body.get("temperature"), body.get("top_p"), None, (), body.get("max_output_tokens")),
        tools=tuple(body.get("tools") or ()),
        response_format=body.get("text"),
        rest=without(
            body,
            "model",
            "input",
            "instructions",
            "stream",
            "stream_options",
            "temperature",
            "top_p",
            "max_output_tokens",
            "tools",
            "text",
        ),
        streams=bool(body.get("stream")),
        is_stateful=referring or any(given(body.get(name)) for name in _STATE) or may_change(body.get("prompt")),
    )


def _turn(item: Any) -> Any:
    if not isinstance(item, dict):
        raise RequestError("an item of input is an object")
    if item.get("type", "message") == "message":
        return without(item, "type")
    return {"role": "tool", "content": None, "item": item}


def generation(body: Any) -> Generation:
    """Anything that is not one finished message of text alone is no text. Reasoning that says nothing may go before."""
    output = body.get("output") if isinstance(body, dict) else None
    if not isinstance(output, list) or body.get("error"):
        return Generation("", body=body if isinstance(body, dict) else None, is_text=False)
    texts, is_text = [], True
    for item in output:
        match item:
            case {"type": "message", "content": [{"type": "output_text", "text": str(text), **more}]}:
                texts.append(text)
                is_text = is_text and not any(given(value) for value in more.values())
            case {"type": "reasoning"}:
                is_text = is_text and not any(given(item.get(k)) for k in ("summary", "content", "encrypted_content"))
            case _:
                is_text = False
    finish: FinishReason | None = "stop" if body.get("status") == "completed" else None
    if body.get("status") == "incomplete":
        finish = _INCOMPLETE.get((body.get("incomplete_details") or {}).get("reason"))
    is_text = is_text and len(texts) == 1 and finish is not None
    return Generation(texts[0] if texts else "", finish or "stop", usage(body), body=body, is_text=is_text)


def usage(body: Body) -> Usage:
    said = body.get("usage") or {}
    details = said.get("input_tokens_details") or {}
    return Usage(
        number(said.get("input_tokens")), number(details.get("cached_tokens")), number(said.get("output_tokens"))
    )


class ResponseReader:
    """The last event has the whole answer; what was streamed must be its text."""

    def __init__(self) -> None:
        self._heard = Heard()
        self._whole: Any = None

    def feed(self, event: Event) -> Piece | None:
        if not event.data or event.data.startswith("[DONE]"):
            return None
        body = event.json()
        kind = None if body is None else body.get("type")
        if body is None or kind in (None, "error", "response.failed"):
            self._heard.is_text = False
        elif kind in ("response.completed", "response.incomplete"):
            self._whole = body.get("response")
        elif kind == "response.output_text.delta" and isinstance(body.get("delta"), str):
            return self._heard.add(body["delta"])
        elif kind not in _AROUND or _is_about_more(body):
            return Delta(body)
        return None

    def generation(self) -> Generation:
        whole, heard = generation(self._whole), self._heard
        is_text = whole.is_text and heard.is_text and whole.text == heard.text
        return Generation(heard.text, whole.finish_reason, whole.usage, body=whole.body, is_text=is_text)


def _is_about_more(body: Body) -> bool:
    """Whether an event is about an item, or a part of one, that has no text."""
    about = body.get("item") or body.get("part") or {}
    return about.get("type", "message") not in ("message", "reasoning", "output_text")


def body(about: Written, response: Response) -> dict[str, Any]:
    return _response(about, _REASONS.get(response.finish_reason), [_message(about, response.text)], response.usage)


def _message(about: Written, text: str | None) -> dict[str, Any]:
    return {
        "id": f"msg_{about.answer_id}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress" if text is None else "completed",
        "content": [] if text is None else [_part(text)],
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response(about: Written, incomplete: str | None, output: list[Any], usage: Usage | None) -> dict[str, Any]:
    said = None
    if usage is not None:
        said = {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.total_tokens,
        }
    status = "in_progress" if usage is None else "incomplete" if incomplete else "completed"
    echoed = {name: about.asked.get(name) for name in _ECHOED}
    return echoed | {
        "id": f"{ANSWER_ID}{about.answer_id}",
        "object": "response",
        "created_at": about.created_s,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "model": about.model,
        "output": output,
        "parallel_tool_calls": about.asked.get("parallel_tool_calls", True),
        "tool_choice": about.asked.get("tool_choice", "auto"),
        "tools": about.asked.get("tools") or [],
        "text": about.asked.get("text") or {"format": {"type": "text"}},
        "previous_response_id": None,
        "usage": said,
    }


class ResponseWriter:
    def __init__(self, about: Written) -> None:
        self._about = about
        self._sent = ""
        self._num_events = 0
        self._item_is_open = False

    def text(self, piece: str) -> bytes:
        self._sent += piece
        events = [self._opening()]
        if not self._item_is_open:
            self._item_is_open = True
            events += [
                self._event("response.output_item.added", output_index=0, item=_message(self._about, None)),
                self._in_part("response.content_part.added", part=_part("")),
            ]
        return b"".join([*events, self._in_part("response.output_text.delta", delta=piece, logprobs=[])])

    def delta(self, body: Body) -> bytes:
        return self._opening() + self._event(**body)

    def end(self, response: Response) -> bytes:
        events = [self._opening()]
        events += [self.text(part) for part in parts_of(response.text.removeprefix(self._sent))]
        whole = dict(response.body) if response.body is not None else body(self._about, response)
        if self._item_is_open:
            item = _message(self._about, response.text)
            events += [
                self._in_part("response.output_text.done", text=response.text, logprobs=[]),
                self._in_part("response.content_part.done", part=_part(response.text)),
                self._event("response.output_item.done", output_index=0, item=item),
            ]
        kind = "response.incomplete" if whole.get("status") == "incomplete" else "response.completed"
        return b"".join([*events, self._event(kind, response=whole)])

    def _opening(self) -> bytes:
        if self._num_events:
            return b""
        begun = _response(self._about, None, [], None)
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def _in_part(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=f"msg_{self._about.answer_id}", output_index=0, content_index=0, **fields)

    def _event(self, type: str, **fields: Any) -> bytes:
        number_, self._num_events = self._num_events, self._num_events + 1
        return written(type, {"type": type, **fields, "sequence_number": number_})


OPENAI_RESPONSES = Dialect("openai.responses", "/responses", ask, generation, ResponseReader, body, ResponseWriter)
