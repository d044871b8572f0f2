"""From a store to the index over it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from cachestack.entries import Candidate
from cachestack.keys import Partition
from cachestack.semantic.base import Index
from cachestack.semantic.index_counts import IndexCounts
from cachestack.semantic.redis_index import RedisIndex
from cachestack.semantic.snapshots import INDEX_FOLDER
from cachestack.stores.disk import DiskStore
from cachestack.stores.tiered import TieredStore

log = logging.getLogger("cachestack")


def open_index(store: DiskStore | TieredStore, home: Path) -> Index:
    """For entries on disk FAISS, with its snapshots in `home`. For entries in Redis what the server can do."""
    if isinstance(store, TieredStore):
        return IndexByServer(store)
    from cachestack.semantic.index import FaissIndex

    return FaissIndex(store, snapshot_folder=home / INDEX_FOLDER)


class IndexByServer:
    """The server's vector sets, or, where it has none, FAISS over the store's entries, in this process's memory.

    Which one is found out at the first search: a server that is down then is asked again by the next.
    """

    def __init__(self, store: TieredStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._chosen: Index | None = None

    def search(
        self, partition: Partition, contract: str, vector: bytes, encoder: str, num_candidates: int
    ) -> list[Candidate]:
        """Raises StoreError."""
        index = self._chosen or self._choose()
        return index.search(partition, contract, vector, encoder, num_candidates)

    def counts(self) -> IndexCounts:
        counts = getattr(self._chosen, "counts", None)
        return IndexCounts() if counts is None else counts()

    def close(self) -> None:
        close = getattr(self._chosen, "close", None)
        if close is not None:
            close()

    def _choose(self) -> Index:
        has_vector_sets = self._store.shared.link.has_vector_sets()
        with self._lock:
            if self._chosen is None:
                if has_vector_sets:
                    self._chosen = RedisIndex(self._store.shared)
                else:
                    from cachestack.semantic.index import FaissIndex

                    log.warning(
                        "this Redis server has no vector sets (Redis 8 has them; the user needs +@vectorset): entries "
                        "are compared in this process, which reads all of a partition when it is first searched"
                    )
                    self._chosen = FaissIndex(self._store)
            return self._chosen
