"""Calls that were read before: the same bytes of the same principal are not read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from cachestack.bodies.call import Call

_MAX_BODY_BYTES = 32 * 1024
_CALL_BYTES = 12 * 1024
"""What a call takes, however short its body: the answer that was sent last is kept with it."""


class ParsedCalls:
    """The least recently used go first. What is kept is bounded: a Call takes so much, and a few times its body. Used
    from the event loop only."""

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
        self._num_bytes += len(body) + _CALL_BYTES
        while self._num_bytes > self._max_bytes:
            (_, old), _ = self._calls.popitem(last=False)
            self._num_bytes -= len(old) + _CALL_BYTES
