"""What `--repair` does in Redis: each repair with a connection of its own, which raises StoreError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cachestack.keys import Partition
from cachestack.stores.opening import RedisRef, open_redis
from cachestack.stores.redis.amending import add_up, amend, partition_of
from cachestack.stores.redis.auditing import AuditedSlot, KeySpace, audit_slot, escaped, look_at
from cachestack.stores.redis.names import Slot
from cachestack.stores.redis.registry import read_partition
from cachestack.stores.redis.store import RedisStore

_DEADLINE_S = 30.0


@contextmanager
def opened(ref: RedisRef) -> Iterator[RedisStore]:
    """With more patience than a request has: counting again reads a whole slot."""
    store = open_redis(replace(ref, deadline_s=max(ref.deadline_s, _DEADLINE_S))).shared
    try:
        yield store
    finally:
        store.close()


def amend_slot(ref: RedisRef, audited: AuditedSlot) -> str | None:
    """Once for all findings of a slot."""
    if audited.faults:
        with opened(ref) as store:
            amend(store, audited)
        audited.faults.clear()
    return None


def add_up_tenant(ref: RedisRef, tenant: str, slots: list[Slot]) -> str | None:
    with opened(ref) as store:
        add_up(store, tenant, slots)
    return None


def register_slot(ref: RedisRef, slot: Slot, unlisted: list[bytes]) -> str | None:
    """List the partition whose entries lie in a slot; where they are nobody's, remove them."""
    with opened(ref) as store:
        keys = [*store.link.call("hkeys", slot.records), *unlisted]
        owners = (partition_of(store, slot, seen) for seen in look_at(store, slot, keys))
        owner: Partition | None = next((owner for owner in owners if owner is not None), None)
        if owner is None:
            names = store.link.run(lambda client: list(client.scan_iter(match=escaped(slot.tag) + b"*", count=1000)))
            store.link.call("unlink", *names)
            return "nothing in it belonged to anybody; it was removed"
        store.register(owner)
        space = KeySpace()
        space.unlisted[slot.tag] |= set(unlisted)
        amend(store, audit_slot(store, owner, slot, space))
    return None


def register_listed(ref: RedisRef, key: bytes) -> str | None:
    with opened(ref) as store:
        for partition in map(read_partition, store.link.call("hvals", key)):
            if partition is not None:
                store.register(partition)
    return None


def remove_fields(ref: RedisRef, key: bytes, fields: list[bytes]) -> str | None:
    with opened(ref) as store:
        store.link.call("hdel", key, *fields)
    return None


def remove_members(ref: RedisRef, key: bytes, members: list[bytes]) -> str | None:
    with opened(ref) as store:
        store.link.call("zrem", key, *members)
    return None
