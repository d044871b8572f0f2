"""What an engine needs of a dialect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from cachestack.engines.remote.sse import Event
from cachestack.errors import EngineError
from cachestack.requests import Dialect, FinishReason, Piece, Usage


@dataclass(frozen=True, slots=True)
class Read:
    """A provider's whole answer, understood."""

    text: str
    finish_reason: FinishReason
    usage: Usage
    is_text: bool


class Assembler(Protocol):
    """Puts one streamed answer together."""

    def feed(self, event: Event) -> Iterable[Piece]:
        """The pieces that are news to the caller. Raises EngineError for what is no event of the dialect."""
        ...

    def whole(self) -> dict[str, Any]:
        """The answer as it would have come in one piece. Raises EngineError where the stream ended before it did."""
        ...


class RemoteDialect(Protocol):
    name: Dialect
    path: str

    def assembler(self) -> Assembler: ...

    def read(self, body: Mapping[str, Any]) -> Read:
        """Raises EngineError where it is an error, or no answer."""
        ...


def parsed(data: str | bytes) -> dict[str, Any]:
    """A JSON object. Raises EngineError for anything else, also for an error in an answer's place."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise EngineError(f"the upstream sent what is no JSON: {_excerpt(data)}") from error
    if not isinstance(body, dict):
        raise EngineError(f"the upstream sent JSON that is no object: {_excerpt(data)}")
    if body.get("error"):
        refuse_error(body["error"])
    return body


def refuse_error(error: Any) -> NoReturn:
    message = error.get("message", error) if isinstance(error, Mapping) else error
    raise EngineError(f"the upstream answered with an error where an answer was due: {str(message)[:500]}")


def cut_off() -> EngineError:
    return EngineError("the upstream's stream ended before its answer was whole")


def _excerpt(data: str | bytes) -> str:
    return repr(data[:200])
