"""Calls that were read before: the same bytes of the same principal are not read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from cachestack.bodies.call import Call

_MAX_BODY_BYTES = 32 * 1024
_CALL_BYTES = 12 * 1024
"""What a call takes, however short its body: the answer that was sent last is kept with it."""
_BYTES_PER_BYTE, _OBJECT_BYTES, _VALUE_BYTES = 4, 220, 72
"""What the body itself, each JSON object in it, and each other value take once they are read: `{}` is two bytes of a
body and a hundred times that in memory; one emoji makes a text four times as wide."""


class ParsedCalls:
    """The least recently used go first. What is kept is bounded by what it takes in memory, about. Used from the event
    loop only."""

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._calls: OrderedDict[tuple[Hashable, bytes], Call] = OrderedDict()

    def get(self, given: Hashable, body: bytes) -> Call | None:
        key = (given, body)
        call = self._calls.get(key)
        if call is not None:
            self._calls.move_to_end(key)
        return call

    def put(self, given: Hashable, body: bytes, call: Call) -> None:
        if len(body) > _MAX_BODY_BYTES or (given, body) in self._calls:
            return
        self._calls[given, body] = call
        self._num_bytes += _charged(body)
        while self._num_bytes > self._max_bytes:
            (_, old), _ = self._calls.popitem(last=False)
            self._num_bytes -= _charged(old)


def _charged(body: bytes) -> int:
    num_values = body.count(b",") + body.count(b":") + body.count(b"[")
    num_bytes = len(body) if body.isascii() else 3 * len(body)
    return _CALL_BYTES + _BYTES_PER_BYTE * num_bytes + _OBJECT_BYTES * body.count(b"{") + _VALUE_BYTES * num_values
