"""An answer from the cache that was sent a moment ago, as bytes: only what names the request is new in it."""

from __future__ import annotations

import time
from collections.abc import Callable

from cachestack.decisions import Response

MAX_BODY_BYTES = 8 * 1024
"""A longer answer is not kept here too: there is one of these for each call that was read."""


class Replay:
    """The last answer that one call had from the cache.

    Within a second two answers from one entry differ in the trace id alone. It is random, and was drawn after the
    answer's text was there, so that it stands nowhere else in the bytes.
    """

    __slots__ = ("_body", "_hit_id", "_made_s", "_text", "_trace_id")

    def __init__(self) -> None:
        self._hit_id: str | None = None
        self._text = ""
        self._made_s = 0
        self._trace_id = self._body = b""

    def body(self, response: Response, make: Callable[[], bytes]) -> bytes:
        """`make` gives the bytes of this response."""
        trace_id = response.trace.request_id.encode()
        now_s = int(time.time())
        if now_s == self._made_s and response.text is self._text and response.hit_id == self._hit_id:
            return self._body.replace(self._trace_id, trace_id)
        body = make()
        if response.hit_id is not None and len(body) <= MAX_BODY_BYTES:
            self._hit_id, self._text, self._made_s = response.hit_id, response.text, now_s
            self._trace_id, self._body = trace_id, body
        return body
