"""What the members of a flight hold: the leader a Lease, each follower a Seat."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cachestack.continuation import Continuation, twin_of
from cachestack.engines.base import Computed
from cachestack.entries import Entry
from cachestack.pump import Pump
from cachestack.requests import Generation, Piece

if TYPE_CHECKING:
    from cachestack.flights import Flight, Flights

_leading: ContextVar[tuple[Flight, ...]] = ContextVar("cachestack_leading", default=())


def leading_now() -> tuple[Flight, ...]:
    """The flights whose engines work further up in this context."""
    return _leading.get()


@dataclass(frozen=True, slots=True)
class Landed:
    """What a flight ended with: the answer of `request_id`'s call, or the stale entry that it fell back on.

    `entry_id`: what the answer is kept as; None where it is not. `engine`: whose it is, where not of the one asked.
    """

    request_id: str
    generation: Generation | None = None
    stale: Entry | None = None
    entry_id: str | None = None
    engine: str | None = None


class Lease:
    """The right, and the duty, to make a flight's answer. `end` it, whatever happens."""

    def __init__(
        self, flights: Flights, flight: Flight, request_id: str, passed_on: Continuation | None = None
    ) -> None:
        self.request_id = request_id
        self.passed_on = passed_on
        """What the holder had passed on to its own reader while it followed."""
        self.entry_id: str | None = None
        self.admits: Callable[[Generation], bool] = lambda generation: False
        """Whether the answer will be kept: only then may a later request join a flight that has landed."""
        self._flights, self._flight, self._ended = flights, flight, False
        self._engine: str | None = None

    def begin(self, engine: str | None = None) -> None:
        """A call of the engine begins; what came of one before it is void. `engine`: not the one that was asked."""
        with self._flights.lock:
            if self._holds():
                self._engine = engine
                self._flight.attempt += 1
                self._flight.pieces, self._flight.pump = [], None
                self._flight.wake()

    def push(self, piece: Piece) -> None:
        with self._flights.lock:
            if self._holds():
                self._flight.pieces.append(piece)
                self._flight.wake()

    def pump(self, pieces: Generator[Piece, None, Any]) -> Pump:
        """Read the call in a way that lets followers read on while this leader's reader pauses."""
        with self._flights.lock:
            pump = Pump(pieces, self)
            if self._holds():
                self._flight.pump = pump
            return pump

    def land(self, result: Generation | Computed | Entry) -> None:
        """The answer is there."""
        made = result.generation if isinstance(result, Computed) else result
        is_admitted = not isinstance(made, Entry) and self._engine is None and self.admits(made)  # takes its time
        with self._flights.lock:
            if not self._holds() or self._flight.end is not None:
                return
            if isinstance(result, Entry):
                self._land(Landed(self.request_id, stale=result, entry_id=result.entry_id), is_kept=False)
                return
            assert not isinstance(made, Entry)
            is_kept = is_admitted
            entry_id = self.entry_id if is_kept else None
            self._land(Landed(self.request_id, made, None, entry_id, self._engine), is_kept=is_kept)

    def fail(self, error: Exception) -> None:
        """There is no answer. Those that wait are told; who comes later begins anew."""
        with self._flights.lock:
            if self._holds() and self._flight.end is None:
                self._flight.end = error
                self._flights.forget(self._flight)
                self._flight.wake()

    def end(self) -> None:
        """Without an answer or a failure: the first follower that comes for news leads."""
        with self._flights.lock:
            if self._ended:
                return
            self._ended = True
            flight = self._flight
            flight.pump = None
            if flight.end is None and flight.seats:
                flight.lease = None
                flight.attempt += 1
                flight.pieces = []
                flight.wake()
                return
            if isinstance(flight.end, Landed):
                self._flights.note_landing(flight)
            self._flights.forget(flight)

    @contextmanager
    def working(self) -> Iterator[None]:
        """The engine works within: what is asked there, in this context, must not wait for this flight."""
        token = _leading.set((*_leading.get(), self._flight))
        try:
            yield
        finally:
            _leading.reset(token)

    def _holds(self) -> bool:
        return not self._ended and self._flight.lease is self

    def _land(self, landed: Landed, *, is_kept: bool) -> None:
        self._flight.end = landed
        if not is_kept:
            self._flights.forget(self._flight)
        self._flight.wake()


@dataclass(frozen=True, slots=True)
class News:
    """What a follower has not seen yet. `end`: the answer, or a lease: from now on it leads."""

    pieces: list[Piece]
    end: Landed | Lease | None = None


class Seat:
    """A follower's place. `end` it, whatever happens; a lease that it was handed ends with it."""

    def __init__(
        self, flights: Flights, flight: Flight, request_id: str, asked_at_s: float, waiting: tuple[Flight, ...]
    ) -> None:
        self._flights, self._flight, self._waiting = flights, flight, waiting
        self._request_id, self._asked_at_s = request_id, asked_at_s
        self._attempt, self._index = flight.attempt, 0
        self._passed_on: Continuation | None = None
        self._wake: Callable[[], None] | None = None
        self._is_woken = False
        self._lease: Lease | None = None

    @property
    def begun_at_s(self) -> float:
        """When that was asked which this follower would share."""
        return self._flight.asked_at_s

    def listen(self, wake: Callable[[], None], *, streams: bool) -> None:
        """`wake` is called, from any thread, where there may be news. `streams`: pieces are passed on to a reader."""
        with self._flights.lock:
            self._wake = wake
            if streams:
                self._passed_on = Continuation()

    def wake(self) -> None:
        if not self._is_woken and self._wake is not None:
            self._is_woken = True
            self._wake()

    def news(self) -> News:
        """Never waits. Raises the leader's failure, as an exception of its own; Interrupted where a new call says
        something else than what has been passed on."""
        with self._flights.lock:
            self._is_woken = False
            flight = self._flight
            if flight.lease is None:
                self._lead()
            if self._lease is not None:
                return News([], self._lease)
            is_anew = flight.attempt != self._attempt
            if is_anew:
                self._attempt, self._index = flight.attempt, 0
            new, end = flight.pieces[self._index :], flight.end
            self._index += len(new)
        if self._passed_on is None:
            new = []
        else:
            if is_anew:
                self._passed_on.restart()
            new = [piece for piece in map(self._passed_on.passes, new) if piece]
        if isinstance(end, Exception):
            if new:  # first what came before it
                return News(new)
            raise twin_of(end)
        if end is not None and self._passed_on is not None:
            text = end.stale.answer if end.stale is not None else end.generation.text if end.generation else ""
            self._passed_on.check(text)
        return News(new, end)

    def stalled(self) -> Pump | None:
        """The call to read on, where its leader's reader pauses."""
        pump = self._flight.pump
        return pump if pump is not None and pump.is_paused else None

    def end(self) -> None:
        with self._flights.lock:
            self._leave()
            if self._lease is not None:
                self._lease.end()
            elif self._flight.lease is None and not self._flight.seats:
                self._flights.forget(self._flight)

    def _lead(self) -> None:
        """The leader has left, and this follower is the first to see it."""
        self._leave()
        self._flight.asked_at_s = self._asked_at_s
        self._flight.lease = self._lease = Lease(self._flights, self._flight, self._request_id, self._passed_on)

    def _leave(self) -> None:
        self._wake = None
        if self in self._flight.seats:
            self._flight.seats.remove(self)
        waiting, self._waiting = self._waiting, ()
        for one in waiting:
            one.waits_for.remove(self._flight)
