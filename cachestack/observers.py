"""Who is told when a request has ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cachestack.decisions import Response, Trace
from cachestack.requests import Request

log = logging.getLogger("cachestack")


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that has ended, however it did: with a response, or with the error that its caller got.

    `error` is GeneratorExit or CancelledError where the caller left. `at_s`: seconds since the epoch, by the stack's
    clock.
    """

    request: Request
    trace: Trace
    response: Response | None
    error: BaseException | None
    at_s: float

    @property
    def outcome(self) -> str:
        """`exact`, `semantic`, `stale` or `engine`, as in `Trace.served_from`; or `failed`, `cancelled`."""
        if self.response is not None:
            return self.trace.served_from
        return "failed" if isinstance(self.error, Exception) else "cancelled"


Observer = Callable[[Ended], None]


class Observers:
    """The observers of one stack, told in the order in which they came, in the request's own thread.

    One that raises is logged once; nobody else notices. One that has a `close` is closed with the stack.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observers: tuple[Observer, ...] = ()
        self._failed: set[int] = set()

    def add(self, observer: Observer) -> Callable[[], None]:
        """From now on `observer` is told; returns what ends that."""
        with self._lock:
            self._observers = (*self._observers, observer)

        def remove() -> None:
            with self._lock:
                self._observers = tuple(o for o in self._observers if o is not observer)

        return remove

    def __bool__(self) -> bool:
        return bool(self._observers)

    def tell(self, ended: Ended) -> None:
        for observer in self._observers:
            try:
                observer(ended)
            except Exception as error:
                self._warn(observer, error)

    def close(self) -> None:
        for observer in self._observers:
            close = getattr(observer, "close", None)
            if close is not None:
                with suppress(Exception):
                    close()

    def _warn(self, observer: Observer, error: Exception) -> None:
        with self._lock:
            is_first = id(observer) not in self._failed
            self._failed.add(id(observer))
        if is_first:
            name = getattr(observer, "__qualname__", type(observer).__qualname__)
            log.warning("the observer %s failed, and is not logged again: %r", name, error)
