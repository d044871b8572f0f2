"""Entries in Redis, shared by all processes and machines that open the same server and prefix.

A read is one command. A write is one script in its slot (see names.py): entry, ways to it, vector and change record
become visible together. What goes over several slots, a tenant's quota and an invalidation of many partitions, is done
slot by slot: a quota may be exceeded for as long as the writer takes to evict, an invalidation takes effect partition
by partition, and an answer that was on its way is held back in each from the moment it takes effect there.

Uses (`touch`) are kept in memory and written with the next write, or once a second.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Literal

from cachestack.entries import CLOCK_SLACK_S, Entry, Selector
from cachestack.errors import StoreError
from cachestack.keys import Partition
from cachestack.stores.base import Change, Changes, Claim, StoreSize, Taken
from cachestack.stores.codec import charged_bytes, encode_entry, gone_at_s, with_vector
from cachestack.stores.fences import Fence, Fences, decode_fence, needs_fence
from cachestack.stores.limits import check_fits, check_selector
from cachestack.stores.redis.claims import RedisClaims
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.names import Names, Slot, text_digest
from cachestack.stores.redis.quotas import Quotas
from cachestack.stores.redis.registry import Registry
from cachestack.stores.redis.rows import WHICHEVER, Row, Rows, as_bytes, as_score, as_text

USE_INTERVAL_S = 1.0
_KINDS: dict[bytes, Literal["put", "remove"]] = {b"p": "put", b"r": "remove"}
_MAX_ROUNDS = 8


class RedisStore:
    """An EntryStore. `num_slots`: into how many slots a partition is split; all who share a server say the same."""

    def __init__(
        self,
        link: Link,
        clock: Callable[[], float] = time.time,
        *,
        prefix: str = "cachestack:",
        num_slots: int = 1,
        journal_length: int = 8192,
    ) -> None:
        self.link = link
        self.names = Names(prefix.encode(), num_slots)
        self._clock = clock
        self._journal_length = journal_length
        self._rows = Rows(link, self.names, journal_length)
        self._registry = Registry(link, self.names)
        self._quotas = Quotas(link, self.names, lambda slot, key: self._rows.remove(slot, [(key, WHICHEVER)]))
        self._claims = RedisClaims(link, self.names)
        self._fences = Fences()
        self._lock = threading.Lock()  # guards the ones below
        self._seen_fences: dict[bytes, tuple[bytes, list[Fence]]] = {}
        self._uses: defaultdict[str, dict[tuple[Partition, str], float]] = defaultdict(dict)
        self._uses_written_s: dict[str, float] = {}

    @property
    def num_corrupt(self) -> int:
        """Damaged entries that this process has found."""
        return self._rows.num_corrupt

    # reading

    def find_exact(self, partition: Partition, exact: str) -> Entry | None:
        key = text_digest(exact)
        slot = self.names.slot_of(partition, key)
        data = self.link.run(lambda client: client.get(slot.entries + key))
        return self._rows.decoded(partition, slot, key, data)

    def get(self, partition: Partition, entry_id: str) -> Entry | None:
        row = self._by_id(partition, entry_id)
        return None if row is None else row.entry

    def many(self, partition: Partition, keys: list[bytes]) -> list[Entry]:
        """The entries of these exact keys, those that are there, in order."""
        slots = [self.names.slot_of(partition, key) for key in keys]
        data = self.link.pipelined([("GET", slot.entries + key) for slot, key in zip(slots, keys, strict=True)])
        read = (self._rows.decoded(partition, *of) for of in zip(slots, keys, data, strict=True))
        return [entry for entry in read if entry is not None]

    def entries(self, partition: Partition) -> Iterator[Entry]:
        """In no particular order. What is put or removed meanwhile may be seen or not."""
        return (row.entry for slot in self.names.slots(partition) for row in self._rows.walk(partition, slot))

    def select(self, selector: Selector) -> Iterator[Entry]:
        for partition in self._registry.partitions(selector):
            yield from (row.entry for row in self._matching(partition, selector))

    # writing

    def put(self, entry: Entry, max_bytes: int | None = None, *, keep_newer: bool = False) -> bool:
        """As the contract says. Raises EntryTooLarge, and changes nothing, where the entry alone exceeds the budget."""
        data, now_s, partition = encode_entry(entry), self._clock(), entry.partition
        check_fits(charged_bytes(data), max_bytes)
        if self._fences.hold_back(entry, now_s):
            return False
        self._write_uses(partition.tenant)
        slot = self.names.slot_of(partition, text_digest(entry.exact))
        elsewhere = self._in_another_slot(partition, entry.entry_id, slot)
        if keep_newer and elsewhere is not None and elsewhere.entry.created_at_s >= entry.created_at_s:
            return False
        if not self._put(slot, entry, data, now_s, keep_newer=keep_newer):
            return False
        if elsewhere is not None:
            self._rows.remove(elsewhere.slot, [(elsewhere.exact, elsewhere.number)])
            self._quotas.note(partition.tenant, elsewhere.slot)
        self._quotas.settle(partition.tenant, slot, max_bytes)
        return True

    def _put(self, slot: Slot, entry: Entry, data: bytes, now_s: float, *, keep_newer: bool) -> bool:
        vectors = self._vectors_of(slot, entry)
        keys = [slot.meta, slot.entries, slot.ids, slot.records, slot.used, slot.gone, slot.journal, slot.numbers]
        is_new = False
        for _ in range(_MAX_ROUNDS):
            seen, fences = self._seen_fences.get(slot.tag, (b"0", []))
            if any(fence.holds_back(entry, now_s) for fence in fences):
                return False
            state, *rest = self.link.script(
                "put",
                [*keys, slot.fences, vectors or slot.meta],
                [
                    *(text_digest(entry.exact), text_digest(entry.entry_id), as_bytes(entry.entry_id), data),
                    *(charged_bytes(data), repr(now_s), as_score(gone_at_s(entry)), repr(entry.created_at_s)),
                    *(int(keep_newer), seen, 1 + secrets.randbelow(2**48), self._journal_length),
                    *(entry.vector if vectors else b"", self.names.channel, int(is_new)),
                ],
            )
            match state:
                case b"1":
                    return True
                case b"0":
                    return False
                case b"-1":
                    known = [fence for fence in map(decode_fence, rest[1:]) if fence is not None]
                    self._seen_fences[slot.tag] = (rest[0], known)
                case _:
                    self._registry.add(entry.partition)
                    is_new = True
        raise StoreError("invalidations come faster than an entry can be put")

    def set_vector(self, partition: Partition, entry_id: str, vector: bytes, encoder: str, states: bytes = b"") -> bool:
        """Give an entry the vector and the states of another encoder; False if it has gone. Nothing else changes."""
        while (row := self._by_id(partition, entry_id)) is not None:
            entry, slot = with_vector(row.entry, vector, encoder, states), row.slot
            data, vectors = encode_entry(entry), self._vectors_of(slot, entry)
            done = self.link.script(
                "revector",
                [slot.meta, slot.entries, slot.records, slot.journal, slot.numbers, vectors or slot.meta],
                [
                    *(row.exact, row.number, data, charged_bytes(data), entry.vector if vectors else b""),
                    *(self._journal_length, self.names.channel),
                ],
            )
            if done:
                self._quotas.note(partition.tenant, slot)
                return True
        return False

    def prolong(self, partition: Partition, entry_id: str, now_s: float, sliding_s: float) -> bool:
        """As the contract says."""
        while (row := self._by_id(partition, entry_id)) is not None:
            entry, slot = row.entry.used(now_s, sliding_s), row.slot
            data = encode_entry(entry)
            done = self.link.script(
                "prolong",
                [slot.meta, slot.entries, slot.records, slot.gone, slot.numbers],
                [
                    *(row.exact, row.number, data, charged_bytes(data), as_score(gone_at_s(entry))),
                    self.names.channel,
                ],
            )
            if done:
                return True
        return False

    def touch(self, partition: Partition, entry_id: str, now_s: float) -> None:
        if not self.note_use(partition, entry_id, now_s):
            with self._lock:
                self._uses[partition.tenant][partition, entry_id] = now_s
            self._write_uses(partition.tenant)

    def note_use(self, partition: Partition, entry_id: str, now_s: float) -> bool:
        """Note it in memory alone; False, and nothing is noted, where it is time to write."""
        with self._lock:
            last_s = self._uses_written_s.setdefault(partition.tenant, now_s)
            if not 0 <= now_s - last_s < USE_INTERVAL_S:
                return False
            self._uses[partition.tenant][partition, entry_id] = now_s
            return True

    def invalidate(self, selector: Selector) -> int:
        check_selector(selector)
        fence = Fence(self._clock(), selector) if needs_fence(selector) else None
        if fence is not None:
            self._fences.add(fence)
            self._registry.fence_all(fence)
        num_removed = 0
        for partition in self._registry.partitions(selector):
            if fence is not None:
                self._registry.fence(partition, fence)
            for row in list(self._matching(partition, selector)):
                num_removed += self._remove(row, selector)
            for slot in self.names.slots(partition):
                self._quotas.note(partition.tenant, slot)
        return num_removed

    def has_fence_since(self, tenant: str, at_s: float) -> bool:
        """Whether any process has invalidated something of the tenant's after `at_s`, but for entries by their id."""
        return self._registry.has_fence_between(tenant, at_s, self._clock() + CLOCK_SLACK_S)

    def purge(self, now_s: float) -> int:
        num_removed = 0
        for partition in self._registry.partitions(Selector()):
            for slot in self.names.slots(partition):
                num_here = self._rows.purge(slot, now_s)
                num_removed += num_here
                if num_here:
                    self._quotas.note(partition.tenant, slot)
        return num_removed

    def register(self, partition: Partition) -> None:
        """List a partition, so that whoever invalidates finds it. Every `put` does where it has to."""
        self._registry.add(partition)

    def note_share(self, tenant: str, slot: Slot) -> int:
        """Count what the slot holds into the tenant's bytes."""
        return self._quotas.note(tenant, slot)

    def partitions(self, selector: Selector) -> Iterator[Partition]:
        """Those that are listed, in which something may match."""
        return self._registry.partitions(selector)

    def fences(self) -> list[Fence]:
        """The invalidations that are remembered, the oldest first."""
        return self._registry.fences()

    # counting

    def latest(self, partition: Partition) -> int:
        slots = self.names.slots(partition)
        return sum(int(number or 0) for number in self.link.pipelined([("HGET", s.meta, "latest") for s in slots]))

    def changes(self, partition: Partition, since: int) -> Changes:
        """Of a partition in several slots only that something has changed is known: then it is not complete."""
        slot, *others = self.names.slots(partition)
        if others:
            latest = self.latest(partition)
            return Changes(latest, complete=latest == since)
        with self.link.transaction() as pipeline:
            pipeline.hget(slot.meta, "latest")
            pipeline.lrange(slot.journal, 0, -1)
            number, journal = pipeline.execute()
        latest = int(number or 0)
        missing = latest - since
        if missing == 0 or not 0 < missing <= len(journal):
            return Changes(latest, complete=missing == 0)
        kept = enumerate(journal[-missing:], since + 1)
        return Changes(latest, True, tuple(Change(n, _KINDS[text[:1]], as_text(text[1:])) for n, text in kept))

    def size(self, tenant: str | None = None) -> StoreSize:
        partitions = self._registry.partitions(Selector(tenant=tenant))
        slots = [slot for partition in partitions for slot in self.names.slots(partition)]
        counts = self.link.pipelined([("HMGET", slot.meta, "num", "bytes") for slot in slots])
        return StoreSize(sum(int(num or 0) for num, _ in counts), sum(int(size or 0) for _, size in counts))

    def tenants(self) -> list[str]:
        """The tenants that have or had entries, sorted."""
        return self._registry.tenants()

    def close(self) -> None:
        """Write the uses that are still in memory and close the connections. Later calls raise StoreError."""
        for tenant in list(self._uses):
            with suppress(StoreError):
                self._write_uses(tenant)
        self._claims.close()
        self.link.close()

    # claiming

    def claim(self, partition: Partition, exact: str) -> Claim | Taken | None:
        return self._claims.claim(partition, exact)

    # parts

    def _vectors_of(self, slot: Slot, entry: Entry) -> bytes | None:
        """None also on a server without vector sets."""
        vectors = slot.vectors_of(entry)
        return vectors if vectors is not None and self.link.has_vector_sets() else None

    def _by_id(self, partition: Partition, entry_id: str) -> Row | None:
        id_digest = text_digest(entry_id)
        rows = (self._rows.by_id(partition, slot, id_digest) for slot in self.names.slots(partition))
        return next((row for row in rows if row is not None), None)

    def _in_another_slot(self, partition: Partition, entry_id: str, slot: Slot) -> Row | None:
        if self.names.num_slots == 1:
            return None
        row = self._by_id(partition, entry_id)
        return None if row is None or row.slot == slot else row

    def _matching(self, partition: Partition, selector: Selector) -> Iterator[Row]:
        if selector.entry_id is not None:
            row = self._by_id(partition, selector.entry_id)
            found: Iterator[Row] = iter(() if row is None else (row,))
        else:
            found = (row for slot in self.names.slots(partition) for row in self._rows.walk(partition, slot))
        return (row for row in found if selector.matches(row.entry))

    def _remove(self, row: Row, selector: Selector) -> int:
        """Whatever stands there by now, as long as it matches."""
        current: Row | None = row
        while current is not None and selector.matches(current.entry):
            if self._rows.remove(current.slot, [(current.exact, current.number)]):
                return 1
            current = next(iter(self._rows.rows(row.entry.partition, row.slot, [row.exact])), None)
        return 0

    def _write_uses(self, tenant: str) -> None:
        with self._lock:
            uses = self._uses.pop(tenant, {})
            self._uses_written_s[tenant] = self._clock()
        if not uses:
            return
        slots = [
            (slot, text_digest(entry_id), at_s) for (p, entry_id), at_s in uses.items() for slot in self.names.slots(p)
        ]
        keys = self.link.pipelined([("HGET", slot.ids, id_digest) for slot, id_digest, _ in slots])
        noted: list[tuple[Any, ...]] = [
            ("ZADD", slot.used, "XX", repr(at_s), key)
            for (slot, _, at_s), key in zip(slots, keys, strict=True)
            if key is not None
        ]
        self.link.pipelined(noted)
