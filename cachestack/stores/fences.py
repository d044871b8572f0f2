"""Invalidations, remembered for a while: an answer that was on its way when one was made must not bring back what it
removed. Such an answer was asked for before the invalidation (`Entry.created_at_s`) and is put after it.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, field

from cachestack.entries import CLOCK_SLACK_S, Entry, Selector
from cachestack.keys import canonical_json

KEEP_S = 3600.0
"""An answer that takes longer than this to make is not held back."""


@dataclass(frozen=True, slots=True)
class Fence:
    at_s: float
    selector: Selector

    def holds_back(self, entry: Entry, now_s: float) -> bool:
        """Not where it lies in the future: then the clock was set back, and it says nothing of what came before."""
        return entry.created_at_s < self.at_s <= now_s + CLOCK_SLACK_S and self.selector.matches(entry)


@dataclass(slots=True)
class Fences:
    """Those of this process, in memory. Thread-safe."""

    _fences: list[Fence] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fence: Fence) -> None:
        with self._lock:
            kept = [f for f in self._fences if abs(f.at_s - fence.at_s) < KEEP_S]
            self._fences = [*kept, fence]

    def hold_back(self, entry: Entry, now_s: float) -> bool:
        return any(fence.holds_back(entry, now_s) for fence in self._fences)


def needs_fence(selector: Selector) -> bool:
    """An entry's id names what is there already; an answer on its way has another."""
    return selector.entry_id is None


def encode_fence(fence: Fence) -> bytes:
    return canonical_json([fence.at_s, asdict(fence.selector)])


def decode_fence(data: bytes) -> Fence | None:
    """None for what is not one."""
    try:
        at_s, selector = json.loads(data.decode("utf-8", "surrogatepass"))
        return Fence(float(at_s), Selector(**selector))
    except (ValueError, TypeError):
        return None
