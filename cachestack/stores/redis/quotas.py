"""A tenant's bytes over all its slots, and what makes room: the least recently used first."""

from __future__ import annotations

from collections.abc import Callable

from cachestack.stores.redis.link import Link
from cachestack.stores.redis.names import Names, Slot


class Quotas:
    """Each slot keeps its own count, in step with its entries; the tenant's sum follows a moment later, so that two
    writers at once may both evict, or a crash leave the sum behind until the slot's next write."""

    def __init__(self, link: Link, names: Names, remove: Callable[[Slot, bytes], int]) -> None:
        self._link = link
        self._names = names
        self._remove = remove

    def note(self, tenant: str, slot: Slot) -> int:
        """What the slot holds now; returns the tenant's bytes."""
        (number, num_bytes), oldest = self._of_slot(slot)
        share = [slot.tag, number or 0, num_bytes or 0, repr(oldest[0][1]) if oldest else ""]
        return int(self._link.script("share", [self._names.shares(tenant), self._names.oldest(tenant)], share))

    def settle(self, tenant: str, slot: Slot, max_bytes: int | None) -> None:
        """Count a write in, and evict until the tenant's entries fit `max_bytes`."""
        total = self.note(tenant, slot)
        while max_bytes is not None and total > max_bytes:
            first = self._link.run(lambda client: client.zrange(self._names.oldest(tenant), 0, 0, withscores=True))
            if not first:
                return
            tag, used_at_s = first[0]
            victim = Slot(tag)
            _, oldest = self._of_slot(victim)
            if oldest and oldest[0][1] <= used_at_s:
                self._remove(victim, oldest[0][0])
            total = self.note(tenant, victim)

    def _of_slot(self, slot: Slot) -> tuple[list[bytes | None], list[tuple[bytes, float]]]:
        with self._link.transaction() as pipeline:
            pipeline.hmget(slot.meta, "latest", "bytes")
            pipeline.zrange(slot.used, 0, 0, withscores=True)
            counts, oldest = pipeline.execute()
        return counts, [(member, float(score)) for member, score in oldest]
