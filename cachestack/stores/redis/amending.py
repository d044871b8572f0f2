"""Puts right what `auditing` finds in Redis. An entry whose ways are wrong is taken out and put again, as whoever made
it would: held back by what was invalidated meanwhile, and never over a newer one."""

from __future__ import annotations

import hashlib

from cachestack.keys import Partition
from cachestack.stores.codec import CorruptEntry, decode_entry
from cachestack.stores.redis.auditing import AuditedSlot, Fault, Seen, entry_at, look_at
from cachestack.stores.redis.names import Slot
from cachestack.stores.redis.store import RedisStore

_BATCH = 64


def amend(store: RedisStore, audited: AuditedSlot) -> None:
    """Raises StoreError."""
    slot, partition = audited.slot, audited.partition
    by_key = [key for f in (Fault.DAMAGED, Fault.UNLISTED, Fault.GONE, Fault.WAYS) for key in audited.faults[f]]
    if by_key:
        store.register(partition)
    for first in range(0, len(by_key), _BATCH):
        _put_again(store, audited, by_key[first : first + _BATCH])
    strays = audited.faults[Fault.STRAY_ID]
    if strays:
        store.link.script("prune", [slot.ids, slot.records], strays)
    for name in audited.faults[Fault.STRAY_VECTOR]:
        members = store.link.call("execute_command", "VRANDMEMBER", name, 2**31 - 1) or []
        for first in range(0, len(members), _BATCH):
            store.link.script("prune", [slot.ids, slot.records, name], members[first : first + _BATCH])
    store.link.script("recount", [slot.meta, slot.records, slot.journal], [])
    add_up(store, partition.tenant, [slot])


def add_up(store: RedisStore, tenant: str, slots: list[Slot]) -> None:
    """A tenant's bytes, and what these slots have of them."""
    store.link.script("total", [store.names.shares(tenant), store.names.oldest(tenant)], [slot.tag for slot in slots])
    for slot in slots:
        store.note_share(tenant, slot)


def _put_again(store: RedisStore, audited: AuditedSlot, exacts: list[bytes]) -> None:
    slot = audited.slot
    keys = [slot.meta, slot.entries, slot.ids, slot.records, slot.used, slot.gone, slot.journal, slot.numbers]
    keys += sorted(audited.vector_sets)
    for seen in look_at(store, slot, exacts):
        entry = entry_at(audited.partition, seen)
        entry_id = "" if entry is None else entry.entry_id
        cleared = [
            seen.exact,
            hashlib.sha1(seen.data, usedforsecurity=False).hexdigest(),
            entry_id.encode("utf-8", "surrogatepass"),
        ]
        if store.link.script("clear", keys, [8192, store.names.channel, *cleared]) and entry is not None:
            store.put(entry, keep_newer=True)


def partition_of(store: RedisStore, slot: Slot, seen: Seen) -> Partition | None:
    """Whose an entry is that was found in a slot of nobody's; None where it does not belong into it."""
    try:
        partition = decode_entry(seen.data).partition
    except CorruptEntry:
        return None
    return partition if slot in store.names.slots(partition) else None
