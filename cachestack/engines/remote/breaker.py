"""A circuit breaker: an engine that fails again and again is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

from cachestack.errors import CircuitOpen

State = Literal["closed", "open", "half_open"]


class CircuitBreaker:
    """Opens after `num_failures` failures in a row; after `open_s` lets one call through, whose end decides.

    Every `enter` is followed by exactly one of `succeeded`, `failed` and `left` (the caller went, nothing was learnt).
    """

    def __init__(
        self, name: str, *, num_failures: int = 5, open_s: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._num_failures = num_failures
        self._open_s = open_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._opened_s: float | None = None
        self._probing = False

    @property
    def state(self) -> State:
        with self._lock:
            if self._opened_s is None:
                return "closed"
            return "half_open" if self._probing or self._remaining_s() <= 0 else "open"

    def enter(self) -> None:
        """Raises CircuitOpen where the engine is not to be called now."""
        with self._lock:
            if self._opened_s is None:
                return
            remaining_s = self._remaining_s()
            if remaining_s > 0 or self._probing:
                raise CircuitOpen(
                    f"the engine {self._name} failed {self._failures} times in a row and is left alone for now",
                    retry_after_s=max(remaining_s, 0.0),
                )
            self._probing = True

    def succeeded(self) -> None:
        with self._lock:
            self._failures, self._opened_s, self._probing = 0, None, False

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            if self._probing or self._failures >= self._num_failures:
                self._opened_s = self._clock()
            self._probing = False

    def left(self) -> None:
        with self._lock:
            self._probing = False

    def _remaining_s(self) -> float:
        assert self._opened_s is not None
        return self._opened_s + self._open_s - self._clock()
