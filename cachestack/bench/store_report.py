"""What `cachestack bench store` found, as values and as its JSON document; and its aims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cachestack.bench.machine import Machine
from cachestack.bench.ratios import Ratio
from cachestack.bench.semantic_report import Times
from cachestack.bench.targets import Target

FORMAT = 1
EXACT_OVER_GET = 1.5
SEMANTIC_P95_MS = 10.0
SEMANTIC_AT = "100000"


@dataclass(frozen=True, slots=True)
class Reads:
    """One kind of look-up. `per_s`: calls a second, by number of processes."""

    times: Times
    per_s: Mapping[int, float]
    trips: float
    num_wrong: int

    def to_json(self) -> dict[str, Any]:
        per_s = {str(number): round(value, 1) for number, value in self.per_s.items()}
        return self.times.to_json() | {"per_s": per_s, "round_trips": round(self.trips, 2)}


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """One store at one size. `over_get`: the exact look-up over a bare GET of the same bytes, taken by turns."""

    put: Times
    puts_per_s: float
    exact: Reads
    semantic: Reads
    over_get: Ratio | None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "put": self.put.to_json() | {"per_s": round(self.puts_per_s, 1)},
            "exact": self.exact.to_json(),
            "semantic": self.semantic.to_json(),
        }
        if self.over_get is not None:
            document["exact_over_get"] = self.over_get.to_json()
        return document


@dataclass(frozen=True, slots=True)
class StoreReport:
    stores: Mapping[str, Mapping[int, StoreFigures]]
    redis: str | None
    machine: Machine
    quick: bool
    full: bool
    elapsed_s: float

    @property
    def num_wrong(self) -> int:
        return sum(of.exact.num_wrong for sizes in self.stores.values() for of in sizes.values())

    @property
    def num_missed(self) -> int:
        """Look-ups by meaning that did not find the very entry: a graph searches a part only, and may miss it."""
        return sum(of.semantic.num_wrong for sizes in self.stores.values() for of in sizes.values())

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "format": FORMAT,
            "stores": {
                name: {str(size): figures.to_json() for size, figures in sizes.items()}
                for name, sizes in self.stores.items()
            },
            "redis": self.redis,
            "agreement": {"holds": self.num_wrong == 0, "wrong": self.num_wrong, "missed": self.num_missed},
            "machine": self.machine.to_json(),
            "quick": self.quick,
            "full": self.full,
            "elapsed_s": round(self.elapsed_s, 1),
        }
        document["targets"] = [] if self.quick else [target.to_json() for target in _targets(document)]
        return document


def _targets(document: Mapping[str, Any]) -> Iterator[Target]:
    for size, figures in document["stores"].get("redis", {}).items():
        name = f"{int(size):,} entries"
        yield Target(
            f"exact hit through Redis over a bare GET, {name}",
            figures["exact_over_get"]["median"],
            "at most",
            EXACT_OVER_GET,
        )
        yield Target(f"round trips of an exact look-up, {name}", figures["exact"]["round_trips"], "at most", 1)
        yield Target(f"round trips of a look-up by meaning, {name}", figures["semantic"]["round_trips"], "at most", 2)
    for store, sizes in document["stores"].items():
        if SEMANTIC_AT in sizes:
            p95_ms = sizes[SEMANTIC_AT]["semantic"]["p95_ms"]
            yield Target(f"search of 100,000 entries, {store}, 95% ms", p95_ms, "at most", SEMANTIC_P95_MS)
