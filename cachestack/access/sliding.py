"""A sum over the last so many seconds, in a bounded number of slots."""

from __future__ import annotations

import math
from collections import deque


class SlidingSum:
    """Whole numbers added up over a moving window; each stays at least `window_s` and at most one slot longer.

    So whoever keeps the sum at or below a limit keeps it there in *every* window of that length. Adding costs the same
    however much was added before; not safe under threads.
    """

    def __init__(self, window_s: float, num_slots: int) -> None:
        self._slot_s = window_s / num_slots
        self._num_slots = num_slots
        self._slots: deque[list[int]] = deque()  # [number of the slot, what was added in it], oldest first
        self._total = 0

    def total(self, now_s: float) -> int:
        oldest = math.floor(now_s / self._slot_s) - self._num_slots
        while self._slots and self._slots[0][0] < oldest:
            self._total -= self._slots.popleft()[1]
        return self._total

    def add(self, amount: int, now_s: float) -> None:
        slot = math.floor(now_s / self._slot_s)
        if self._slots and self._slots[-1][0] >= slot:
            self._slots[-1][1] += amount
        else:
            self._slots.append([slot, amount])
        self._total += amount

    def seconds_until(self, at_most: int, now_s: float) -> float | None:
        """How long until the sum is at most this, if nothing is added; None if it never is."""
        left = self.total(now_s)
        if left <= at_most:
            return 0.0
        for slot, amount in self._slots:
            left -= amount
            if left <= at_most:
                return max(0.0, (slot + self._num_slots + 1) * self._slot_s - now_s)
        return None
