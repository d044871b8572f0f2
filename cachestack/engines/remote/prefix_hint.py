"""What a provider's own cache may be told of a request: which beginning is stable, whose it is, how long it is used."""

from __future__ import annotations

import hmac
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cachestack.keys import canonical_json, digest
from cachestack.requests import Request

_CHARS_PER_TOKEN = 4
_HORIZON_S = 3600.0


@dataclass(frozen=True, slots=True)
class PrefixHint:
    """`num_messages`: how many leading messages are the same from call to call. `num_tokens`: about how long they and
    the tools are. `salt`: an HMAC of the tenant, which names nobody. `key`: the same of the tenant and the stable part.
    `reads_within`: how many calls had this stable part in the last so many seconds, this one not counted.
    """

    num_messages: int
    num_tokens: int
    salt: str
    key: str
    reads_within: Callable[[float], int]


class PrefixHints:
    """Makes hints, and remembers which stable parts came when: what came again is expected to come again."""

    def __init__(self, secret: bytes, *, max_parts: int = 4096, clock: Callable[[], float] = time.monotonic) -> None:
        self._secret = secret
        self._max_parts = max_parts
        self._clock = clock
        self._lock = threading.Lock()
        self._uses: OrderedDict[str, deque[float]] = OrderedDict()

    def hint(self, request: Request) -> PrefixHint:
        num_messages = _num_stable(request)
        stable = request.messages[:num_messages]
        tools = _tools_json(request)
        tenant = request.tenant.encode("utf-8", "surrogatepass")
        texts = [part.encode("utf-8", "surrogatepass") for m in stable for part in (m.role, m.content)]
        key = self._hmac(b"key", tenant, digest(tools, *texts).encode())
        times = self._note(key)
        now_s = self._clock()
        num_chars = sum(len(m.content) for m in stable) + len(tools)
        return PrefixHint(
            num_messages,
            num_chars // _CHARS_PER_TOKEN,
            self._hmac(b"salt", tenant),
            key,
            lambda seconds: sum(1 for at_s in times if now_s - at_s <= seconds),
        )

    def _hmac(self, purpose: bytes, *parts: bytes) -> str:
        message = b"cachestack/remote/" + purpose + b"/" + digest(*parts).encode()
        return hmac.new(self._secret, message, sha256).hexdigest()[:48]

    def _note(self, key: str) -> tuple[float, ...]:
        """The former uses; this one is added."""
        now_s = self._clock()
        with self._lock:
            uses = self._uses.setdefault(key, deque(maxlen=16))
            self._uses.move_to_end(key)
            while len(self._uses) > self._max_parts:
                self._uses.popitem(last=False)
            former = tuple(at_s for at_s in uses if now_s - at_s <= _HORIZON_S)
            uses.append(now_s)
        return former


def _num_stable(request: Request) -> int:
    if request.stable_messages is not None:
        return request.stable_messages
    leading = 0
    for message in request.messages:
        if message.role not in ("system", "developer"):
            break
        leading += 1
    return leading


def _tools_json(request: Request) -> bytes:
    body: Mapping[str, Any] = request.body or {}
    tools = body.get("tools") or list(request.tools)
    try:
        return canonical_json(tools) if tools else b""
    except (TypeError, ValueError):
        return b""
