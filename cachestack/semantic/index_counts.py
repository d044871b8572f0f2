"""What an index holds and what happened in it, as figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["empty", "flat", "graph", "flat and graph"]


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """What it holds in memory now, and what happened since it was made.

    `num_in_graphs` of the `num_vectors` lie in `num_graphs` graphs. `num_tombstones`: removed vectors that still take
    room. `num_bytes`: what all of them take, about. `num_loads`: groups read from the store. `num_builds`: graphs
    built, extended or built anew.
    """

    num_groups: int = 0
    num_vectors: int = 0
    num_in_graphs: int = 0
    num_graphs: int = 0
    num_tombstones: int = 0
    num_bytes: int = 0
    num_bad_vectors: int = 0
    num_loads: int = 0
    num_builds: int = 0
    num_snapshots_used: int = 0
    num_snapshots_rejected: int = 0
    num_snapshots_failed: int = 0
    num_journal_steps: int = 0
    num_torn_journals: int = 0
    num_reembedded: int = 0
    num_background_failures: int = 0

    @property
    def kind(self) -> Kind:
        return kind_of(self.num_vectors, self.num_in_graphs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": self.kind, **asdict(self)}


def kind_of(num_vectors: int, num_in_graphs: int) -> Kind:
    if not num_vectors:
        return "empty"
    if not num_in_graphs:
        return "flat"
    return "graph" if num_in_graphs == num_vectors else "flat and graph"
