"""Single flight: requests that are the same and under way at the same time share one call of the engine.

One of them leads (a `Lease`), the others follow (a `Seat`): pieces and end of the call go to all. A key holds the whole
partition, the contract and the policy, so nobody follows another tenant's flight.

- A failure is told to those that wait, and not kept. Each gets an exception of its own.
- When a leader leaves early, a follower that waits leads on: it calls the engine anew.
- A leader whose reader pauses between two pieces (a stream read by its own thread) does not hold up the others: they
  read the engine on, in turns (`Pump`).
- Who leads may not, in the same context, wait for somebody who waits for it: it calls the engine itself.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from cachestack.keys import Partition
from cachestack.leases import Landed, Lease, Seat, leading_now
from cachestack.policy import Policy
from cachestack.pump import Pump
from cachestack.requests import Dialect, Piece

_NUM_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class FlightKey:
    """What must be equal for two requests to share a call. `max_age_s`: how old an answer either accepts. `until_s`:
    when the question will mean another time; `user`: whose state it asks for, where it does."""

    partition: Partition
    exact: str
    dialect: Dialect
    max_age_s: float
    policy: Policy = field(hash=False)  # it is large, and mostly one and the same
    until_s: float = math.inf
    user: str | None = None


class LookAgain:
    """A flight of this key landed since the cache was looked at."""


@dataclass(slots=True, eq=False)
class Flight:
    """State of one flight, guarded by the lock of its `Flights`."""

    key: FlightKey
    asked_at_s: float
    lease: Lease | None = None
    attempt: int = 0
    pieces: list[Piece] = field(default_factory=list)
    seats: list[Seat] = field(default_factory=list)
    end: Landed | Exception | None = None
    pump: Pump | None = None
    waits_for: list[Flight] = field(default_factory=list)

    def wake(self) -> None:
        for seat in tuple(self.seats):
            seat.wake()


class Flights:
    """All flights of one stack. No method waits."""

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()  # a dropped stream may end its flight from a finaliser, anywhere
        self._flights: dict[FlightKey, Flight] = {}
        self._landed: OrderedDict[FlightKey, int] = OrderedDict()
        self._num_landed = 0

    @property
    def num_in_flight(self) -> int:
        with self._lock:
            return len(self._flights)

    @property
    def moment(self) -> int:
        """To be noted before the cache is looked at, for `join`."""
        return self._num_landed

    def join(
        self, key: FlightKey, request_id: str, *, asked_at_s: float, since: int
    ) -> Lease | Seat | type[LookAgain] | None:
        """A Lease: this request leads. A Seat: it follows. None: it calls the engine by itself."""
        self._after_fork()
        with self._lock:
            if self._landed.get(key, 0) > since:
                return LookAgain
            flight = self._flights.get(key)
            if flight is None:
                flight = self._flights[key] = Flight(key, asked_at_s)
            if flight.lease is None:  # a new one, or one whose leader has left
                flight.asked_at_s = asked_at_s
                flight.lease = Lease(self, flight, request_id)
                return flight.lease
            mine = leading_now()
            if any(_waits(flight, one) for one in mine) or not asked_at_s - flight.asked_at_s <= key.max_age_s:
                return None
            seat = Seat(self, flight, request_id, asked_at_s, mine)
            flight.seats.append(seat)
            for one in mine:
                one.waits_for.append(flight)
            return seat

    def detach(self, tenant: str | None) -> None:
        """Nobody joins what is under way now, of one tenant or of all: something has been invalidated."""
        with self._lock:
            for key in [key for key in self._flights if tenant in (None, key.partition.tenant)]:
                del self._flights[key]

    def _after_fork(self) -> None:
        """In a forked process: what is under way is the parent's, and its lock may be held for ever."""
        if os.getpid() != self._process:
            self._begin_anew()

    # For leases and seats; each is called with the lock held

    def forget(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def note_landing(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            self._num_landed += 1
            self._landed[flight.key] = self._num_landed
            self._landed.move_to_end(flight.key)
            if len(self._landed) > _NUM_REMEMBERED:
                self._landed.popitem(last=False)

    @property
    def lock(self) -> threading.RLock:
        return self._lock


def _waits(flight: Flight, one: Flight) -> bool:
    """Whether `flight` is `one`, or waits for it."""
    seen, reached = set(), [flight]
    while reached:
        flight = reached.pop()
        if flight is one:
            return True
        if id(flight) not in seen:
            seen.add(id(flight))
            reached.extend(flight.waits_for)
    return False
