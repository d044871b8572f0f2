"""Which tenants and partitions there are. A partition is registered before its first entry is put, so that whoever
invalidates finds it; it learns then of the invalidations that came before it was there."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cachestack.entries import Selector
from cachestack.keys import Partition, canonical_json
from cachestack.stores.fences import KEEP_S, Fence, decode_fence, encode_fence
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.names import Names, text_digest

MAX_FENCES = 256
"""How many invalidations are remembered at most, in all and by each slot."""


class Registry:
    def __init__(self, link: Link, names: Names) -> None:
        self._link = link
        self._names = names

    def add(self, partition: Partition) -> None:
        """Register a partition, and hold back in it what an invalidation of before holds back."""
        name, tenant = bytes.fromhex(partition.digest), partition.tenant
        fields = [tenant, partition.user, partition.role, partition.epoch, partition.area]

        self._link.pipelined(
            [
                ("HSET", self._names.tenants, text_digest(tenant), _utf8(tenant)),
                ("HSET", self._names.partitions(tenant), name, canonical_json(fields)),
            ]
        )
        for fence in self.fences():
            if fence.selector.tenant in (None, tenant):
                self.fence(partition, fence)

    def fences(self) -> list[Fence]:
        """Of all tenants, the oldest first."""
        fences = self._link.run(lambda client: client.zrange(self._names.fences, 0, -1))
        return [fence for fence in map(decode_fence, fences) if fence is not None]

    def fence(self, partition: Partition, fence: Fence) -> None:
        for slot in self._names.slots(partition):
            self._note(slot.meta, slot.fences, fence)

    def fence_all(self, fence: Fence) -> None:
        """For partitions that are not there yet. Before those that are there are looked at."""
        self._note(self._names.layout, self._names.fences, fence)

    def has_fence_between(self, tenant: str, after_s: float, until_s: float) -> bool:
        fences = self._link.run(lambda client: client.zrangebyscore(self._names.fences, f"({after_s!r}", repr(until_s)))
        return any(f is not None and f.selector.tenant in (None, tenant) for f in map(decode_fence, fences))

    def _note(self, meta: bytes, fences: bytes, fence: Fence) -> None:
        forgotten = (repr(fence.at_s - KEEP_S), repr(fence.at_s + KEEP_S))
        self._link.script("fence", [meta, fences], [encode_fence(fence), repr(fence.at_s), *forgotten, MAX_FENCES])

    def tenants(self) -> list[str]:
        names = self._link.run(lambda client: client.hvals(self._names.tenants))
        return sorted(name.decode("utf-8", "surrogatepass") for name in names)

    def partitions(self, selector: Selector) -> Iterator[Partition]:
        """Those in which something may match."""
        for tenant in self.tenants() if selector.tenant is None else [selector.tenant]:
            (listed,) = self._link.pipelined([("HVALS", self._names.partitions(tenant))])
            for fields in listed:
                partition = read_partition(fields)
                if partition is not None:
                    yield partition


def read_partition(fields: bytes) -> Partition | None:
    """None for what is no partition: `cachestack doctor` finds it."""
    try:
        return Partition(*json.loads(fields.decode("utf-8", "surrogatepass")))
    except (ValueError, TypeError):
        return None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
