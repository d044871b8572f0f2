"""How a scripted upstream answers one call, and what it saw of one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OWN = object()
WAIT_S = 20.0


class Gate:
    """Where a call waits until the test opens it; no sleeping on either side.

    `wait_reached()` returns once a call waits here. A gate that is never opened is a server that never answers; closing
    the upstream ends those calls too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._reached = threading.Event()

    def open(self) -> None:
        with self._lock:
            self._is_open = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def wait_reached(self, timeout_s: float = WAIT_S) -> None:
        assert self._reached.wait(timeout_s), "no call has come to the gate"

    async def passed(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if not self._is_open:
                self._waiting.append((asyncio.get_running_loop(), event))
            else:
                event.set()
        self._reached.set()
        await event.wait()


@dataclass(frozen=True, slots=True)
class Call:
    """One answer. As it is, it answers `Answer N: QUESTION`, calls a tool where the request has tools and its last
    message is no tool's, and gives JSON that fits where a schema is asked for.

    `text`, `tool_calls` ((name, JSON arguments), ...): these instead. `refusal`, `reasoning`: said besides. `logprobs`:
    one for each piece. `usage`: a mapping in the dialect's own shape instead of the right one; None: none at all.
    `finish`: the dialect's word instead of the right one; `cached_tokens`, `cache_write_tokens`: what usage says of the
    provider's cache.

    What goes wrong: `status` with `headers`, `body` (JSON, or bytes as they are) instead of an answer; `before` and
    `pause` ((pieces, gate)) wait; `cut_at`: the connection ends after so many pieces; `ends_at`: the stream ends there
    as if it were whole; `malformed_at`: an event there is no JSON; `error_at`: an error event there.
    """

    text: str | None = None
    tool_calls: tuple[tuple[str, str], ...] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    logprobs: bool = False
    usage: Any = OWN
    finish: str | None = None
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = OWN
    before: Gate | None = None
    pause: tuple[int, Gate] | None = None
    cut_at: int | None = None
    ends_at: int | None = None
    malformed_at: int | None = None
    error_at: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as the upstream received it. `headers` have lower-case names."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def streams(self) -> bool:
        return isinstance(self.body, Mapping) and self.body.get("stream") is True

    @property
    def question(self) -> str:
        """The text of the last message, whichever dialect it is in."""
        body = self.body if isinstance(self.body, Mapping) else {}
        turns = body.get("messages", body.get("input", body.get("prompt", "")))
        if isinstance(turns, list) and turns:
            turns = turns[-1]
        content = turns.get("content", "") if isinstance(turns, Mapping) else turns
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
        return str(content)


def error(status: int, message: str = "no", *, retry_after: str | None = None, kind: str = "server_error") -> Call:
    """An answer in the shape that OpenAI's and Anthropic's clients both read."""
    headers = {} if retry_after is None else {"retry-after": retry_after}
    body = {"type": "error", "error": {"type": kind, "message": message, "param": None, "code": None}}
    return Call(status=status, headers=headers, body=body)
