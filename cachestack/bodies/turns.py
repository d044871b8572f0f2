"""Messages from a body: their text, and beside it whatever is not text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.errors import RequestError
from cachestack.keys import canonical_json, digest
from cachestack.requests import Message

_TEXT_PARTS = ("text", "input_text", "output_text")
_NO_EFFECT = ("cache_control", "prompt_cache_breakpoint")


class Turns:
    """Messages in order. Parts of text are joined by line ends; everything else stands in `beside`, and is compared.

    `beside` maps a message's place to where its text parts end (unless there is one), its other fields, and a
    digest of each part that is not text with its place: an image can be megabytes, and a key must not be. `not_text`
    names what a model of text cannot read, in order.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.beside: dict[str, dict[str, Any]] = {}
        self.not_text: list[str] = []

    def add(self, role: str, content: Any, others: Mapping[str, Any] | None = None) -> None:
        """Raises RequestError for content that is neither text nor a list of parts."""
        place = str(len(self.messages))
        beside: dict[str, Any] = {}
        fields = {name: value for name, value in (others or {}).items() if value is not None}
        if fields:
            beside["fields"] = fields
            self.not_text += [f"{name} in a message" for name in fields if name != "name"]
        match content:
            case str():
                text = content
            case None:
                text = ""
            case list():
                text = self._joined(content, beside, place)
            case _:
                raise RequestError(f"messages.{place}.content must be text or a list of parts")
        if beside:
            self.beside[place] = beside
        if not text.strip() and "others" in beside:
            text = "(no text)"  # an image alone is a question, too
        self.messages.append(Message(role, text))

    def _joined(self, parts: list[Any], beside: dict[str, Any], place: str) -> str:
        texts: list[str] = []
        others: list[list[Any]] = []
        for number, part in enumerate(parts):
            if not isinstance(part, dict) or not isinstance(part.get("type"), str):
                raise RequestError(f"messages.{place}.content.{number} must be an object with a type")
            if part["type"] in _TEXT_PARTS and isinstance(part.get("text"), str):
                texts.append(part["text"])
                rest = {k: v for k, v in part.items() if k not in ("type", "text", *_NO_EFFECT) and v}
                if rest:
                    others.append([number, digest_of(rest)])
                continue
            others.append([number, digest_of({k: v for k, v in part.items() if k not in _NO_EFFECT})])
            self.not_text.append(f"content of the type {part['type']}")
        if len(texts) != 1:
            beside["texts"] = [len(text) for text in texts[:-1]]
        if others:
            beside["others"] = others
        return "\n".join(texts)


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value. Raises RequestError where it is nested too deeply."""
    try:
        return digest(b"part", canonical_json(value))
    except (TypeError, ValueError) as error:
        raise RequestError(f"a part of a message cannot be compared: {error}") from None


def add_turns(turns: Turns, messages: Any, roles: tuple[str, ...]) -> None:
    """All messages of a body. Raises RequestError that names the place."""
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list with at least one message")
    for number, message in enumerate(messages):
        if not isinstance(message, dict):
            raise RequestError(f"messages.{number} must be an object with role and content")
        role = message.get("role")
        if role not in roles:
            raise RequestError(f"messages.{number}.role must be one of {', '.join(roles)}, not {role!r}")
        turns.add(role, message.get("content"), {k: v for k, v in message.items() if k not in ("role", "content")})
