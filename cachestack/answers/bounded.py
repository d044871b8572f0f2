"""A call that may hang, with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Bounded(Generic[P, R]):
    """Calls `work` in a thread of its own, waits at most `deadline_s`, then raises TimeoutError; else what it raises.

    A call that hangs keeps its thread; while one does, further calls raise TimeoutError at once. Thread-safe.
    """

    def __init__(self, work: Callable[P, R], deadline_s: float) -> None:
        self._work = work
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._late: list[Future[R]] = []

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            self._late = [call for call in self._late if not call.done()]
            if self._late:
                raise TimeoutError("an earlier call has not come back")
        call: Future[R] = Future()

        def run() -> None:
            try:
                call.set_result(self._work(*args, **kwargs))
            except Exception as failure:
                call.set_exception(failure)
            except BaseException as failure:  # of the call's own thread: it must not end the caller's
                call.set_exception(RuntimeError(repr(failure)))

        threading.Thread(target=run, name="cachestack-answers", daemon=True).start()
        try:
            return call.result(self._deadline_s)
        except TimeoutError:
            if call.done():
                raise
            with self._lock:
                self._late.append(call)
            raise TimeoutError(f"no answer within {self._deadline_s:g} s") from None
