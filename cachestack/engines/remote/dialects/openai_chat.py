"""OpenAI's chat completions and text completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cachestack.engines.remote.dialects.base import Read, cut_off, parsed
from cachestack.engines.remote.dialects.merging import merge
from cachestack.engines.remote.sse import Event
from cachestack.engines.remote.usage import openai_usage
from cachestack.errors import EngineError
from cachestack.requests import Delta, Dialect, FinishReason, Piece

FINISHED: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_BESIDE_THE_ANSWER = frozenset({"role", "content", "reasoning", "reasoning_content", "reasoning_details"})
"""Of a message. Reasoning is shown as it comes, and no part of the answer that may be kept."""


class Chat:
    name: Dialect = "openai.chat"
    path = "/chat/completions"

    def assembler(self) -> ChoicesAssembler:
        return ChoicesAssembler("chat.completion", "delta", "message", _split_delta)

    def read(self, body: Mapping[str, Any]) -> Read:
        first, is_only = _first_choice(body)
        message = first.get("message")
        if not isinstance(message, Mapping):
            raise EngineError("the upstream's answer has no message")
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            raise EngineError(f"the upstream's answer has a content of type {type(content).__name__}")
        is_text = is_only and not any(value for key, value in message.items() if key not in _BESIDE_THE_ANSWER)
        return _read(body, first, content or "", is_text=is_text and content is not None)


class Completions:
    name: Dialect = "openai.completions"
    path = "/completions"

    def assembler(self) -> ChoicesAssembler:
        return ChoicesAssembler("text_completion", None, None, _split_text)

    def read(self, body: Mapping[str, Any]) -> Read:
        first, is_only = _first_choice(body)
        text = first.get("text")
        if not isinstance(text, str):
            raise EngineError("the upstream's answer has no text")
        return _read(body, first, text, is_text=is_only)


class ChoicesAssembler:
    """`inner` is where a choice of an event has its news, `outer` where a whole choice has them."""

    def __init__(self, kind: str, inner: str | None, outer: str | None, split: Any) -> None:
        self._kind, self._inner, self._outer, self._split = kind, inner, outer, split
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}

    def feed(self, event: Event) -> Iterator[Piece]:
        if event.data.strip() == "[DONE]":
            return
        body = parsed(event.data)
        choices = body.get("choices")
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            if "choices" in body:
                raise EngineError("the upstream sent an event whose choices are no list of objects")
            choices = []
        for key, value in body.items():
            if key != "choices" and (value is not None or key not in self._head):
                self._head[key] = value
        for choice in choices:
            self._add(choice)
        if choices:
            yield from self._split(body, choices)

    def whole(self) -> dict[str, Any]:
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not choices or any(choice.get("finish_reason") is None for choice in choices):
            raise cut_off()
        for choice in choices:
            message = choice.get("message", {})
            for call in message.get("tool_calls") or ():
                call.pop("index", None)  # only events number them
            if message.get("content") == "" and (message.get("tool_calls") or message.get("refusal")):
                message["content"] = None  # an event's way of beginning
        return self._head | {"object": self._kind, "choices": choices}

    def _add(self, choice: dict[str, Any]) -> None:
        index = choice.get("index", 0)
        if not isinstance(index, int):
            raise EngineError("the upstream sent a choice whose index is no number")
        whole = self._choices.setdefault(index, {"index": index})
        news = dict(choice)
        if self._inner is not None and self._outer is not None:
            delta = news.pop(self._inner, None)
            message = whole.setdefault(self._outer, {"role": "assistant", "content": None})
            merge(message, delta if isinstance(delta, dict) else {})
        merge(whole, news)


def _split_delta(body: dict[str, Any], choices: list[dict[str, Any]]) -> Iterator[Piece]:
    """The text of the only answer as text, and what else the event says as an event without it."""
    choice = choices[0]
    delta = choice.get("delta") or {}
    is_first = len(choices) == 1 and choice.get("index", 0) == 0
    text = delta.get("content") if is_first else None
    if isinstance(text, str) and text:
        yield text
        delta = {key: value for key, value in delta.items() if key != "content"}
    more = any(value for key, value in delta.items() if key != "role")
    if not is_first or more or choice.get("logprobs"):
        yield Delta(body | {"choices": [choice | {"delta": delta}, *choices[1:]]})


def _split_text(body: dict[str, Any], choices: list[dict[str, Any]]) -> Iterator[Piece]:
    choice = choices[0]
    is_first = len(choices) == 1 and choice.get("index", 0) == 0
    text = choice.get("text") if is_first else None
    if isinstance(text, str) and text:
        yield text
        choice = choice | {"text": ""}
    if not is_first or choice.get("logprobs"):
        yield Delta(body | {"choices": [choice, *choices[1:]]})


def _first_choice(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise EngineError("the upstream's answer has no choices")
    return choices[0], len(choices) == 1


def _read(body: Mapping[str, Any], first: Mapping[str, Any], text: str, *, is_text: bool) -> Read:
    """An end that is not known, or not said, is served and never kept."""
    said = first.get("finish_reason")
    finish = FINISHED.get(said) if isinstance(said, str) else None
    is_text = is_text and finish is not None and not first.get("logprobs")
    return Read(text, finish or "stop", openai_usage(body.get("usage")), is_text)
