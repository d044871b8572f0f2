"""Waiting for what another process or thread does in its own time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WAIT_S = 15.0


def wait_until(true: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Fails where it does not come true in time."""
    until_s = time.monotonic() + timeout_s
    pause = threading.Event()
    while not true():
        assert time.monotonic() < until_s, "it did not come true in time"
        pause.wait(0.005)
