"""Reading and removing the entries of one slot."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cachestack.entries import Entry
from cachestack.keys import Partition
from cachestack.stores.codec import CorruptEntry, decode_entry
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.names import Names, Slot

BATCH = 256
WHICHEVER = b"*"


@dataclass(frozen=True, slots=True)
class Row:
    """An entry as it was read, and the number of the change that put it there; `number` is WHICHEVER where unread."""

    slot: Slot
    exact: bytes
    entry: Entry
    number: bytes = WHICHEVER


@dataclass(slots=True)
class Rows:
    link: Link
    names: Names
    journal_length: int
    num_corrupt: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, partition: Partition, slot: Slot, keys: Sequence[bytes]) -> list[Entry | None]:
        """By exact key: one round trip."""
        if not keys:
            return []
        data = self.link.run(lambda client: client.mget([slot.entries + key for key in keys]))
        return [self.decoded(partition, slot, key, value) for key, value in zip(keys, data, strict=True)]

    def by_id(self, partition: Partition, slot: Slot, id_digest: bytes) -> Row | None:
        key = self.link.run(lambda client: client.hget(slot.ids, id_digest))
        return None if key is None else next(iter(self.rows(partition, slot, [key])), None)

    def rows(self, partition: Partition, slot: Slot, keys: Sequence[bytes]) -> list[Row]:
        """With their numbers, as of one and the same moment."""
        if not keys:
            return []
        with self.link.transaction() as pipeline:
            pipeline.mget([slot.entries + key for key in keys])
            pipeline.hmget(slot.numbers, keys)
            data, numbers = pipeline.execute()
        found = []
        for key, value, number in zip(keys, data, numbers, strict=True):
            entry = self.decoded(partition, slot, key, value)
            if entry is not None and number is not None:
                found.append(Row(slot, key, entry, number))
        return found

    def walk(self, partition: Partition, slot: Slot) -> Iterator[Row]:
        """All of a slot, in no particular order. What is put or removed meanwhile may be seen or not."""
        cursor, seen = 0, set[bytes]()
        while True:
            cursor, page = self._page(slot, cursor)
            keys = [key for key in page if key not in seen]
            seen.update(keys)
            yield from self.rows(partition, slot, keys)
            if cursor == 0:
                return

    def _page(self, slot: Slot, cursor: int) -> tuple[int, list[bytes]]:
        cursor, page = self.link.run(lambda client: client.hscan(slot.numbers, cursor, count=BATCH))
        return cursor, list(page)

    def remove(self, slot: Slot, which: Sequence[tuple[bytes, bytes]]) -> int:
        """Those (exact key, number) that are still the same; returns how many were."""
        num_removed = 0
        keys = [slot.meta, slot.entries, slot.ids, slot.records, slot.used, slot.gone, slot.journal, slot.numbers]
        for first in range(0, len(which), BATCH):
            pairs = [part for pair in which[first : first + BATCH] for part in pair]
            num_removed += self.link.script("remove", keys, [self.journal_length, self.names.channel, *pairs])
        return num_removed

    def purge(self, slot: Slot, now_s: float) -> int:
        """Remove what can serve nobody any more."""
        num_removed = 0
        while True:
            gone = self.link.run(lambda c: c.zrangebyscore(slot.gone, "-inf", as_score(now_s), start=0, num=BATCH))
            num_removed += self.remove(slot, [(key, WHICHEVER) for key in gone])
            if len(gone) < BATCH:
                return num_removed

    def decoded(self, partition: Partition, slot: Slot, key: bytes, data: bytes | None) -> Entry | None:
        """None, counted and removed, for what is damaged or another partition's."""
        if data is None:
            return None
        try:
            entry = decode_entry(data)
            if entry.partition == partition:
                return entry
        except CorruptEntry:
            pass
        with self._lock:
            self.num_corrupt += 1
        self.remove(slot, [(key, WHICHEVER)])
        return None


def as_score(seconds: float) -> str:
    return "+inf" if seconds == float("inf") else repr(seconds)


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
