"""Vectors of one contract in a navigable graph (HNSW; Malkov and Yashunin, 2018): a search looks at a few hundred.

A graph only grows while it is built; then it is searched, and loses entries by marks (FAISS cannot remove them). What
a search finds is sifted: where too few living ones are among the nearest, it looks further, at last at all.

Memory for an entry: 2 bytes a dimension (float16: the ranking only has to bring the right ones before whoever reads
the entries' own vectors), 8 bytes a link, `LINKS` at least, and `ROW_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cachestack.semantic.vectors import Floats, Near

ROW_BYTES = 250
LINKS = 24
BUILD_WIDTH = 100
SEARCH_WIDTHS = (160, 640, 2560)
"""How many of the nearest are looked at, one after the other, until enough of them live."""


@dataclass(frozen=True, slots=True)
class FrozenGraph:
    """The ids by row, the rows of those that were removed, and what gives the bytes of FAISS's own format: of a large
    graph so many that no lock should be held meanwhile."""

    ids: list[str]
    dead: NDArray[np.int32]
    read: Callable[[], NDArray[np.uint8]]


class Graph:
    """Not thread-safe, but for `vectors` and `copy`, which read what never changes."""

    def __init__(self, dimension: int) -> None:
        import faiss

        self.dimension = dimension
        self._faiss: Any = faiss
        kind = self._faiss.ScalarQuantizer.QT_fp16
        self._index: Any = self._faiss.IndexHNSWSQ(dimension, kind, LINKS, self._faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = BUILD_WIDTH
        self._ids: list[str] = []  # by row
        self._row_of: dict[str, int] = {}  # living ones only

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._row_of

    @property
    def num_dead(self) -> int:
        return len(self._ids) - len(self._row_of)

    @property
    def num_bytes(self) -> int:
        return len(self._ids) * (2 * self.dimension + 8 * LINKS + ROW_BYTES)

    def add(self, ids: Sequence[str], vectors: Floats) -> None:
        """`vectors[i]`, a unit vector, belongs to `ids[i]`; one that is there is replaced. With this thread alone."""
        self._faiss.omp_set_num_threads(1)  # of this thread only; requests need the other cores
        if not self._index.is_trained:
            self._index.train(vectors)
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        for row, entry_id in enumerate(ids, start=len(self._ids)):
            self._row_of[entry_id] = row
        self._ids.extend(ids)

    def remove(self, entry_id: str) -> bool:
        """Whether it was there."""
        return self._row_of.pop(entry_id, None) is not None

    def nearest(self, query: Floats, num_nearest: int) -> list[Near]:
        """Best first; as many as are asked for, or as live."""
        wanted = min(num_nearest, len(self))
        if wanted < 1:
            return []
        for width in (*SEARCH_WIDTHS, len(self._ids)):
            if width < len(self._ids):
                chosen = self._faiss.SearchParametersHNSW(efSearch=width)
                scores, rows = self._index.search(query[None], width, params=chosen)
            else:  # all of them, one by one
                scores, rows = self._index.storage.search(query[None], len(self._ids))
            found = self._living(rows[0], scores[0], wanted)
            if len(found) == wanted:
                return found
        raise AssertionError("a search of all rows finds all that live")

    def rows(self) -> dict[str, int]:
        """Of what lives, its row."""
        return dict(self._row_of)

    def vectors(self, rows: NDArray[np.int64]) -> Floats:
        """Of these rows, `[rows, dimension]`, as exact as float16."""
        found: Floats = self._index.reconstruct_batch(rows)
        return found

    def copy(self, rows: Mapping[str, int]) -> Graph:
        """With links and vectors of its own, to be extended while this one is searched; what lived were `rows`."""
        made = Graph(self.dimension)
        made._ids, made._row_of = list(self._ids), dict(rows)
        made._index = self._faiss.clone_index(self._index)
        return made

    def freeze(self) -> FrozenGraph:
        living = np.zeros(len(self._ids), dtype=np.bool_)
        living[list(self._row_of.values())] = True
        dead = np.flatnonzero(~living).astype(np.int32)
        index, faiss = self._index, self._faiss
        return FrozenGraph(self._ids, dead, lambda: np.asarray(faiss.serialize_index(index)))

    @staticmethod
    def thaw(frozen: FrozenGraph, dimension: int) -> Graph:
        """Raises ValueError for bytes that are no such graph."""
        made = Graph(dimension)
        try:
            index = made._faiss.deserialize_index(frozen.read())
        except RuntimeError as error:
            raise ValueError(f"FAISS cannot read the graph: {error}") from error
        if not isinstance(index, made._faiss.IndexHNSWSQ) or (index.d, index.ntotal) != (dimension, len(frozen.ids)):
            raise ValueError("it is not a graph of these vectors")
        made._index, made._ids = index, list(frozen.ids)
        dead = set(frozen.dead.tolist())
        made._row_of = {entry_id: row for row, entry_id in enumerate(frozen.ids) if row not in dead}
        return made

    def _living(self, rows: NDArray[np.int64], scores: Floats, wanted: int) -> list[Near]:
        found: list[Near] = []
        for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
            if row >= 0 and self._row_of.get(entry_id := self._ids[row]) == row:
                found.append(Near(entry_id, score))
                if len(found) == wanted:
                    break
        return found
