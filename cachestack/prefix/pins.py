"""Pins: paths that are not evicted until a time. One that has run out costs nothing but its removal from a heap."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence

from cachestack.prefix.segments import Segment


class Pins:
    """By the last segment of the pinned path. Times are those of the pool's clock, in seconds."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self.tenant_bytes: Counter[str] = Counter()
        self._until_s: dict[Segment, float] = {}
        self._expiry: list[tuple[float, int, Segment]] = []
        self._serials = itertools.count()

    def bytes_to_add(self, path: Sequence[Segment]) -> int:
        """What a pin of this path would add to what is pinned."""
        return sum(s.num_bytes for s in path if not s.num_pins)

    def add(self, segment: Segment, until_s: float) -> tuple[Segment, ...]:
        """Pin the path to `segment`; one that is pinned already is pinned longer, never shorter. The path."""
        path = segment.path()
        if segment not in self._until_s:
            for step in path:
                step.num_pins += 1
                if step.num_pins == 1:
                    self._count(step, 1)
        elif self._until_s[segment] >= until_s:
            return path
        self._until_s[segment] = until_s
        heapq.heappush(self._expiry, (until_s, next(self._serials), segment))
        return path

    def drop(self, segment: Segment) -> tuple[Segment, ...]:
        """End the pin of this very path, if there is one; the path if there was."""
        if self._until_s.pop(segment, None) is None:
            return ()
        path = segment.path()
        for step in path:
            step.num_pins -= 1
            if step.num_pins == 0:
                self._count(step, -1)
        if len(self._expiry) > 16 + 2 * len(self._until_s):
            self._expiry = [e for e in self._expiry if self._until_s.get(e[2]) == e[0]]
            heapq.heapify(self._expiry)
        return path

    def expired(self, now_s: float) -> list[Segment]:
        """End all pins whose time is over; the segments concerned."""
        changed: list[Segment] = []
        while self._expiry and self._expiry[0][0] <= now_s:
            until_s, _, segment = heapq.heappop(self._expiry)
            if self._until_s.get(segment) == until_s:
                changed.extend(self.drop(segment))
        return changed

    def left_s(self, now_s: float) -> dict[Segment, float]:
        """For each pinned segment how long it stays so."""
        left: dict[Segment, float] = {}
        for segment, until_s in self._until_s.items():
            for step in segment.path():
                left[step] = max(left.get(step, 0.0), until_s - now_s)
        return left

    def check(self, segments: set[Segment]) -> None:
        """Raises AssertionError unless pins, counts and bytes agree, over exactly `segments`."""
        counts = Counter(step for segment in self._until_s for step in segment.path())
        assert counts.keys() <= segments, "a pin of what is not there"
        assert all(s.num_pins == counts[s] for s in segments), "pins miscounted"
        assert self.num_bytes == sum(s.num_bytes for s in counts), "pinned bytes miscounted"
        tenants: Counter[str] = Counter()
        for segment in counts:
            tenants[segment.label.tenant] += segment.num_bytes
        assert +tenants == +self.tenant_bytes, "pinned bytes by tenant miscounted"
        due = {segment: until_s for until_s, _, segment in self._expiry if self._until_s.get(segment) == until_s}
        assert due == self._until_s, "a pin that never ends"

    def _count(self, segment: Segment, sign: int) -> None:
        self.num_bytes += sign * segment.num_bytes
        self.tenant_bytes[segment.label.tenant] += sign * segment.num_bytes
