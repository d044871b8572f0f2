"""Which leaf goes first: the one of least value, or the least recently used.

Value is GreedyDual-Size (Cao & Irani, "Cost-Aware WWW Proxy Caching Algorithms", 1997) with a count of uses, as in
Cherkasova's GDSF (1998), but in doublings: at each use a segment's rank becomes

    clock + (1 + log2(1 + uses)) × seconds of prefill that it saves ÷ its bytes

and the clock is the rank of what was evicted last. So what is not used ages against what is, without a scan: everything
that comes or is used starts from a later clock. Uses counted one by one keep the conversations that have ended for too
long; not counted at all, prompts that never recur push out what does.
"""

from __future__ import annotations

import heapq
import itertools
import math

from cachestack.prefix.base import UNKNOWN_S_PER_TOKEN, Eviction
from cachestack.prefix.segments import Segment

_MIN_HEAP = 64
_Entry = tuple[float, int, int, Segment]


class EvictionQueue:
    """The segments of one budget (the pool's, a tenant's) in both orders, with a clock of its own.

    `update` after anything about a segment changed. All steps are O(log n) in the number of segments, on average.
    """

    def __init__(self) -> None:
        self.clock = 0.0
        self.num_free_bytes = 0
        """Of segments that nothing holds: all that could be evicted, one leaf after the other."""
        self._ticks = itertools.count()
        self._serials = itertools.count()
        self._ranks: dict[Segment, tuple[float, int]] = {}
        self._free: set[Segment] = set()
        self._leaves: dict[Segment, int] = {}  # with the serial of the entry that counts; others in the heaps do not
        self._heaps: dict[Eviction, list[_Entry]] = {"value": [], "lru": []}

    def __len__(self) -> int:
        return len(self._ranks)

    def touch(self, segment: Segment) -> None:
        """It has come, or was used."""
        self._ranks[segment] = (self.clock + value_of(segment), next(self._ticks))
        if segment in self._leaves:
            self._push(segment)

    def update(self, segment: Segment) -> None:
        """Look again at whether it is there, may go, and is a leaf."""
        free = not segment.is_held and not segment.is_removed
        if free and segment not in self._free:
            self._free.add(segment)
            self.num_free_bytes += segment.num_bytes
        elif not free and segment in self._free:
            self._free.remove(segment)
            self.num_free_bytes -= segment.num_bytes
        if free and segment.num_children == 0:
            if segment not in self._leaves:
                self._push(segment)
        elif self._leaves.pop(segment, None) is not None:
            self._compact()
        if segment.is_removed:
            self._ranks.pop(segment, None)

    def first(self, order: Eviction) -> Segment | None:
        """The leaf that goes next."""
        heap = self._heaps[order]
        while heap and not self._counts(heap[0]):
            heapq.heappop(heap)
        return heap[0][-1] if heap else None

    def age(self, segment: Segment) -> None:
        """It goes for its value: the clock moves on to its rank."""
        self.clock = max(self.clock, self._ranks[segment][0])

    def check(self, segments: set[Segment]) -> None:
        """Raises AssertionError unless exactly `segments` are here, each in its places."""
        free = {s for s in segments if not s.is_held}
        leaves = {s for s in free if s.num_children == 0}
        assert self._ranks.keys() == segments, "a segment without a rank, or a rank without a segment"
        assert self._free == free, "what may be evicted is miscounted"
        assert self.num_free_bytes == sum(s.num_bytes for s in free), "bytes that may be evicted are miscounted"
        assert self._leaves.keys() == leaves, "what goes next is not all leaves, or not only leaves"
        for heap in self._heaps.values():
            assert sum(map(self._counts, heap)) == len(leaves), "a leaf is not in line for eviction just once"
            assert len(heap) <= max(_MIN_HEAP, 2 * len(leaves)), "a heap has grown beyond what is in line"

    def _push(self, segment: Segment) -> None:
        rank, tick = self._ranks[segment]
        serial = self._leaves[segment] = next(self._serials)
        self._compact(1)
        heapq.heappush(self._heaps["value"], (rank, tick, serial, segment))
        heapq.heappush(self._heaps["lru"], (tick, tick, serial, segment))

    def _counts(self, entry: _Entry) -> bool:
        return self._leaves.get(entry[-1]) == entry[2]

    def _compact(self, num_new: int = 0) -> None:
        for heap in self._heaps.values():
            if len(heap) + num_new > max(_MIN_HEAP, 2 * len(self._leaves)):
                heap[:] = filter(self._counts, heap)
                heapq.heapify(heap)


def value_of(segment: Segment) -> float:
    """Seconds a byte, weighted by uses."""
    seconds = segment.saved_s or UNKNOWN_S_PER_TOKEN * segment.run.num_tokens
    return (1 + math.log2(1 + segment.num_uses)) * seconds / max(segment.num_bytes, 1)
