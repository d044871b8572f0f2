"""Server-sent events, with the bytes that they came in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r")


@dataclass(frozen=True, slots=True)
class Event:
    """`raw`: all its bytes, the blank line included."""

    raw: bytes
    name: str
    data: str

    def json(self) -> dict[str, Any] | None:
        """Its data as an object; None where it is none."""
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


class Splitter:
    """From bytes, cut anywhere, to events. Joined, the events' bytes are the bytes that went in."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        start = max(0, len(self._buffer) - 3)
        self._buffer += chunk
        while (blank := _BLANK.search(self._buffer, start)) is not None:
            raw, self._buffer, start = self._buffer[: blank.end()], self._buffer[blank.end() :], 0
            yield _event(raw)

    def end(self) -> Iterator[Event]:
        """What came after the last blank line."""
        if self._buffer:
            raw, self._buffer = self._buffer, b""
            yield _event(raw)


def written(name: str | None, body: Any) -> bytes:
    """One event. `name`: None for those that have none."""
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {text}\n\n".encode("utf-8", "surrogatepass")


def _event(raw: bytes) -> Event:
    name, data = "", []
    for line in raw.decode("utf-8", "replace").splitlines():
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
    return Event(raw, name, "\n".join(data))
