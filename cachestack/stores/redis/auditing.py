"""What is wrong with the entries in Redis: reads everything, changes nothing, and holds nobody up for long.

Each exact key is looked at in one script, so that what others write meanwhile is not taken for a fault. One pass over
the whole key space (`SCAN`) finds what no list speaks of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

from cachestack.entries import Entry
from cachestack.keys import Partition
from cachestack.stores.codec import CorruptEntry, charged_bytes, decode_entry, gone_at_s
from cachestack.stores.redis.names import Slot, text_digest
from cachestack.stores.redis.store import RedisStore

_BATCH = 128
_ROUNDS = 3
_EXACT_BYTES = 32
Advance = Callable[[int, int], None]


class Fault(StrEnum):
    DAMAGED = "damaged"
    """Bytes that are no entry, or not the one that belongs there."""
    UNLISTED = "unlisted"
    """An entry that no record speaks of: it is served, and no invalidation, eviction or purge finds it."""
    GONE = "gone"
    """A record or list that speaks of an entry that is not there."""
    WAYS = "ways"
    """A whole entry whose id, use, expiry or vector is missing or wrong, or that lies in a wrong slot."""
    STRAY_ID = "stray_id"
    STRAY_VECTOR = "stray_vector"
    COUNTS = "counts"
    """What the slot says it holds is not what it holds."""


@dataclass(slots=True)
class AuditedSlot:
    partition: Partition
    slot: Slot
    faults: defaultdict[Fault, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """Exact keys, or what else names what is wrong."""
    vector_sets: set[bytes] = field(default_factory=set)
    num_entries: int = 0
    num_bytes: int = 0
    was_busy: bool = False
    """Whether it was written to so often that its counts could not be compared."""


@dataclass(slots=True)
class KeySpace:
    """One pass over all keys of a store. `unlisted`: exact keys of entries by slot, as they were seen."""

    entries: defaultdict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    unlisted: defaultdict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    vector_sets: defaultdict[bytes, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    tenants: set[bytes] = field(default_factory=set)
    """The keys of tenants' lists of partitions."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One exact key, as one script saw it."""

    exact: bytes
    data: bytes
    has_record: bool
    id_digest: bytes
    charged: bytes
    vectors: bytes
    number: bytes
    used: bytes
    gone: bytes
    id_leads_here: bool
    is_in_vectors: bool


def scan(store: RedisStore, advance: Advance = lambda done, total: None) -> KeySpace:
    """Raises StoreError."""
    found, prefix = KeySpace(), store.names.prefix
    total = int(store.link.call("dbsize"))
    cursor, done = 0, 0
    pattern = escaped(prefix) + b"{*"
    while True:
        cursor, keys = store.link.call("scan", cursor, match=pattern, count=1000)
        by_slot: defaultdict[bytes, set[bytes]] = defaultdict(set)
        for key in keys:
            tag, rest = _cut(prefix, key)
            if tag[len(prefix) : len(prefix) + 2] == b"{t" and b"." not in tag[len(prefix) :]:
                if rest == b"p":
                    found.tenants.add(key)
            elif rest[:1] == b"e" and len(rest) == 1 + _EXACT_BYTES:
                by_slot[tag].add(rest[1:])
            elif rest[:1] == b"v":
                found.vector_sets[tag].add(key)
        for tag, exacts in by_slot.items():
            found.entries[tag] += len(exacts)
            keys = list(exacts)
            listed = store.link.call("hmget", Slot(tag).records, keys)
            found.unlisted[tag] |= {key for key, record in zip(keys, listed, strict=True) if record is None}
        done += 1000
        advance(min(done, total), total)
        if cursor == 0:
            return found


def audit_slot(
    store: RedisStore, partition: Partition, slot: Slot, space: KeySpace, advance: Advance = lambda done, total: None
) -> AuditedSlot:
    """Raises StoreError."""
    audited = AuditedSlot(partition, slot, vector_sets=set(space.vector_sets.get(slot.tag, ())))
    for _ in range(_ROUNDS):
        before = _meta(store, slot)[0]
        audited.faults.clear()
        audited.num_entries = audited.num_bytes = 0
        in_sets: defaultdict[bytes, int] = defaultdict(int)
        keys: Iterator[bytes] = _hash_keys(store, slot.records)
        total = int(store.link.call("hlen", slot.records))
        seen_keys: set[bytes] = set()
        while batch := [key for key in islice(keys, _BATCH) if key not in seen_keys]:
            seen_keys.update(batch)
            for seen in look_at(store, slot, batch):
                _judge(store, audited, seen)
                if seen.has_record and seen.vectors:
                    in_sets[seen.vectors] += 1
                    audited.vector_sets.add(seen.vectors)
            advance(min(len(seen_keys), total), total)
        _judge_others(store, audited, space, seen_keys)
        counted = _counts(store, slot, sorted(audited.vector_sets))
        latest, *kept = _meta(store, slot)
        audited.was_busy = latest != before
        if not audited.was_busy:
            _judge_counts(store, audited, counted, in_sets, kept)
            break
    return audited


def look_at(store: RedisStore, slot: Slot, exacts: Sequence[bytes]) -> list[Seen]:
    keys = [slot.entries, slot.ids, slot.records, slot.used, slot.gone, slot.numbers]
    rows: list[list[Any]] = store.link.script("audit", keys, list(exacts))
    return [
        Seen(exact, row[0], bool(row[1]), row[2], row[3], row[4], row[5], row[6], row[7], bool(row[8]), bool(row[9]))
        for exact, row in zip(exacts, rows, strict=True)
    ]


