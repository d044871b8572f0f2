"""Unit vectors of one partition and one encoder. The only file that knows FAISS.

A vector keeps its row in a flat inner-product index until the group is compacted; a removed one only loses its
contract. A search names the rows it may look at (`IDSelectorArray`), those of one contract: exact, no recall lost.

Memory for an entry: 4 bytes a dimension (twice that at worst while the array grows), and about 250 bytes for its id,
its row number and its contract. With 384 dimensions that is 1.8 kB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NORM_TOLERANCE = 1e-3
_DEAD = -1
_MIN_DEAD = 256

Floats = NDArray[np.float32]


def cosine(one: Floats, other: Floats) -> float:
    """Of two unit vectors: their inner product, at most 1. The only line that says what similarity is."""
    return max(-1.0, min(1.0, float(np.dot(one.astype(np.float64), other.astype(np.float64)))))


def to_vector(data: bytes | None, dimension: int) -> Floats | None:
    """The vector that the bytes hold, `[dimension]`; None unless it has this length, is finite and a unit vector."""
    if data is None or len(data) != 4 * dimension:
        return None
    vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
    return vector if bool(are_unit(vector[None])[0]) else None


def to_bytes(vector: Floats) -> bytes:
    """Little-endian float32, as entries keep it."""
    return vector.astype("<f4", copy=False).tobytes()


def are_unit(vectors: Floats) -> NDArray[np.bool_]:
    """For each row whether it is finite and of length 1."""
    with np.errstate(all="ignore"):  # a row that is not finite is the question, not an accident
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        unit: NDArray[np.bool_] = np.abs(np.sqrt(squares) - 1.0) <= NORM_TOLERANCE
    return unit


@dataclass(frozen=True, slots=True)
class Frozen:
    """A group as plain arrays: `vectors[i]` belongs to `ids[i]` and `contracts[codes[i]]`."""

    ids: list[str]
    contracts: list[str]
    codes: NDArray[np.int32]
    vectors: Floats


class VectorGroup:
    """Not thread-safe: whoever holds a group holds a lock."""

    def __init__(self, dimension: int) -> None:
        import faiss

        self.dimension = dimension
        self._faiss: Any = faiss
        self._index = self._faiss.IndexFlatIP(dimension)
        self._ids: list[str] = []  # by row
        self._rows: dict[str, int] = {}  # by id, living ones only
        self._codes = np.empty(0, dtype=np.int32)  # by row: its contract's number, or _DEAD; has spare room
        self._contracts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._rows

    @property
    def num_bytes(self) -> int:
        return len(self._ids) * (4 * self.dimension + 250)

    def put(self, ids: Sequence[str], contracts: Sequence[str], vectors: Floats) -> None:
        """Add or replace: `vectors[i]`, a unit vector, belongs to `ids[i]` and `contracts[i]`. No id twice."""
        assert vectors.shape == (len(ids), self.dimension), "one vector of the group's dimension for each id"
        for entry_id in ids:
            self._bury(entry_id)
        first = len(self._ids)
        self._make_room(first + len(ids))
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        self._ids.extend(ids)
        for row, (entry_id, contract) in enumerate(zip(ids, contracts, strict=True), start=first):
            self._rows[entry_id] = row
            self._codes[row] = self._contracts.setdefault(contract, len(self._contracts))
        self._compact_if_worth_it()

    def remove(self, entry_id: str) -> None:
        """Nothing happens where it is not there."""
        self._bury(entry_id)
        self._compact_if_worth_it()

    def nearest(self, contract: str, query: Floats, num_nearest: int) -> list[str]:
        """Ids of the contract's vectors by inner product with `query`, `[dimension]`; best first, at most so many."""
        code = self._contracts.get(contract)
        if code is None or num_nearest < 1:
            return []
        allowed = np.flatnonzero(self._codes[: len(self._ids)] == code)
        if not len(allowed):
            return []
        chosen = self._faiss.SearchParameters(sel=self._faiss.IDSelectorArray(allowed))
        _, rows = self._index.search(query[None], min(num_nearest, len(allowed)), params=chosen)
        return [self._ids[row] for row in rows[0] if row >= 0]

    def freeze(self) -> Frozen:
        """A copy of what lives."""
        rows = np.flatnonzero(self._codes[: len(self._ids)] != _DEAD)
        used, codes = np.unique(self._codes[rows], return_inverse=True)
        names = list(self._contracts)
        return Frozen(
            ids=[self._ids[row] for row in rows],
            contracts=[names[code] for code in used],
            codes=codes.astype(np.int32),
            vectors=self._vectors()[rows],
        )

    @staticmethod
    def thaw(frozen: Frozen) -> VectorGroup:
        group = VectorGroup(frozen.vectors.shape[1])
        group.put(frozen.ids, [frozen.contracts[code] for code in frozen.codes], frozen.vectors)
        return group

    def _vectors(self) -> Floats:
        """All rows, `[rows, dimension]`: a view, valid until the next change."""
        num_rows = len(self._ids)
        if not num_rows:
            return np.empty((0, self.dimension), dtype=np.float32)
        flat: Floats = self._faiss.rev_swig_ptr(self._index.get_xb(), num_rows * self.dimension)
        return flat.reshape(num_rows, self.dimension)

    def _bury(self, entry_id: str) -> None:
        row = self._rows.pop(entry_id, None)
        if row is not None:
            self._codes[row] = _DEAD

    def _make_room(self, num_rows: int) -> None:
        if num_rows > len(self._codes):
            longer = np.full(max(num_rows, 2 * len(self._codes), 64), _DEAD, dtype=np.int32)
            longer[: len(self._ids)] = self._codes[: len(self._ids)]
            self._codes = longer

    def _compact_if_worth_it(self) -> None:
        num_dead = len(self._ids) - len(self._rows)
        if num_dead > max(_MIN_DEAD, len(self._rows) // 3):
            fresh = VectorGroup.thaw(self.freeze())
            self.__dict__.update(fresh.__dict__)
