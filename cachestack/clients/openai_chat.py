"""OpenAI's chat completions."""

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
    turns_of,
    without,
)
from cachestack.clients.sse import Event, written
from cachestack.decisions import Response
from cachestack.requests import Delta, FinishReason, Generation, Piece, Sampling, Usage

_FINISHED: dict[Any, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_TOOLS = ("tools", "functions", "web_search_options")  # the answer depends on more than the request
_LIMITS = ("max_completion_tokens", "max_tokens")


def ask(body: Body) -> Asking:
    turns, others = turns_of(body["messages"], ("text",))
    limit = next((name for name in _LIMITS if body.get(name) is not None), "")
    tools = [*(body.get("tools") or ()), *(body.get("functions") or ())]
    if body.get("web_search_options") is not None:
        tools.append(body["web_search_options"])
    options = body.get("stream_options") or {}
    return Asking(
        model=body["model"],
        messages=turns,
        others=others,
        sampling=Sampling(
            body.get("temperature"),
            body.get("top_p"),
            body.get("seed"),
            stops_of(body.get("stop")),
            body.get(limit),
            1 if body.get("n") is None else body["n"],
        ),
        tools=tuple(tools),
        response_format=body.get("response_format"),
        rest=without(
            body,
            "model",
            "messages",
            "stream",
            "stream_options",
            "temperature",
            "top_p",
            "seed",
            "stop",
            "n",
            "response_format",
            "max_tokens" if limit == "max_tokens" else "",  # there are servers that know only this name
            *_TOOLS,
        ),
        streams=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
    )


def generation(body: Any) -> Generation:
    """Anything that is not one finished message of text alone is no text."""
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict) or body.get("error"):
        return Generation("", body=body if isinstance(body, dict) else None, is_text=False)
    message = choice["message"]
    text, finish = message.get("content"), _FINISHED.get(choice.get("finish_reason"))
    more = given(choice.get("logprobs")) or _says_more(message)
    is_text = isinstance(text, str) and finish is not None and not more
    return Generation(text if isinstance(text, str) else "", finish or "stop", usage(body), body=body, is_text=is_text)


def usage(body: Body) -> Usage:
    said = body.get("usage") or {}
    details = said.get("prompt_tokens_details") or {}
    return Usage(
        number(said.get("prompt_tokens")), number(details.get("cached_tokens")), number(said.get("completion_tokens"))
    )


def _says_more(message: Mapping[str, Any]) -> bool:
    return any(given(value) for name, value in message.items() if name not in ("role", "content"))


class ChatReader:
    def __init__(self) -> None:
        self._heard = Heard()
        self._finish: Any = None

    def feed(self, event: Event) -> Piece | None:
        if not event.data or event.data.startswith("[DONE]"):
            return None
        body = event.json()
        if body is None or body.get("error"):
            self._heard.is_text = False
            return None
        if body.get("usage"):
            self._heard.usage = usage(body)
        piece: Piece | None = None
        for choice in body.get("choices") or ():
            delta = choice.get("delta") or {}
            self._finish = choice.get("finish_reason") or self._finish
            if choice.get("index") or given(choice.get("logprobs")) or _says_more(delta):
                self._heard.is_text = False
                return Delta(body)
            if isinstance(delta.get("content"), str):
                piece = self._heard.add(delta["content"])
        return piece

    def generation(self) -> Generation:
        finish, heard = _FINISHED.get(self._finish), self._heard
        return Generation(heard.text, finish or "stop", heard.usage, is_text=heard.is_text and finish is not None)


def body(about: Written, response: Response) -> dict[str, Any]:
    message = {"role": "assistant", "content": response.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": response.finish_reason}
    return _head(about, "chat.completion") | {"choices": [choice], "usage": _usage(response.usage)}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _head(about: Written, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{about.answer_id}", "object": kind, "created": about.created_s, "model": about.model}


class ChatWriter:
    def __init__(self, about: Written) -> None:
        self._about = about
        self._sent = ""
        self._begun = False

    def text(self, piece: str) -> bytes:
        self._sent += piece
        return self._opening() + self._chunk({"content": piece})

    def delta(self, body: Body) -> bytes:
        self._begun = True
        return written(None, body)

    def end(self, response: Response) -> bytes:
        events = [self._opening()]
        events += [self.text(part) for part in parts_of(response.text.removeprefix(self._sent))]
        events.append(self._chunk({}, response.finish_reason))
        if self._about.include_usage:
            last = _head(self._about, "chat.completion.chunk") | {"choices": [], "usage": _usage(response.usage)}
            events.append(written(None, last))
        return b"".join([*events, written(None, "[DONE]")])

    def _opening(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._chunk({"role": "assistant", "content": ""})

    def _chunk(self, delta: Body, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return written(None, _head(self._about, "chat.completion.chunk") | {"choices": [choice]})


OPENAI_CHAT = Dialect("openai.chat", "/chat/completions", ask, generation, ChatReader, body, ChatWriter)
