"""A store of its own with all entries of the benchmark in it, and an index over it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

from cachestack.bench.process_memory import peak_bytes, resident_bytes
from cachestack.bench.semantic_material import Population, Question
from cachestack.bench.semantic_report import Filling, Memory, Times
from cachestack.bench.semantic_settings import Settings
from cachestack.entries import Candidate
from cachestack.keys import Contract
from cachestack.models.manifest import Report
from cachestack.semantic.index import SNAPSHOT_FROM, FaissIndex
from cachestack.stores.disk import DiskStore

NUM_NEAREST = 8
GIB = 2**30


class Filled:
    """`population` is in the store once `fill` has returned."""

    def __init__(
        self, population: Population, settings: Settings, folder: Path, report: Report, timer: Callable[[], float]
    ) -> None:
        self.population = population
        self._settings = settings
        self._folder = folder
        self._report = report
        self._timer = timer
        self.store = DiskStore(folder / "entries")
        self.index = self._new_index()

    def close(self) -> None:
        self.index.close()
        self.store.close()

    def fill(self) -> tuple[Filling, Memory]:
        total, put_s = self.population.num_entries, 0.0
        for number in range(total):
            entry = self.population.entry(number)
            began = self._timer()
            self.store.put(entry)
            put_s += self._timer() - began
            if number % 1000 == 0:
                self._report("writing entries", number, total)
        self._report("writing entries", total, total)
        self._report("loading", 0, 1)
        gc.collect()
        before = resident_bytes()
        load_s = self._timed(self._first_search)
        self._report("loading", 1, 1)
        self._report("building the graph", 0, 1)
        build_s = self._timed(self.index.settle)
        self._report("building the graph", 1, 1)
        gc.collect()
        after = resident_bytes()
        counts = self.index.counts()
        catch_up, bulk_ms = self._writes()
        self.index.settle()
        self.index.close()
        self.index = self._new_index()
        restart_s = self._timed(self._first_search)
        self.index.settle()
        filling = Filling(put_s, load_s, build_s, restart_s, catch_up, self._settings.num_bulk, bulk_ms)
        size = self.store.size()
        peak = peak_bytes()
        memory = Memory(
            index_bytes=counts.num_bytes / counts.num_vectors,
            grown_bytes=None if before is None or after is None else (after - before) / counts.num_vectors,
            store_bytes=size.num_bytes / size.num_entries,
            files_bytes=_size_of(self._folder / "indexes") / counts.num_vectors,
            peak_gib=None if peak is None else peak / GIB,
        )
        return filling, memory

    def search(self, contract: Contract, question: Question) -> list[Candidate]:
        partition = self.population.partition
        return self.index.search(partition, contract.digest, question.vector, question.encoder, NUM_NEAREST)

    def _first_search(self) -> None:
        self.search(self.population.common, self.population.kept[0])

    def _writes(self) -> tuple[Times, float]:
        """Entries that are there already are put again: one and a search each time; then many before a search."""
        single: list[float] = []
        for number in range(min(200, self._settings.num_bulk)):
            self.store.put(self.population.entry(number))
            single.append(self._timed(self._first_search))
        for number in range(self._settings.num_bulk):
            self.store.put(self.population.entry(number))
        return Times.of(single), 1000 * self._timed(self._first_search) / self._settings.num_bulk

    def _new_index(self) -> FaissIndex:
        return FaissIndex(
            self.store,
            snapshot_folder=self._folder / "indexes",
            snapshot_from=min(SNAPSHOT_FROM, self._settings.num_entries // 2),
            graph_from=self._settings.graph_from,
            max_bytes=2**40,
        )

    def _timed(self, action: Callable[[], object]) -> float:
        began = self._timer()
        action()
        return self._timer() - began


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*")) if folder.is_dir() else 0
