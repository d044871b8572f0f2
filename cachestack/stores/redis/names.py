"""The keys of a partition in Redis.

::

    {tag} m           HASH    latest: number of the last change · bytes, num · fences: how many were ever noted
    {tag} e exact     STRING  the entry, encoded                     exact, id: SHA-256, 32 bytes each
    {tag} i           HASH    id → exact
    {tag} r           HASH    exact → what removing it needs to know
    {tag} n           HASH    exact → the number of the change that put it there
    {tag} u, {tag} g  ZSET    exact by last use, by the moment from which it serves nobody
    {tag} j           LIST    the latest changes: kind and entry id
    {tag} f           ZSET    invalidations by time
    {tag} c exact     STRING  who answers this question now
    {tag} v encoder contract  VECTOR SET of exact

The tag in braces is the partition's digest and the slot's number: all keys of a slot live in one hash slot of a
cluster, so that each of its writes is one atomic script. A partition has as many slots as the store is opened with;
an entry's slot follows from its exact key.
"""

from __future__ import annotations

import base64
import hashlib
import math
from array import array
from dataclasses import dataclass
from functools import lru_cache

from cachestack.entries import Entry
from cachestack.keys import Partition

NORM_TOLERANCE = 1e-3


@lru_cache(maxsize=8192)
def text_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a partition: the names of its keys."""

    tag: bytes

    @property
    def meta(self) -> bytes:
        return self.tag + b"m"

    @property
    def entries(self) -> bytes:
        return self.tag + b"e"

    @property
    def ids(self) -> bytes:
        return self.tag + b"i"

    @property
    def records(self) -> bytes:
        return self.tag + b"r"

    @property
    def numbers(self) -> bytes:
        return self.tag + b"n"

    @property
    def used(self) -> bytes:
        return self.tag + b"u"

    @property
    def gone(self) -> bytes:
        return self.tag + b"g"

    @property
    def journal(self) -> bytes:
        return self.tag + b"j"

    @property
    def fences(self) -> bytes:
        return self.tag + b"f"

    def vectors(self, encoder: str, contract: str, num_bytes: int) -> bytes:
        """The vector set of one encoder under one contract, of vectors of one length."""
        return self.tag + b"v" + text_digest(f"{encoder}\0{contract}\0{num_bytes}")[:20]

    def vectors_of(self, entry: Entry) -> bytes | None:
        """Where the entry's vector goes; None where it has none that can be searched."""
        if not entry.vector or not entry.encoder or not _is_unit(entry.vector):
            return None
        return self.vectors(entry.encoder, entry.group, len(entry.vector))


@dataclass(frozen=True, slots=True)
class Names:
    """`prefix` begins every key of a store; `num_slots` is how many slots a partition has."""

    prefix: bytes
    num_slots: int = 1

    def slot(self, partition: Partition, number: int) -> Slot:
        return _slot(self.prefix, partition, number)

    def slot_of(self, partition: Partition, exact: bytes) -> Slot:
        return self.slot(partition, exact[0] % self.num_slots)

    def slots(self, partition: Partition) -> list[Slot]:
        return [self.slot(partition, number) for number in range(self.num_slots)]

    @property
    def tenants(self) -> bytes:
        """HASH: digest of a tenant's name → the name."""
        return self.prefix + b"tenants"

    @property
    def fences(self) -> bytes:
        """ZSET: invalidations by time, for partitions that are not there yet."""
        return self.prefix + b"{all}f"

    @property
    def layout(self) -> bytes:
        """HASH: slots: how many a partition has · fences: how many were ever noted."""
        return self.prefix + b"{all}m"

    @property
    def counted(self) -> bytes:
        """HASH: digest of the name of each tenant that has statistics → the name."""
        return self.prefix + b"{sums}t"

    @property
    def batches(self) -> bytes:
        """HASH: process → the number and time of its last batch of counts."""
        return self.prefix + b"{sums}b"

    def sums(self, tenant: str) -> bytes:
        """HASH: a tenant's statistics."""
        return self.prefix + b"{sums}" + text_digest(tenant)

    @property
    def channel(self) -> bytes:
        """Where each write tells which entry it has changed."""
        return self.prefix + b"changed"

    def partitions(self, tenant: str) -> bytes:
        """HASH: a tenant's partitions, as JSON, by digest."""
        return self._of_tenant(tenant) + b"p"

    def shares(self, tenant: str) -> bytes:
        """HASH: tag of each slot of a tenant → its number of change and its bytes then; `total`."""
        return self._of_tenant(tenant) + b"s"

    def oldest(self, tenant: str) -> bytes:
        """ZSET: tag of each slot of a tenant by the oldest use in it."""
        return self._of_tenant(tenant) + b"o"

    def _of_tenant(self, tenant: str) -> bytes:
        return self.prefix + b"{t" + text_digest(tenant).hex()[:40].encode() + b"}"


@lru_cache(maxsize=8192)
def _slot(prefix: bytes, partition: Partition, number: int) -> Slot:
    name = base64.urlsafe_b64encode(bytes.fromhex(partition.digest)[:18])
    return Slot(prefix + b"{" + name + b"." + str(number).encode() + b"}")


def _is_unit(vector: bytes) -> bool:
    """A vector set would take others too, and compare them with all that is asked."""
    return len(vector) % 4 == 0 and abs(math.hypot(*array("f", vector)) - 1.0) <= NORM_TOLERANCE
