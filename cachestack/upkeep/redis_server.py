"""Entries in Redis: the server they are on, and every slot of every partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from cachestack.entries import Selector
from cachestack.errors import StoreError
from cachestack.keys import Partition
from cachestack.stores.fences import decode_fence
from cachestack.stores.opening import RedisRef
from cachestack.stores.redis.auditing import AuditedSlot, Fault, KeySpace, audit_slot, scan
from cachestack.stores.redis.names import Slot, text_digest
from cachestack.stores.redis.registry import read_partition
from cachestack.stores.redis.store import RedisStore
from cachestack.upkeep.findings import CannotLook, Finding, Found, Looked, Severity
from cachestack.upkeep.redis_repairs import (
    add_up_tenant,
    amend_slot,
    opened,
    register_listed,
    register_slot,
    remove_fields,
    remove_members,
)

CHECK = "redis"
_SAID: dict[Fault, tuple[Severity, str, str]] = {
    Fault.DAMAGED: (
        Severity.ERROR,
        "{num} entries are damaged, or lie where another belongs: their questions are answered by the engine again",
        "drops them",
    ),
    Fault.UNLISTED: (
        Severity.ERROR,
        "{num} entries are in no list: they are served, and no invalidation finds them",
        "puts them again, as whoever made them did",
    ),
    Fault.GONE: (
        Severity.WARNING,
        "{num} entries are listed and not there: Redis may have dropped keys",
        "unlists them",
    ),
    Fault.WAYS: (
        Severity.WARNING,
        "{num} entries lack a way to them (id, last use, expiry, vector), or lie in another slot than they should",
        "puts them again, as whoever made them did",
    ),
    Fault.STRAY_ID: (Severity.WARNING, "{num} ids lead to no entry of theirs", "removes them"),
    Fault.STRAY_VECTOR: (
        Severity.WARNING,
        "{num} vector sets hold vectors of entries that are gone: they take memory and searches find less",
        "removes those vectors",
    ),
    Fault.COUNTS: (
        Severity.WARNING,
        "what is counted is not what is there: entries may be evicted too early or too late",
        "counts again",
    ),
}


def check_redis_server(looked: Looked) -> Iterator[Found]:
    ref = _ref(looked)
    with _connected(ref) as store:
        info: dict[str, Any] = store.link.call("info")
        yield from _of_server(ref, info, has_vector_sets=store.link.has_vector_sets())
        try:
            settings = store.link.call("config_get", "maxmemory-policy")
            policy = _text(next(iter(settings.values()), info.get("maxmemory_policy", "")))
        except StoreError:
            policy = _text(info.get("maxmemory_policy", ""))
        if policy.startswith("allkeys"):
            what = (
                f"maxmemory-policy {policy} lets the server drop any key when its memory is full: entries lose their "
                "ways, or are served and found by no invalidation; set it to noeviction and give tenants byte budgets"
            )
            yield Found(Finding(Severity.ERROR, CHECK, ref.shown, what))


def check_redis_entries(looked: Looked) -> Iterator[Found]:
    ref = _ref(looked)
    with _connected(ref) as store:
        found = list(_registry(looked, ref, store))
        space = scan(store, lambda done, total: looked.advance("keys", done, total))
        found += _unregistered(ref, store, space)
        partitions = list(store.partitions(Selector()))
        for number, partition in enumerate(partitions, start=1):
            for slot in store.names.slots(partition):
                audited = audit_slot(store, partition, slot, space, lambda d, t: looked.advance("entries", d, t))
                looked.tenant_bytes[partition.tenant] = looked.tenant_bytes.get(partition.tenant, 0) + audited.num_bytes
                found += _of_slot(ref, audited)
            looked.advance("partitions", number, len(partitions))
        found += _quotas(ref, store, partitions)
    return iter(found)


def _of_server(ref: RedisRef, info: dict[str, Any], *, has_vector_sets: bool) -> Iterator[Found]:
    version = _text(info.get("redis_version", "?"))
    if not has_vector_sets:
        what = (
            f"the server (version {version}) has no vector sets, or this user may not use them: entries are compared "
            "in each process; Redis 8 has them"
        )
        yield Found(Finding(Severity.WARNING, CHECK, ref.shown, what))
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if limit and used > 0.9 * limit:
        what = f"{used:,} of {limit:,} bytes of its memory are in use: once it is full, new answers are not kept"
        yield Found(Finding(Severity.WARNING, CHECK, ref.shown, what))
    if not limit:
        what = "maxmemory is not set: the server grows until the machine's memory is full"
        yield Found(Finding(Severity.NOTE, CHECK, ref.shown, what))
    if not info.get("aof_enabled") and info.get("rdb_last_save_time") and not info.get("rdb_saves", 1):
        what = "nothing was ever saved to disk: a restart of the server begins with an empty cache"
        yield Found(Finding(Severity.NOTE, CHECK, ref.shown, what))


def _registry(looked: Looked, ref: RedisRef, store: RedisStore) -> Iterator[Found]:
    """Tenants and partitions that are listed under a name that is not theirs; invalidations that cannot be read."""
    link, names = store.link, store.names
    tenants = link.call("hgetall", names.tenants)
    bad = [name for name, tenant in tenants.items() if text_digest(tenant.decode("utf-8", "surrogatepass")) != name]
    if bad:
        what = f"{len(bad):,} tenants are listed under a name that is not theirs"
        finding = Finding(Severity.WARNING, CHECK, ref.shown, what, "removes those lines")
        yield Found(finding, partial(remove_fields, ref, names.tenants, bad))
    for tenant in store.tenants():
        listed = link.call("hgetall", names.partitions(tenant))
        bad = [name for name, fields in listed.items() if not _is_partition(name, fields, tenant)]
        if bad:
            what = f"{len(bad):,} partitions of tenant {tenant!r} are listed in a way that cannot be read"
            repair = "removes those lines; what is in them is listed again by what lies there"
            finding = Finding(Severity.ERROR, CHECK, ref.shown, what, repair)
            yield Found(finding, partial(remove_fields, ref, names.partitions(tenant), bad))
    fences = link.call("zrange", names.fences, 0, -1)
    unreadable = [fence for fence in fences if decode_fence(fence) is None]
    if unreadable:
        what = f"{len(unreadable):,} invalidations cannot be read: an answer on its way may be kept in spite of them"
        finding = Finding(Severity.WARNING, CHECK, ref.shown, what, "removes them")
        yield Found(finding, partial(remove_members, ref, names.fences, unreadable))


def _unregistered(ref: RedisRef, store: RedisStore, space: KeySpace) -> Iterator[Found]:
    """Slots with entries that belong to no listed partition, or to a store with more slots."""
    listed = {slot.tag: p for p in store.partitions(Selector()) for slot in store.names.slots(p)}
    for tag in sorted(set(space.entries) - set(listed)):
        place = f"{ref.shown} {tag.decode('ascii', 'replace')}"
        number = int(tag.rpartition(b".")[2].rstrip(b"}") or 0)
        if number >= store.names.num_slots:
            what = (
                f"{space.entries[tag]:,} entries lie in slot {number}, and the store is opened with "
                f"{store.names.num_slots}: they are not found; open it with slots={number + 1} or more, as it was"
            )
            yield Found(Finding(Severity.ERROR, CHECK, place, what))
            continue
        what = (
            f"{space.entries[tag]:,} entries are in a partition that is not listed: they are served, and no "
            "invalidation finds them"
        )
        finding = Finding(Severity.ERROR, CHECK, place, what, "lists it; entries that belong nowhere are removed")
        yield Found(finding, partial(register_slot, ref, Slot(tag), sorted(space.unlisted.get(tag, ()))))
    for key in sorted(space.tenants):
        if key not in {store.names.partitions(tenant) for tenant in store.tenants()}:
            what = "a tenant's partitions are listed, and the tenant is not: invalidations of all tenants leave it out"
            finding = Finding(Severity.ERROR, CHECK, f"{ref.shown} {key.decode('ascii', 'replace')}", what, "lists it")
            yield Found(finding, partial(register_listed, ref, key))


def _of_slot(ref: RedisRef, audited: AuditedSlot) -> Iterator[Found]:
    place = f"{ref.shown} tenant {audited.partition.tenant!r} {audited.slot.tag.decode('ascii', 'replace')}"
    for fault, names in audited.faults.items():
        if names:
            severity, what, repair = _SAID[fault]
            finding = Finding(severity, CHECK, place, what.format(num=f"{len(names):,}"), repair)
            yield Found(finding, partial(amend_slot, ref, audited))
    if audited.was_busy:
        what = "it is written to so often that its counts could not be compared"
        yield Found(Finding(Severity.NOTE, CHECK, place, what))


def _quotas(ref: RedisRef, store: RedisStore, partitions: list[Partition]) -> Iterator[Found]:
    for tenant in sorted({partition.tenant for partition in partitions}):
        shares = store.link.call("hgetall", store.names.shares(tenant))
        total = int(shares.pop(b"total", 0))
        slots = [slot for p in partitions if p.tenant == tenant for slot in store.names.slots(p)]
        ahead = []
        for slot in slots:
            number = int(shares.get(slot.tag, b"0 0").split()[0])
            latest = store.link.call("hget", slot.meta, "latest")
            if number > int(latest or 0):
                ahead.append(slot)
        if ahead or total != sum(int(share.split()[1]) for share in shares.values()):
            what = (
                f"the bytes of tenant {tenant!r} are not the sum of its slots': its budget is not kept as it should be"
            )
            finding = Finding(Severity.WARNING, CHECK, ref.shown, what, "adds them up again")
            yield Found(finding, partial(add_up_tenant, ref, tenant, ahead))


def _is_partition(name: bytes, fields: bytes, tenant: str) -> bool:
    partition = read_partition(fields)
    return partition is not None and bytes.fromhex(partition.digest) == name and partition.tenant == tenant


@contextmanager
def _connected(ref: RedisRef) -> Iterator[RedisStore]:
    """What the store raises means that it cannot be looked at."""
    with opened(ref) as store:
        try:
            yield store
        except StoreError as error:
            raise CannotLook(f"{ref.shown}: {error}") from error


def _ref(looked: Looked) -> RedisRef:
    assert isinstance(looked.store, RedisRef), "only asked where entries are in Redis"
    return looked.store


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
