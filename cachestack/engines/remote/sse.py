"""Server-sent events, from bytes as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """`name` is empty where the stream does not name its events."""

    name: str
    data: str


class EventDecoder:
    """Feed it bytes in any pieces. An event that the stream breaks off is never given out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Whole events. Raises UnicodeDecodeError for what is no UTF-8."""
        self._rest += piece
        while (end := self._rest.find(b"\n")) >= 0:
            line = bytes(self._rest[:end]).removesuffix(b"\r").decode("utf-8")
            del self._rest[: end + 1]
            if line:
                self._take(line)
                continue
            if self._data:
                yield Event(self._name, "\n".join(self._data))
            self._name, self._data = "", []

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")  # a comment has no name
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
