"""What a dialect can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from cachestack.bodies.call import Call, Given
from cachestack.decisions import Response
from cachestack.gateway.faults import Fault
from cachestack.requests import Chunk

Body = Mapping[str, Any]


class Events(Protocol):
    """One answer as server-sent events, in the dialect's order. Each method gives the bytes to send now."""

    def begin(self) -> bytes: ...

    def feed(self, chunk: Chunk) -> bytes:
        """For each chunk that brings text or a delta."""
        ...

    def end(self, response: Response) -> bytes:
        """Why it ended, the usage, and that this was all."""
        ...

    def whole(self, response: Response) -> bytes:
        """Instead of `feed` and `end`: an answer that is more than text and is there in one piece, `response.body`.

        So it is where this request shares the call of one that did not ask for a stream, or its provider does not.
        """
        ...

    def failed(self, fault: Fault) -> bytes:
        """The error, as the last event; nothing after it says that the answer is complete."""
        ...


class Dialect(Protocol):
    """How one endpoint speaks."""

    def parse(self, body: dict[str, Any], given: Given) -> Call:
        """Raises RequestError; UnknownModel for one that is not here."""
        ...

    def body(self, call: Call, response: Response) -> Body: ...

    def events(self, call: Call, trace_id: str) -> Events: ...
