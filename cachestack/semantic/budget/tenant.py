"""One tenant's budget in memory: its classes' states, its pairs, and what is still to be written."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from cachestack.semantic.budget import auditing
from cachestack.semantic.budget.keeper import MAX_SERVED, Keeper, ServedHit
from cachestack.semantic.budget.pairs import Pair, Pairs
from cachestack.semantic.budget.state import ClassState

log = logging.getLogger("cachestack")
Step = Callable[[ClassState], ClassState]
OnChange = Callable[[str, str, ClassState, ClassState], None]
"""Told of a tenant's class, its state before and after, where state or threshold changed."""
MAX_COUNTED = 10_000


@dataclass(slots=True)
class TenantBudget:
    """Every method holds `lock`. Without a keeper all of it is in memory only.

    What other processes wrote is taken in before the next look; what is pending here is then applied to that again.
    """

    tenant: str
    keeper: Keeper | None
    clock: Callable[[], float]
    on_change: OnChange
    lock: threading.RLock = field(default_factory=threading.RLock)
    trusted_from_s: float = 0.0
    pairs: Pairs = field(default_factory=Pairs)
    times_served: OrderedDict[str, dict[str, int]] = field(default_factory=OrderedDict)
    is_damaged: bool = False
    _states: dict[str, ClassState] = field(default_factory=dict)
    _steps: list[tuple[str, Step]] = field(default_factory=list)
    _new_pairs: list[Pair] = field(default_factory=list)
    _new_served: list[ServedHit] = field(default_factory=list)
    _served: OrderedDict[str, ServedHit] = field(default_factory=OrderedDict)
    _warned: bool = False

    def refresh(self) -> None:
        with self.lock:
            if self.keeper is None or not self.keeper.has_changed():
                return
            try:
                kept = self.keeper.read()
            except (sqlite3.Error, OSError) as error:
                self._warn(error)
                return
            self.is_damaged |= self.keeper.was_damaged
            self.trusted_from_s = kept.trusted_from_s
            self.pairs = Pairs()
            self.pairs.load(kept.pairs)
            for pair in self._new_pairs:
                self.pairs.add(pair, self.clock())
            self._states = self._stepped(dict(kept.states))

    def state(self, of_class: str) -> ClassState:
        with self.lock:
            return self._states.get(of_class, ClassState())

    def states(self) -> dict[str, ClassState]:
        with self.lock:
            return dict(self._states)

    def step(self, of_class: str, step: Step) -> ClassState:
        """Apply a step now, and to what is on disk later."""
        with self.lock:
            before = self.state(of_class)
            after = step(before)
            if after is before:
                return after
            self._states[of_class] = after
            if self.keeper is not None:
                self._steps.append((of_class, step))
        if (before.mode, before.level) != (after.mode, after.level):
            self.on_change(self.tenant, of_class, before, after)
        return after

    def add_pair(self, pair: Pair) -> None:
        with self.lock:
            changed = self.pairs.add(pair, self.clock())
            if self.keeper is not None:
                self._new_pairs += changed

    def count_served(self, exact: str, entry_id: str) -> int:
        """How often this pair has been served by this process, this time included."""
        with self.lock:
            of_question = self.times_served.setdefault(exact, {})
            self.times_served.move_to_end(exact)
            of_question[entry_id] = of_question.get(entry_id, 0) + 1
            if len(self.times_served) > MAX_COUNTED:
                self.times_served.popitem(last=False)
            return of_question[entry_id]

    def due(self, exact: str) -> frozenset[str]:
        """The entries that were served for this question so often that it is time to compare."""
        with self.lock:
            of_question = self.times_served.get(exact)
            if not of_question:
                return frozenset()
            return frozenset(e for e, times in of_question.items() if times >= auditing.MOST_UNCOMPARED)

    def note_served(self, hit: ServedHit) -> None:
        with self.lock:
            self._served[hit.request_id] = hit
            if len(self._served) > MAX_SERVED:
                self._served.popitem(last=False)
            if self.keeper is not None:
                self._new_served.append(hit)

    def served(self, request_id: str) -> ServedHit | None:
        with self.lock:
            found = self._served.get(request_id)
            if found is None and self.keeper is not None:
                try:
                    found = self.keeper.served(request_id)
                except (sqlite3.Error, OSError, ValueError, TypeError) as error:
                    self._warn(error)
            return found

    def flush(self) -> None:
        """Write what is pending. What can't be written stays pending, with one warning."""
        if self.keeper is None:
            return
        with self.lock:
            steps, pairs, served = self._steps, self._new_pairs, self._new_served
            if not (steps or pairs or served):
                return
            try:
                if self.keeper.has_changed():
                    self.refresh()
                self._states = self.keeper.write(self._stepped, pairs, served)
            except (sqlite3.Error, OSError, ValueError, KeyError, TypeError) as error:
                self._warn(error)
                del steps[: max(0, len(steps) - MAX_COUNTED)], served[: max(0, len(served) - MAX_SERVED)]
                return
            self._steps, self._new_pairs, self._new_served = [], [], []

    def close(self) -> None:
        self.flush()
        if self.keeper is not None:
            self.keeper.close()

    def _stepped(self, states: dict[str, ClassState]) -> dict[str, ClassState]:
        for of_class, step in self._steps:
            states[of_class] = step(states.get(of_class, ClassState()))
        return states

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning("the error budget of tenant %r cannot be kept on disk for now: %r", self.tenant, error)
