"""Hearing of the writes of others: a thread on a subscription, with a sign of life several times a second."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from cachestack.errors import StoreError
from cachestack.stores.redis.link import Link

PING_EVERY_S = 0.2
_REST_S = 0.5
_GIVE_UP_S = 3.0


class Listener:
    """Begins at the first `heard_within`. `told` gets each message; `lost` is called where some may have been missed.

    Closing waits for the thread, for a moment.
    """

    def __init__(
        self,
        link: Link,
        channel: bytes,
        told: Callable[[bytes], None],
        lost: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._link = link
        self._channel = channel
        self._told = told
        self._lost = lost
        self._monotonic = monotonic
        self._heard_s: float | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def heard_within(self, seconds: float) -> bool:
        """Whether the server gave a sign of life so short a time ago."""
        if self._thread is None:
            self._start()
        heard_s = self._heard_s
        return heard_s is not None and self._monotonic() - heard_s < seconds

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._listen, name="cachestack-redis", daemon=True)
                self._thread.start()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow(self._link.run(lambda client: client.pubsub()))
            except StoreError:
                pass
            finally:
                self._heard_s = None
                self._lost()
            self._stop.wait(_REST_S)

    def _follow(self, subscription: Any) -> None:
        """Until it fails or stays silent. A ping is answered after all messages that were sent before it."""
        with subscription:
            self._link.run(lambda _: subscription.subscribe(self._channel))
            asked_s, is_answered = self._monotonic(), True
            while not self._stop.is_set():
                now_s = self._monotonic()
                if is_answered and (self._heard_s is None or now_s - asked_s >= PING_EVERY_S):
                    self._link.run(lambda _: subscription.ping())
                    asked_s, is_answered = now_s, False
                elif now_s - asked_s > _GIVE_UP_S:
                    return
                message = self._link.run(lambda _: subscription.get_message(timeout=PING_EVERY_S))
                match None if message is None else message["type"]:
                    case "message":
                        self._told(message["data"])
                    case "pong":
                        self._heard_s, is_answered = asked_s, True
