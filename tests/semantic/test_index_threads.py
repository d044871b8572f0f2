"""Writing while others read: eight threads at once, while graphs are built and snapshots written; one write at a bad
moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cachestack.entries import Selector
from cachestack.semantic.index import FaissIndex
from cachestack.stores.disk import DiskStore
from cachestack.stores.memory import MemoryStore
from tests.semantic.index_support import clustered, entry_of, found

NUM_THREADS, NUM_EACH = 8, 30
VECTORS = clustered(NUM_THREADS * NUM_EACH)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_each_sees_its_own_writes_and_removals_and_all_agree_at_the_end(kind, tmp_path: Path):
    """Fails without the group's lock, and where a build loses what happened since it began."""
    store = MemoryStore() if kind == "memory" else DiskStore(tmp_path / "entries", timeout_s=120)
    index = FaissIndex(
        store, snapshot_folder=tmp_path / "i", graph_from=40, max_tail=15, snapshot_from=20, journal_bytes=4000
    )
    barrier = threading.Barrier(NUM_THREADS)

    def work(thread: int) -> None:
        barrier.wait()
        for step in range(NUM_EACH):
            number = thread * NUM_EACH + step
            store.put(entry_of(number, VECTORS[number]))
            assert found(index, VECTORS[number], 1) == [f"entry-{number}"]
            if step % 3 == 2:
                store.invalidate(Selector(tenant="acme", entry_id=f"entry-{number - 1}"))
                assert f"entry-{number - 1}" not in found(index, VECTORS[number - 1], 8)

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        for done in [pool.submit(work, thread) for thread in range(NUM_THREADS)]:
            done.result()
    expected = {f"entry-{n}" for n in range(len(VECTORS)) if n % NUM_EACH % 3 != 1}
    assert set(found(index, VECTORS[0], 1000)) == expected
    assert index.settle(120)
    assert set(found(index, VECTORS[0], 1000)) == expected
    counts = index.counts()
    assert (counts.num_vectors, counts.num_background_failures, counts.num_snapshots_failed) == (len(expected), 0, 0)
    assert counts.num_builds > 1
    index.close()
    again = FaissIndex(store, snapshot_folder=tmp_path / "i", snapshot_from=20)
    assert set(found(again, VECTORS[0], 1000)) == expected
    assert again.counts().num_snapshots_used == 1
    again.close()
    store.close()


def test_what_is_written_while_a_group_is_read_is_taken_in():
    """Trap 11. Fails where the number up to which the store was read is taken after reading."""

    class Late(MemoryStore):
        """Once read, it is written to before the reader has its number."""

        is_late = True

        def entries(self, partition):
            found = list(super().entries(partition))
            if self.is_late:
                self.is_late = False
                self.put(entry_of(1, VECTORS[1]))
            return iter(found)

    store = Late()
    store.put(entry_of(0, VECTORS[0]))
    index = FaissIndex(store)
    assert set(found(index, VECTORS[0])) | set(found(index, VECTORS[0])) == {"entry-0", "entry-1"}
    index.close()
