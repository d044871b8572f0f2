"""Concurrent calls gathered into one pass, in a thread of their own, so that nobody waits longer than he may.

Calls that come while a pass runs wait for the next one together, and go into it in the order in which they came. A call
that is alone is taken at once. A pass cannot be broken off; but a caller can give up, and while a pass runs that has
already taken longer than a new call may wait, that call does not begin to wait. When the pass comes back, all is as
before.

::

    worker  ──[ pass: a ]──[ pass: b c ]──
    b       ────┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄→
    c       ───────┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄→
    d       ──────────────────┄┄┄╳            d had less time than it took
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cachestack.errors import EncoderTimeout

M = TypeVar("M")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class _Call(Generic[M, R]):
    member: M
    result: R | None = None
    error: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)


class SharedPasses(Generic[M, R]):
    """Thread-safe. `run` gets the members of one pass, at most `max_members`, and gives their results in order.

    What it raises for several members is settled member by member, so that each meets only its own error. Until a pass
    has ended well for the first time, which is when a model is loaded, a caller waits `first_wait_s` where that is
    more. The worker is a daemon thread; it begins with a call and ends `linger_s` after the last one, or at `close`.
    """

    def __init__(
        self,
        run: Callable[[Sequence[M]], Sequence[R]],
        *,
        max_members: int = 32,
        first_wait_s: float = 120.0,
        linger_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._max_members = max_members
        self._first_wait_s = first_wait_s
        self._linger_s = linger_s
        self._clock = clock
        self._is_warm = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()  # guards all below
        self._waiting: deque[_Call[M, R]] = deque()
        self._worker: threading.Thread | None = None
        self._pass_began_s: float | None = None
        self._is_closed = False

    def submit(self, member: M, wait_s: float | None = None) -> R:
        """The member's result. Raises EncoderTimeout after `wait_s`, or at once where waiting is no use."""
        if os.getpid() != self._process:
            self._begin_anew()  # forked: the worker, and maybe a lock that it held, are the parent's
        call: _Call[M, R] = _Call(member)
        patience_s = self._patience(wait_s)
        with self._changed:
            began_s = self._pass_began_s
            if began_s is not None and patience_s is not None and self._clock() - began_s > patience_s:
                raise EncoderTimeout(f"the pass before has not come back within {patience_s:g} s")
            self._is_closed = False
            self._waiting.append(call)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="cachestack-encoder", daemon=True)
                self._worker.start()
            self._changed.notify()
        try:
            in_time = call.done.wait(patience_s)
        finally:
            if not call.done.is_set():
                self._leave(call)
        if not in_time:
            raise EncoderTimeout(f"no embedding within {patience_s:g} s")
        if call.error is not None:
            raise _own(call.error) from call.error
        return call.result  # type: ignore[return-value]

    def close(self) -> None:
        """Let the worker end when its pass is over. A later call begins anew."""
        if os.getpid() == self._process:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()

    def _patience(self, wait_s: float | None) -> float | None:
        return wait_s if wait_s is None or self._is_warm else max(wait_s, self._first_wait_s)

    def _leave(self, call: _Call[M, R]) -> None:
        """A call that nobody waits for is not worth a pass."""
        with self._changed:
            if call in self._waiting:
                self._waiting.remove(call)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._pass_began_s = None
                if not self._waiting and not self._is_closed:
                    self._changed.wait_for(lambda: self._waiting or self._is_closed, self._linger_s)
                if not self._waiting:
                    self._worker = None
                    return
                taken = [self._waiting.popleft() for _ in range(min(self._max_members, len(self._waiting)))]
                self._pass_began_s = self._clock()
            self._pass(taken)

    def _pass(self, taken: list[_Call[M, R]]) -> None:
        try:
            results = self._run([c.member for c in taken])
            assert len(results) == len(taken), "a pass gives each member a result"
        except Exception as error:
            if len(taken) > 1:
                for c in taken:
                    self._pass([c])
                return
            taken[0].error = error
        else:
            self._is_warm = True
            for c, result in zip(taken, results, strict=True):
                c.result = result
        for c in taken:
            c.done.set()


def _own(error: Exception) -> Exception:
    """A copy for the caller's thread: raising adds to an exception's traceback."""
    try:
        return copy.copy(error)
    except Exception:  # one that cannot be copied is shared
        return error
