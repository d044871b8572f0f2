"""Concurrent calls gathered into one pass, in the callers' own threads.

The call at the head of the queue leads: it takes those behind it, as many as fit, and runs the pass for all. Calls that
come while a pass runs wait for the next one together (group commit, as databases write their logs). A call that is
alone waits for nobody. Only where others are known to be on their way does a leader hold its pass back for them, a few
milliseconds at most.

::

    a  ──[ pass: a ]
    b  ────┄┄┄┄┄┄┄┄┄[ pass: b c d ]      b leads: it was first in the queue when a's pass ended
    c  ─────┄┄┄┄┄┄┄┄┘
    d  ──────────┄┄┄┘
"""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar
from weakref import WeakSet

M = TypeVar("M")
R = TypeVar("R")


def _silent_bell() -> threading.Lock:
    """A lock as a bell: who waits acquires it, who rings releases it, and a ring before the wait is not lost."""
    bell = threading.Lock()
    bell.acquire()
    return bell


@dataclass(slots=True, eq=False)
class _Call(Generic[M, R]):
    member: M
    weight: int
    result: R | None = None
    error: Exception | None = None
    is_done: bool = False
    is_gone: bool = False
    bell: threading.Lock = field(default_factory=_silent_bell)

    def ring(self) -> None:
        """Under the batcher's lock: wakes the call to look again how things stand, or spares it the next wait."""
        if self.bell.locked():
            self.bell.release()


class MicroBatcher(Generic[M, R]):
    """Thread-safe. `run` gets the members of one pass and gives their results in order; it is called by one thread at
    a time. What it raises reaches each member of the pass, and nobody else.

    `gate` is held during a pass, and whoever else may hold it (another batcher over the same model) is waited for
    before the members are taken, so that they go on gathering. A call that ends while it waits (Ctrl-C) is left out
    of the pass, or its result goes nowhere; a leader's end breaks its pass off, and the others' begins anew.

    An exception may be raised in a caller's thread between any two steps. So calls stay in the queue until they are
    done, whoever leads only marks them, and `_leave` puts in order whatever it finds: there is no state that only
    the next statement would mend. For the same reason nobody waits on a `Condition`, whose own code can be broken off
    with its lock released.
    """

    def __init__(
        self,
        run: Callable[[Sequence[M]], Sequence[R]],
        *,
        max_weight: int,
        gate: AbstractContextManager[Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = run
        self._max_weight = max_weight
        self._gate = gate if gate is not None else nullcontext()
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Call[M, R]] = deque()  # those of the pass that runs, if one does, are the first
        self._leader: _Call[M, R] | None = None
        self._arriving: WeakSet[Arrival[M, R]] = WeakSet()  # one that is broken off as it begins is forgotten

    def arrival(self) -> Arrival[M, R]:
        """Announces a call: from here on a leader waits for it, if not for long. Submit it within the block."""
        return Arrival(self)

    def announce(self, arrival: Arrival[M, R]) -> None:
        """For Arrival: a call is on its way."""
        with self._lock:
            self._arriving.add(arrival)

    def forget(self, arrival: Arrival[M, R]) -> None:
        """For Arrival: it is not any more."""
        with self._lock:
            self._arriving.discard(arrival)
            self._ring_leader()

    def submit(self, arrival: Arrival[M, R], member: M, *, weight: int, max_wait_s: float) -> R:
        """For Arrival: the result of a member, from a pass of at most `max_weight` with others, or alone."""
        call: _Call[M, R] = _Call(member, weight)
        try:
            with self._lock:
                self._arriving.discard(arrival)
                self._queue.append(call)
                self._ring_leader()
            while not call.is_done:
                if self._comes_to_lead(call):
                    self._lead(call, max_wait_s)
        finally:
            try:
                self._leave(call)
            except BaseException:  # a second Ctrl-C: the others would wait for ever
                self._leave(call)
                raise
        if call.error is not None:
            raise _own(call.error) from call.error
        return call.result  # type: ignore[return-value]

    def _comes_to_lead(self, call: _Call[M, R]) -> bool:
        """Waits until the call is done (False), or until it is the next one's turn and that is this call."""
        while True:
            with self._lock:
                if call.is_done:
                    return False
                if self._leader is None and self._queue[0] is call:
                    self._leader = call
                    return True
            call.bell.acquire()

    def _lead(self, call: _Call[M, R], max_wait_s: float) -> None:
        deadline_s = self._clock() + max_wait_s
        while self._has_room_for_more() and (left_s := deadline_s - self._clock()) > 0:
            call.bell.acquire(timeout=left_s)
        with self._gate:
            with self._lock:
                taken = self._first()
            try:
                results = self._run([c.member for c in taken])
                assert len(results) == len(taken), "a pass gives each member a result"
                for c, result in zip(taken, results, strict=True):
                    c.result, c.error = result, None  # an error may be left from a pass that was broken off
            except Exception as error:
                for c in taken:
                    c.error = error
        with self._lock:
            for c in taken:
                c.is_done = True

    def _has_room_for_more(self) -> bool:
        """Whether calls are on their way that the next pass could still take."""
        with self._lock:
            return any(self._arriving) and sum(c.weight for c in self._queue) < self._max_weight

    def _first(self) -> list[_Call[M, R]]:
        """As many from the head of the queue as fit into one pass, and one at least. They stay there until done."""
        taken: list[_Call[M, R]] = []
        weight = 0
        for c in self._queue:
            weight += c.weight
            if taken and weight > self._max_weight:
                break
            taken.append(c)
        return taken

    def _leave(self, call: _Call[M, R]) -> None:
        """A call ends, or its thread does. What it led ends with it; it may come here twice."""
        with self._lock:
            call.is_gone = True
            if self._leader is call:
                self._leader = None
            for c in self._queue:
                if c.is_done:
                    c.ring()
            self._queue = deque(c for c in self._queue if not (c.is_done or c.is_gone))
            if self._leader is None and self._queue:
                self._queue[0].ring()

    def _ring_leader(self) -> None:
        if self._leader is not None:
            self._leader.ring()


class Arrival(Generic[M, R]):
    """One call on its way, from before it is tokenised. Its end, submitted or not, is told to the batcher."""

    def __init__(self, batcher: MicroBatcher[M, R]) -> None:
        self._batcher = batcher

    def submit(self, member: M, *, weight: int, max_wait_s: float) -> R:
        """The member's result, from a pass that it may share with others."""
        return self._batcher.submit(self, member, weight=weight, max_wait_s=max_wait_s)

    def __enter__(self) -> Arrival[M, R]:
        self._batcher.announce(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._batcher.forget(self)


def _own(error: Exception) -> Exception:
    """A copy for one of several threads: raising adds to an exception's traceback."""
    try:
        return copy.copy(error)
    except Exception:  # one that cannot be copied is shared
        return error
