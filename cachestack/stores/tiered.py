"""Entries of a shared store that were read a short while ago, in this process's memory.

The shared store tells of every write (see redis/names.py, `channel`). What is told is dropped here, so that an entry
that was replaced, removed or evicted by anyone is gone within the time a message takes. Silence is not trusted: the
listener asks for a sign of life several times a second, and from `MAX_SILENCE_S` after the last one nothing is served
from memory until it listens again, with an empty memory. So an entry that was revoked elsewhere is served for a second
at most, whatever becomes of the network.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cachestack.entries import Entry, Selector
from cachestack.keys import Partition
from cachestack.stores.base import NOT_NOW, Changes, Claim, NotNow, StoreSize, Taken
from cachestack.stores.redis.listening import Listener
from cachestack.stores.redis.names import text_digest
from cachestack.stores.redis.store import RedisStore

MAX_SILENCE_S = 0.75
_MAX_ENTRY_BYTES = 64 * 1024
_NUM_RECENT = 1024


@dataclass(frozen=True, slots=True)
class _Read:
    entry: Entry
    num_bytes: int


class _Memory:
    """The least recently used go first. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._reads: OrderedDict[bytes, _Read] = OrderedDict()
        self._recent: deque[bytes] = deque(maxlen=_NUM_RECENT)  # the latest keys that were told of
        self._num_told = 0

    @property
    def moment(self) -> int:
        """Before a read from the shared store: `keep` then knows what was told since."""
        return self._num_told

    def find(self, key: bytes, partition: Partition) -> Entry | None:
        with self._lock:
            read = self._reads.get(key)
            if read is None or read.entry.partition != partition:
                return None
            self._reads.move_to_end(key)
            return read.entry

    def keep(self, key: bytes, entry: Entry, since: int) -> None:
        num_bytes = 1000 + len(entry.question) + len(entry.answer) + len(entry.vector or b"") + len(entry.states)
        if num_bytes > _MAX_ENTRY_BYTES:
            return
        with self._lock:
            num_told = self._num_told - since
            if num_told > len(self._recent) or key in list(self._recent)[len(self._recent) - num_told :]:
                return
            self._drop(key)
            self._reads[key] = _Read(entry, num_bytes)
            self._num_bytes += num_bytes
            while self._num_bytes > self._max_bytes:
                self._drop(next(iter(self._reads)))

    def told(self, key: bytes) -> None:
        with self._lock:
            self._recent.append(key)
            self._num_told += 1
            self._drop(key)

    def clear(self) -> None:
        with self._lock:
            self._reads.clear()
            self._recent.clear()
            self._num_bytes = 0
            self._num_told += _NUM_RECENT  # whatever is being read now is not kept

    def _drop(self, key: bytes) -> None:
        read = self._reads.pop(key, None)
        if read is not None:
            self._num_bytes -= read.num_bytes


class TieredStore:
    """An EntryStore and AtOnce: `shared`, with memory in front of its exact tier. It listens from the first read on."""

    def __init__(
        self,
        shared: RedisStore,
        *,
        max_bytes: int = 32 * 1024 * 1024,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shared = shared
        self._memory = _Memory(max_bytes)
        self._monotonic = monotonic
        self._listener = Listener(shared.link, shared.names.channel, self._memory.told, self._memory.clear, monotonic)

    @property
    def num_corrupt(self) -> int:
        return self.shared.num_corrupt

    def find_exact(self, partition: Partition, exact: str) -> Entry | None:
        key = self._key(partition, exact)
        kept = self._kept(partition, key)
        if kept is not None:
            return kept
        since, is_listening = self._memory.moment, self._is_listening()
        entry = self.shared.find_exact(partition, exact)
        if entry is not None and is_listening:
            self._memory.keep(key, entry, since)
        return entry

    def find_exact_at_once(self, partition: Partition, exact: str, moment: object = None) -> Entry | NotNow:
        kept = self._kept(partition, self._key(partition, exact))
        return NOT_NOW if kept is None else kept

    def touch_at_once(self, partition: Partition, entry_id: str, now_s: float) -> bool:
        return self.shared.note_use(partition, entry_id, now_s)

    def get(self, partition: Partition, entry_id: str) -> Entry | None:
        return self.shared.get(partition, entry_id)

    def entries(self, partition: Partition) -> Iterator[Entry]:
        return self.shared.entries(partition)

    def select(self, selector: Selector) -> Iterator[Entry]:
        return self.shared.select(selector)

    def put(self, entry: Entry, max_bytes: int | None = None, *, keep_newer: bool = False) -> bool:
        done = self.shared.put(entry, max_bytes, keep_newer=keep_newer)
        self._memory.told(self._key(entry.partition, entry.exact))
        return done

    def set_vector(self, partition: Partition, entry_id: str, vector: bytes, encoder: str, states: bytes = b"") -> bool:
        return self.shared.set_vector(partition, entry_id, vector, encoder, states)

    def prolong(self, partition: Partition, entry_id: str, now_s: float, sliding_s: float) -> bool:
        return self.shared.prolong(partition, entry_id, now_s, sliding_s)

    def touch(self, partition: Partition, entry_id: str, now_s: float) -> None:
        self.shared.touch(partition, entry_id, now_s)

    def latest(self, partition: Partition) -> int:
        return self.shared.latest(partition)

    def changes(self, partition: Partition, since: int) -> Changes:
        return self.shared.changes(partition, since)

    def invalidate(self, selector: Selector) -> int:
        try:
            return self.shared.invalidate(selector)
        finally:
            self._memory.clear()

    def has_fence_since(self, tenant: str, at_s: float) -> bool:
        return self.shared.has_fence_since(tenant, at_s)

    def purge(self, now_s: float) -> int:
        return self.shared.purge(now_s)

    def size(self, tenant: str | None = None) -> StoreSize:
        return self.shared.size(tenant)

    def tenants(self) -> list[str]:
        return self.shared.tenants()

    def claim(self, partition: Partition, exact: str) -> Claim | Taken | None:
        return self.shared.claim(partition, exact)

    def close(self) -> None:
        self._listener.close()
        self._memory.clear()
        self.shared.close()

    def _key(self, partition: Partition, exact: str) -> bytes:
        key = text_digest(exact)
        return self.shared.names.slot_of(partition, key).entries + key

    def _kept(self, partition: Partition, key: bytes) -> Entry | None:
        return self._memory.find(key, partition) if self._is_listening() else None

    def _is_listening(self) -> bool:
        return self._listener.heard_within(MAX_SILENCE_S)
