"""How much `cachestack bench semantic` measures."""

from __future__ import annotations

from dataclasses import dataclass

from cachestack.semantic.vectors_group import GRAPH_FROM


@dataclass(frozen=True, slots=True)
class Settings:
    """`num_kept` of the entries have real embeddings, as have the `num_asked` questions."""

    num_entries: int = 100_000
    num_kept: int = 2000
    num_asked: int = 300
    num_exact: int = 2000
    num_pairs: int = 60
    num_bulk: int = 2000
    graph_from: int = GRAPH_FROM
    quick: bool = False
    full: bool = False


FULL = Settings(num_entries=1_000_000, full=True)
QUICK = Settings(600, 60, 12, 40, 4, 40, graph_from=300, quick=True)
