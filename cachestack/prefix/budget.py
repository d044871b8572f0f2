"""The pool's byte budget and the tenants' own limits: what is held, and room made by evicting."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence

from cachestack.prefix.base import Eviction, Pressure
from cachestack.prefix.eviction import EvictionQueue
from cachestack.prefix.segments import Segment


class Budget:
    """Counts bytes of segments that are there, and of those that were removed while they are still being read.

    Not thread-safe: the pool's lock is held. `remove` takes a segment out of the pool, and tells this budget.
    """

    def __init__(self, max_bytes: int, remove: Callable[[Segment], None]) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.num_evicted = 0
        self._remove = remove
        self._tenant_bytes: Counter[str] = Counter()
        self._all = EvictionQueue()
        self._by_tenant: defaultdict[str, EvictionQueue] = defaultdict(EvictionQueue)

    def count(self, segment: Segment, sign: int) -> None:
        tenant = segment.label.tenant
        self.num_bytes += sign * segment.num_bytes
        self._tenant_bytes[tenant] += sign * segment.num_bytes
        if not self._tenant_bytes[tenant]:
            del self._tenant_bytes[tenant]

    def touch(self, segment: Segment) -> None:
        """It has come, or was used."""
        for queue in self._queues(segment):
            queue.touch(segment)

    def update(self, segment: Segment) -> None:
        """It is held, or not any more; has children, or none; or was removed."""
        for queue in self._queues(segment):
            queue.update(segment)
        if segment.is_removed and not len(self._by_tenant[segment.label.tenant]):
            del self._by_tenant[segment.label.tenant]

    def make_room(self, segment: Segment, max_label_bytes: int | None, pressure: Pressure, order: Eviction) -> bool:
        """Evict until the segment fits both limits. False, and nothing evicted, where it cannot be made to fit."""
        need, tenant = segment.num_bytes, segment.label.tenant
        over = self.num_bytes + need - self.max_bytes
        over_own = 0 if max_label_bytes is None else self._tenant_bytes[tenant] + need - max_label_bytes
        if over <= 0 and over_own <= 0:
            return True
        if pressure == "skip":
            return False
        path = () if segment.parent is None else segment.parent.path()
        self._hold(path, 1)  # what the segment continues must not go for it
        try:
            own = self._by_tenant[tenant] if tenant in self._by_tenant else EvictionQueue()
            if self._all.num_free_bytes < over or own.num_free_bytes < over_own:
                return False
            over -= self._evict(own, over_own, order)
            self._evict(self._all, over, order)
            return True
        finally:
            self._hold(path, -1)

    def check(self, segments: set[Segment], held: Collection[Segment]) -> None:
        """Raises AssertionError unless bytes and queues agree with `segments`, and with all that is `held` besides."""
        num_bytes = sum(s.num_bytes for s in held)
        assert self.num_bytes == num_bytes, f"{self.num_bytes} bytes counted, {num_bytes} held"
        assert self.num_bytes <= self.max_bytes, f"{self.num_bytes} bytes held, {self.max_bytes} allowed"
        tenants: Counter[str] = Counter()
        for segment in held:
            tenants[segment.label.tenant] += segment.num_bytes
        assert +tenants == +self._tenant_bytes, "bytes by tenant miscounted"
        self._all.check(segments)
        assert self._by_tenant.keys() == {s.label.tenant for s in segments}, "a queue too many, or too few"
        for tenant, queue in self._by_tenant.items():
            queue.check({s for s in segments if s.label.tenant == tenant})

    def _evict(self, queue: EvictionQueue, num_bytes: int, order: Eviction) -> int:
        """Remove leaves until `num_bytes` are free, which must be possible; how many are."""
        freed = 0
        while freed < num_bytes:
            segment = queue.first(order)
            assert segment is not None, "there was enough to evict"
            if order == "value":
                queue.age(segment)
            self._remove(segment)
            self.num_evicted += 1
            freed += segment.num_bytes
        return freed

    def _hold(self, path: Sequence[Segment], sign: int) -> None:
        for step in path:
            step.num_readers += sign
            self.update(step)

    def _queues(self, segment: Segment) -> tuple[EvictionQueue, EvictionQueue]:
        return self._all, self._by_tenant[segment.label.tenant]
