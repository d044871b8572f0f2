"""The index of entries in Redis: its vector sets find, the entries' own vectors decide."""

from __future__ import annotations

import threading
from dataclasses import replace

from cachestack.entries import Candidate
from cachestack.keys import Partition
from cachestack.semantic.index_counts import IndexCounts
from cachestack.semantic.vectors import cosine, to_vector
from cachestack.stores.redis.nearest import nearest
from cachestack.stores.redis.store import RedisStore


class RedisIndex:
    """An Index. Nothing is kept in this process: a write by another one is found by the next search."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._counts = IndexCounts()
        self._lock = threading.Lock()

    def search(
        self, partition: Partition, contract: str, vector: bytes, encoder: str, num_candidates: int
    ) -> list[Candidate]:
        query = to_vector(vector, len(vector) // 4)
        if query is None:
            self._count_bad()
            return []
        found = []
        for entry in nearest(self._store, partition, contract, vector, encoder, num_candidates):
            own = to_vector(entry.vector, len(query))
            if own is None:
                self._count_bad()
            else:
                found.append(Candidate(entry, cosine(query, own)))
        return sorted(found, key=lambda candidate: -candidate.similarity)[:num_candidates]

    def counts(self) -> IndexCounts:
        """Of this process; what the vector sets hold, Redis says (`VCARD`, `VINFO`)."""
        with self._lock:
            return self._counts

    def close(self) -> None:
        """The store's connections are the store's."""

    def _count_bad(self) -> None:
        with self._lock:
            self._counts = replace(self._counts, num_bad_vectors=self._counts.num_bad_vectors + 1)
