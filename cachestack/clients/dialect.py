"""What a provider's dialect is: reading requests and answers, writing answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cachestack.clients.sse import Event
from cachestack.decisions import Response
from cachestack.errors import RequestError
from cachestack.requests import Dialect as DialectName
from cachestack.requests import Generation, Message, Piece, Sampling, Usage

Body = Mapping[str, Any]
REPLAY_CHARS = 24


@dataclass(frozen=True, slots=True)
class Asking:
    """A body as CacheStack sees it. `others`: what is no text in which message; `rest`: all parameters not named here.

    `is_stateful`: the answer depends on, or changes, what the provider keeps: no cache has a part in that.
    """

    model: str
    messages: tuple[Message, ...]
    others: Sequence[Any]
    sampling: Sampling
    tools: tuple[Any, ...]
    response_format: Any
    rest: Body
    streams: bool
    include_usage: bool = True
    is_stateful: bool = False


class Reader(Protocol):
    """Reads one streamed answer."""

    def feed(self, event: Event) -> Piece | None:
        """What the event says: text, more than text, or nothing that is part of the answer."""
        ...

    def generation(self) -> Generation:
        """What came, when nothing more comes."""
        ...


class Writer(Protocol):
    """Writes one streamed answer; each method gives the bytes to send."""

    def text(self, piece: str) -> bytes: ...

    def delta(self, body: Body) -> bytes: ...

    def end(self, response: Response) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Written:
    """What an answer that did not come from the provider just now says of itself. `asked`: the body of its request."""

    answer_id: str
    model: str
    created_s: int
    include_usage: bool = True
    asked: Body = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dialect:
    """`path`: how the address of its calls ends."""

    name: DialectName
    path: str
    ask: Callable[[Body], Asking]
    generation: Callable[[Any], Generation]
    reader: Callable[[], Reader]
    body: Callable[[Written, Response], dict[str, Any]]
    writer: Callable[[Written], Writer]


@dataclass(slots=True)
class Heard:
    """What a reader has gathered. `is_text` begins as True and is never True again."""

    texts: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    is_text: bool = True

    def add(self, text: str) -> str | None:
        self.texts.append(text)
        return text or None

    @property
    def text(self) -> str:
        return "".join(self.texts)


def turns_of(messages: Any, text_types: Collection[str]) -> tuple[tuple[Message, ...], list[Any]]:
    """Messages as texts, and what else stands in them, by their place. Raises RequestError."""
    turns, others = [], []
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise RequestError("a message is an object")
        text, rest = text_of(message.get("content"), text_types)
        more = {k: v for k, v in message.items() if k not in ("role", "content") and v is not None}
        turns.append(Message(str(message.get("role")), text))
        if rest is not None or more:
            others.append([i, rest, more])
    return tuple(turns), others


def text_of(content: Any, text_types: Collection[str]) -> tuple[str, Any]:
    """The text to compare as a text, and all else (None: nothing). Of several texts it is the last: a question comes
    after what it is about."""
    if content is None or isinstance(content, str):
        return content or "", None
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise RequestError("content is text or a list of parts")
    place = max((i for i, part in enumerate(content) if _is_text(part, text_types)), default=None)
    if place is None:
        return "", content
    text: str = content[place]["text"]
    if len(content) == 1 and set(content[0]) == {"type", "text"}:
        return text, None
    return text, [*content[:place], {**content[place], "text": None}, *content[place + 1 :]]


def _is_text(part: Mapping[str, Any], text_types: Collection[str]) -> bool:
    return part.get("type") in text_types and isinstance(part.get("text"), str)


def stops_of(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def without(body: Body, *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def given(value: Any) -> bool:
    """Whether a field of an answer says anything."""
    return value not in (None, "", [], {}, False)


def number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def parts_of(text: str) -> list[str]:
    return [text[i : i + REPLAY_CHARS] for i in range(0, len(text), REPLAY_CHARS)]


def as_bytes(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
