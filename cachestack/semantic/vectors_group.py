"""Unit vectors of one partition and one encoder: flat, and a graph for each contract that has grown large.

::

    contract A (many)   graph ── marks of removed entries      + a flat tail: what was written since it was built
    contract B, C, …    flat

What is written goes to the flat part, so that a search finds it at once. A build takes a contract's vectors, makes a
graph of them beside the old one, and puts it in its place; what happened meanwhile is brought in then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

import numpy as np
from numpy.typing import NDArray

from cachestack.semantic.vectors import Floats
from cachestack.semantic.vectors_flat import FlatVectors, Taken
from cachestack.semantic.vectors_graph import FrozenGraph, Graph

GRAPH_FROM = 10_000
"""Vectors of a contract from which on it gets a graph. Below, a flat search takes two or three milliseconds at most; a
graph takes a tenth of that."""
MAX_TAIL = 4096
MAX_DEAD_SHARE = 0.25
_STEP = 512


@dataclass(frozen=True, slots=True)
class Frozen:
    """A group as plain arrays: `vectors[i]` belongs to `ids[i]` and `contracts[codes[i]]`; and the graphs beside."""

    ids: list[str]
    contracts: list[str]
    codes: NDArray[np.int32]
    vectors: Floats
    graphs: Mapping[str, FrozenGraph] = field(default_factory=dict)
    num_builds: int = 0


@dataclass(frozen=True, slots=True)
class Building:
    """What a graph is to be made of: the flat vectors of a contract, and the graph that it has, if any."""

    contract: str
    taken: Taken
    old: Graph | None
    old_rows: Mapping[str, int]
    extends: bool
    """Whether a copy of the old one is to be extended, or all is built anew."""


class VectorGroup:
    """Not thread-safe: whoever holds a group holds a lock. `build` alone works without it. `num_builds`: graphs built,
    extended or built anew, before a snapshot too."""

    def __init__(self, dimension: int, *, graph_from: int = GRAPH_FROM, max_tail: int = MAX_TAIL) -> None:
        self.dimension = dimension
        self._graph_from = graph_from
        self._max_tail = max_tail
        self._flat = FlatVectors(dimension, min(graph_from, max_tail))
        self._graphs: dict[str, Graph] = {}
        self.num_builds = 0

    def __len__(self) -> int:
        return len(self._flat) + sum(map(len, self._graphs.values()))

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._flat or any(entry_id in graph for graph in self._graphs.values())

    @property
    def num_bytes(self) -> int:
        return self._flat.num_bytes + sum(graph.num_bytes for graph in self._graphs.values())

    @property
    def num_graphs(self) -> int:
        return len(self._graphs)

    @property
    def num_in_graphs(self) -> int:
        return sum(map(len, self._graphs.values()))

    @property
    def num_dead(self) -> int:
        """Rows of removed vectors that still take room."""
        return self._flat.num_dead + sum(graph.num_dead for graph in self._graphs.values())

    def put(self, ids: Sequence[str], contracts: Sequence[str], vectors: Floats) -> None:
        """Add or replace: `vectors[i]`, a unit vector, belongs to `ids[i]` and `contracts[i]`. No id twice."""
        assert vectors.shape == (len(ids), self.dimension), "one vector of the group's dimension for each id"
        for entry_id in ids:
            self._bury(entry_id)
        self._flat.add(ids, contracts, vectors)
        self._flat.compact_if_worth_it()

    def remove(self, entry_id: str) -> None:
        """Nothing happens where it is not there."""
        self._bury(entry_id)
        self._flat.compact_if_worth_it()

    def nearest(self, contract: str, query: Floats, num_nearest: int) -> list[str]:
        """Ids of the contract's vectors by inner product with `query`, `[dimension]`; best first, at most so many."""
        found = self._flat.nearest(contract, query, num_nearest)
        graph = self._graphs.get(contract)
        if graph is not None:
            found = nlargest(num_nearest, [*found, *graph.nearest(query, num_nearest)], key=lambda near: near.score)
        return [near.entry_id for near in found]

    def freeze(self) -> Frozen:
        """A copy of what lives."""
        taken, of_each = self._flat.take_all()
        codes: dict[str, int] = {}
        rows = np.array([codes.setdefault(contract, len(codes)) for contract in of_each], dtype=np.int32)
        graphs = {contract: graph.freeze() for contract, graph in self._graphs.items()}
        return Frozen(taken.ids, list(codes), rows, taken.vectors, graphs, self.num_builds)

    @staticmethod
    def thaw(frozen: Frozen, *, graph_from: int = GRAPH_FROM, max_tail: int = MAX_TAIL) -> VectorGroup:
        """Raises ValueError for graphs that are none."""
        dimension = frozen.vectors.shape[1]
        group = VectorGroup(dimension, graph_from=graph_from, max_tail=max_tail)
        group._graphs = {contract: Graph.thaw(graph, dimension) for contract, graph in frozen.graphs.items()}
        group.num_builds = frozen.num_builds
        group.put(frozen.ids, [frozen.contracts[code] for code in frozen.codes], frozen.vectors)
        return group

    # graphs

    def due(self) -> str | None:
        """A contract whose graph should be built, built anew or extended."""
        for contract, graph in self._graphs.items():
            if graph.num_dead > MAX_DEAD_SHARE * (len(graph) + graph.num_dead):
                return contract
        return self._flat.largest(lambda contract: self._max_tail if contract in self._graphs else self._graph_from)

    def begin(self, contract: str) -> Building:
        """Rows keep their numbers from now on, until `end`."""
        self._flat.is_held = True
        taken, old = self._flat.take(contract), self._graphs.get(contract)
        if old is None:
            return Building(contract, taken, None, {}, extends=False)
        is_worn = old.num_dead > MAX_DEAD_SHARE / 2 * (len(old) + old.num_dead)
        return Building(contract, taken, old, old.rows(), extends=not is_worn)

    def end(self, building: Building, made: Graph | None) -> None:
        """Put the graph in its place; None where it was not finished."""
        self._flat.is_held = False
        if made is not None:
            self.num_builds += 1
            for entry_id in building.old_rows:
                if building.old is None or entry_id not in building.old:
                    made.remove(entry_id)
            for entry_id, row in zip(building.taken.ids, building.taken.rows, strict=True):
                if self._flat.row_of(entry_id) == row:
                    self._flat.remove(entry_id)
                else:
                    made.remove(entry_id)
            self._graphs.pop(building.contract, None)
            if len(made):
                self._graphs[building.contract] = made
        self._flat.compact_if_worth_it()

    def _bury(self, entry_id: str) -> None:
        if not self._flat.remove(entry_id):
            any(graph.remove(entry_id) for graph in self._graphs.values())


def build(building: Building, should_stop: Callable[[], bool]) -> Graph | None:
    """The graph; None where it was stopped. Takes about half a millisecond a vector, and needs no lock."""
    taken, old = building.taken, building.old
    made = Graph(taken.vectors.shape[1])
    if old is not None and building.extends:
        made = old.copy(building.old_rows)
    elif old is not None:
        ids, rows = list(building.old_rows), np.array(list(building.old_rows.values()), dtype=np.int64)
        for start in range(0, len(ids), _STEP):
            if should_stop():
                return None
            made.add(ids[start : start + _STEP], old.vectors(rows[start : start + _STEP]))
    for start in range(0, len(taken.ids), _STEP):
        if should_stop():
            return None
        made.add(taken.ids[start : start + _STEP], taken.vectors[start : start + _STEP])
    return made
