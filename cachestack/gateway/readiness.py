"""Whether the models are loaded: requests are taken before, and wait."""

from __future__ import annotations

import threading

from cachestack.engines.base import is_token_engine
from cachestack.semantic.freshness import freshness_of
from cachestack.stack import CacheStack


class Readiness:
    """`warm_up` once, from any thread; the rest from any other."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self.error: Exception | None = None

    @property
    def is_ready(self) -> bool:
        return self._done.is_set() and self.error is None

    @property
    def status(self) -> str:
        if not self._done.is_set():
            return "loading the models"
        return "ready" if self.error is None else "the models cannot be loaded; see the log"

    def warm_up(self, stack: CacheStack, engine: str | None = None) -> None:
        """Load the encoder and the engine in this process. What goes wrong stands in `error`."""
        try:
            chosen = stack.engine(engine)
            if is_token_engine(chosen):
                _ = chosen.fingerprint
            stack.performer.embed("ready")
            freshness_of("ready")  # what it reads questions with is compiled at the first
        except Exception as error:
            self.error = error
        finally:
            self._done.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._done.wait(timeout_s)
