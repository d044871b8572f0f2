"""Vectors as they are, of any number of contracts, searched one by one: exact, and as slow as a contract is large.

A vector keeps its row until the pool is compacted; a removed one is only marked. A search names the rows it may look
at, those of one contract (`IDSelectorArray`): a rare contract costs its own rows and no others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cachestack.semantic.vectors import Floats, Near

ROW_BYTES = 250
"""Of an id, its place in two tables and its row number, about; a contract takes 350 bytes more."""
_MIN_DEAD = 256


@dataclass(slots=True)
class _Rows:
    """A contract's rows in order, removed ones among them, and how many live."""

    rows: array[int] = field(default_factory=lambda: array("i"))
    num_living: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A contract's vectors at one moment: `vectors[i]` belongs to `ids[i]`, which lies in `rows[i]`."""

    ids: list[str]
    rows: list[int]
    vectors: Floats


class FlatVectors:
    """Not thread-safe. Contracts of at least `watch_from` vectors are the ones that `largest` looks at."""

    def __init__(self, dimension: int, watch_from: int) -> None:
        import faiss

        self.dimension = dimension
        self._watch_from = watch_from
        self._watched: set[str] = set()
        self.is_held = False  # rows keep their numbers while this is set
        self._faiss: Any = faiss
        self._index = faiss.IndexFlatIP(dimension)
        self._ids: list[str] = []  # by row
        self._contracts: list[str] = []  # by row
        self._living = np.zeros(0, dtype=np.bool_)  # by row; has spare room
        self._row_of: dict[str, int] = {}  # living ones only
        self._rows_of: dict[str, _Rows] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._row_of

    @property
    def num_dead(self) -> int:
        return len(self._ids) - len(self._row_of)

    @property
    def num_bytes(self) -> int:
        return len(self._ids) * (4 * self.dimension + ROW_BYTES)

    def row_of(self, entry_id: str) -> int | None:
        return self._row_of.get(entry_id)

    def num_of(self, contract: str) -> int:
        found = self._rows_of.get(contract)
        return 0 if found is None else found.num_living

    def add(self, ids: Sequence[str], contracts: Sequence[str], vectors: Floats) -> None:
        """`vectors[i]` belongs to `ids[i]` and `contracts[i]`. No id that is there, and none twice."""
        first = len(self._ids)
        self._make_room(first + len(ids))
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        self._ids.extend(ids)
        self._living[first : first + len(ids)] = True
        for row, (entry_id, contract) in enumerate(zip(ids, contracts, strict=True), start=first):
            rows = self._rows_of.get(contract)
            if rows is None:
                rows = self._rows_of[contract] = _Rows()
            rows.rows.append(row)
            rows.num_living += 1
            if rows.num_living == self._watch_from:
                self._watched.add(contract)
            self._contracts.append(contract)
            self._row_of[entry_id] = row

    def remove(self, entry_id: str) -> bool:
        """Whether it was there."""
        row = self._row_of.pop(entry_id, None)
        if row is None:
            return False
        self._living[row] = False
        contract = self._contracts[row]
        rows = self._rows_of[contract]
        rows.num_living -= 1
        if not rows.num_living:
            del self._rows_of[contract]
            self._watched.discard(contract)
        return True

    def nearest(self, contract: str, query: Floats, num_nearest: int) -> list[Near]:
        """Best first, at most so many."""
        allowed = self._living_rows(contract)
        if not len(allowed) or num_nearest < 1:
            return []
        chosen = self._faiss.SearchParameters(sel=self._faiss.IDSelectorArray(allowed))
        scores, rows = self._index.search(query[None], min(num_nearest, len(allowed)), params=chosen)
        return [Near(self._ids[row], float(score)) for row, score in zip(rows[0], scores[0], strict=True) if row >= 0]

    def largest(self, bound: Callable[[str], int]) -> str | None:
        """The contract with the most vectors among those that have as many as `bound` says of them."""
        over = [contract for contract in self._watched if self.num_of(contract) >= bound(contract)]
        return max(over, key=self.num_of, default=None)

    def take(self, contract: str) -> Taken:
        """A copy of a contract's vectors."""
        rows = self._living_rows(contract)
        return Taken([self._ids[row] for row in rows], rows.tolist(), self._vectors()[rows])

    def take_all(self) -> tuple[Taken, list[str]]:
        """A copy of all that lives, and the contract of each."""
        rows = np.flatnonzero(self._living[: len(self._ids)])
        taken = Taken([self._ids[row] for row in rows], rows.tolist(), self._vectors()[rows])
        return taken, [self._contracts[row] for row in rows]

    def compact_if_worth_it(self) -> None:
        if not self.is_held and self.num_dead > max(_MIN_DEAD, len(self) // 3):
            taken, contracts = self.take_all()
            fresh = FlatVectors(self.dimension, self._watch_from)
            fresh.add(taken.ids, contracts, taken.vectors)
            self.__dict__.update(fresh.__dict__)

    def _living_rows(self, contract: str) -> NDArray[np.int64]:
        found = self._rows_of.get(contract)
        if found is None:
            return np.empty(0, dtype=np.int64)
        rows = np.frombuffer(found.rows, dtype=np.int32)
        if found.num_living < len(rows):
            rows = rows[self._living[rows]]
        return rows.astype(np.int64)

    def _vectors(self) -> Floats:
        """All rows, `[rows, dimension]`: a view, valid until the next change."""
        num_rows = len(self._ids)
        if not num_rows:
            return np.empty((0, self.dimension), dtype=np.float32)
        flat: Floats = self._faiss.rev_swig_ptr(self._index.get_xb(), num_rows * self.dimension)
        return flat.reshape(num_rows, self.dimension)

    def _make_room(self, num_rows: int) -> None:
        if num_rows > len(self._living):
            longer = np.zeros(max(num_rows, 2 * len(self._living), 64), dtype=np.bool_)
            longer[: len(self._ids)] = self._living[: len(self._ids)]
            self._living = longer