def entry_at(partition: Partition, seen: Seen) -> Entry | None:
    """The entry, where its bytes are whole and it is this partition's, in whichever slot."""
    try:
        entry = decode_entry(seen.data)
    except CorruptEntry:
        return None
    return entry if entry.partition == partition and text_digest(entry.exact) == seen.exact else None


def _judge(store: RedisStore, audited: AuditedSlot, seen: Seen) -> None:
    if not seen.data:
        if seen.has_record or seen.number or seen.used or seen.gone:
            audited.faults[Fault.GONE].append(seen.exact)
        return
    entry = entry_at(audited.partition, seen)
    if entry is None:
        audited.faults[Fault.DAMAGED].append(seen.exact)
        return
    audited.num_entries += 1
    audited.num_bytes += charged_bytes(seen.data)
    if not seen.has_record:
        audited.faults[Fault.UNLISTED].append(seen.exact)
    elif not _is_whole(store, audited.slot, seen, entry):
        audited.faults[Fault.WAYS].append(seen.exact)


def _is_whole(store: RedisStore, slot: Slot, seen: Seen, entry: Entry) -> bool:
    vectors = slot.vectors_of(entry) if store.link.has_vector_sets() else None
    return (
        store.names.slot_of(entry.partition, seen.exact) == slot
        and seen.id_digest == text_digest(entry.entry_id)
        and seen.id_leads_here
        and seen.number != b""
        and seen.used != b""
        and seen.gone != b""
        and float(seen.gone) == gone_at_s(entry)
        and _is_number(seen.charged, charged_bytes(seen.data))
        and seen.vectors == (vectors or b"")
        and (not vectors or seen.is_in_vectors)
    )


def _judge_others(store: RedisStore, audited: AuditedSlot, space: KeySpace, known: set[bytes]) -> None:
    """What other lists speak of, and no record."""
    slot = audited.slot
    others = set(space.unlisted.get(slot.tag, ()))
    for keys in (_hash_keys(store, slot.numbers), _set_keys(store, slot.used), _set_keys(store, slot.gone)):
        others.update(key for key in keys if key not in known)
    left = sorted(others - known)
    for first in range(0, len(left), _BATCH):
        for seen in look_at(store, slot, left[first : first + _BATCH]):
            if not seen.has_record:
                _judge(store, audited, seen)


def _judge_counts(
    store: RedisStore,
    audited: AuditedSlot,
    counted: dict[bytes, int],
    in_sets: defaultdict[bytes, int],
    kept: list[int],
) -> None:
    """Nothing was written meanwhile: whatever differs is wrong. `kept`: what the slot says, entries and bytes."""
    slot = audited.slot
    num_records = counted[slot.records]
    if counted[slot.ids] != num_records:
        leads = store.link.call("hgetall", slot.ids)
        ids = {
            seen.id_digest for batch in _batches(sorted(set(leads.values()))) for seen in look_at(store, slot, batch)
        }
        audited.faults[Fault.STRAY_ID] += [id_digest for id_digest in leads if id_digest not in ids]
    for name in audited.vector_sets:
        if counted[name] > in_sets[name]:
            audited.faults[Fault.STRAY_VECTOR].append(name)
    others = sum(len(audited.faults[f]) for f in (Fault.DAMAGED, Fault.UNLISTED, Fault.GONE, Fault.WAYS))
    if not others and kept != [audited.num_entries, audited.num_bytes]:
        audited.faults[Fault.COUNTS].append(slot.meta)
    for fault in [fault for fault, names in audited.faults.items() if not names]:
        del audited.faults[fault]


def _counts(store: RedisStore, slot: Slot, vector_sets: list[bytes]) -> dict[bytes, int]:
    names = [slot.records, slot.ids, *vector_sets]
    commands: list[tuple[Any, ...]] = [("HLEN", slot.records), ("HLEN", slot.ids)]
    commands += [("VCARD", name) for name in vector_sets]
    return {name: int(n or 0) for name, n in zip(names, store.link.pipelined(commands), strict=True)}


def _meta(store: RedisStore, slot: Slot) -> list[int]:
    """Number of the last change, entries and bytes, as of one moment."""
    return [int(n or 0) for n in store.link.call("hmget", slot.meta, "latest", "num", "bytes")]


def _hash_keys(store: RedisStore, name: bytes) -> Iterator[bytes]:
    cursor = 0
    while True:
        cursor, page = store.link.call("hscan", name, cursor, count=_BATCH)
        yield from page
        if cursor == 0:
            return


def _set_keys(store: RedisStore, name: bytes) -> Iterator[bytes]:
    cursor = 0
    while True:
        cursor, page = store.link.call("zscan", name, cursor, count=_BATCH)
        yield from (member for member, _ in page)
        if cursor == 0:
            return


def _batches(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[first : first + _BATCH] for first in range(0, len(keys), _BATCH))


def _cut(prefix: bytes, key: bytes) -> tuple[bytes, bytes]:
    """A key's beginning up to the closing brace, and its rest."""
    end = key.find(b"}", len(prefix)) + 1
    return key[:end], key[end:]


def escaped(prefix: bytes) -> bytes:
    return b"".join(b"\\" + bytes([c]) if c in b"*?[]\\^" else bytes([c]) for c in prefix)


def _is_number(text: bytes, value: int) -> bool:
    try:
        return float(text) == value
    except ValueError:
        return False
