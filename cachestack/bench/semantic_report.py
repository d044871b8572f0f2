"""What `cachestack bench semantic` found, as values and as its JSON document; and its aims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from cachestack.bench.machine import Machine
from cachestack.bench.ratios import Ratio, percentile
from cachestack.bench.targets import Target

FORMAT = 1
EXACT_MEDIAN_MS = 0.1
EXACT_P99_MS = 0.5
DECISION_P95_MS = 5.0
EMBEDDING_RATIO = 1.15
RECALL = 0.99
FULL_GIB = 20.0


@dataclass(frozen=True, slots=True)
class Times:
    """Of many calls, in milliseconds."""

    median_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        p95, p99 = (1000 * percentile(seconds, share) for share in (0.95, 0.99))
        return cls(1000 * median(seconds), p95, p99)

    def to_json(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Exact:
    """An exact hit. `store`: the read by its key alone. `lookup`: from a request over its keys to the entry.
    `answer`: the whole call of the stack, with policy, trace, the noted use and statistics."""

    store: Times
    lookup: Times
    answer: Times
    num_wrong: int


@dataclass(frozen=True, slots=True)
class Filling:
    """`put_s`: all entries, one by one. `load_s`: the first search, which reads all. `build_s`: until the graph is
    there and saved. `restart_s`: the first search of a new index on the same files. `catch_up_ms`: a search after one
    write. `bulk_ms`: a search after `bulk` writes, for each of them."""

    put_s: float
    load_s: float
    build_s: float
    restart_s: float
    catch_up: Times
    bulk: int
    bulk_ms: float


@dataclass(frozen=True, slots=True)
class Memory:
    """For an entry, in memory: as the index counts it, and as the process grew (None where the system does not tell);
    on disk: the store, and the index's files. `peak_gib`: of the whole process, the benchmark's own vectors in it."""

    index_bytes: float
    grown_bytes: float | None
    store_bytes: float
    files_bytes: float
    peak_gib: float | None


@dataclass(frozen=True, slots=True)
class Decision:
    """After the embedding: search, entries read, guards and verifier. `search` is the part of the index with the
    entries it reads; `nearest` its search alone. `rare`: of a contract that has one entry in a hundred."""

    whole: Times
    search: Times
    rare: Times
    num_asked: int
    num_near: float
    recall: float
    num_wrong: int


@dataclass(frozen=True, slots=True)
class SemanticReport:
    num_entries: int
    kind: str
    exact: Exact
    filling: Filling
    memory: Memory
    decision: Decision
    embedding: Ratio
    embedding_ms: float
    machine: Machine
    num_real: int
    quick: bool
    full: bool
    elapsed_s: float

    @property
    def agrees(self) -> bool:
        return not self.exact.num_wrong and not self.decision.num_wrong

    def to_json(self) -> dict[str, Any]:
        exact, decision = self.exact, self.decision
        document: dict[str, Any] = {
            "format": FORMAT,
            "entries": self.num_entries,
            "index": self.kind,
            "exact": {name: getattr(exact, name).to_json() for name in ("store", "lookup", "answer")},
            "decision": {
                "after_embedding": decision.whole.to_json(),
                "search": decision.search.to_json(),
                "rare_contract_search": decision.rare.to_json(),
                "asked": decision.num_asked,
                "candidates_above_the_lower_bound": round(decision.num_near, 2),
            },
            "recall_at_8": round(decision.recall, 4),
            "embedding": {"ratio": self.embedding.to_json(), "median_ms": round(self.embedding_ms, 3)},
            "filling": {
                "put_s": round(self.filling.put_s, 2),
                "puts_per_s": round(self.num_entries / self.filling.put_s, 1),
                "load_s": round(self.filling.load_s, 2),
                "build_s": round(self.filling.build_s, 2),
                "restart_s": round(self.filling.restart_s, 3),
                "search_after_a_write": self.filling.catch_up.to_json(),
                "bulk": self.filling.bulk,
                "bulk_ms_a_write": round(self.filling.bulk_ms, 4),
            },
            "memory": {
                name: value if value is None else round(value, 1 if name.endswith("bytes") else 3)
                for name, value in asdict(self.memory).items()
            },
            "agreement": {"holds": self.agrees, "wrong": exact.num_wrong + decision.num_wrong},
            "material": {
                "real_embeddings": self.num_real,
                "rest": "the same questions with a reference number; its vector plus noise, cosine 0.82 to 0.98",
            },
            "machine": self.machine.to_json(),
            "quick": self.quick,
            "full": self.full,
            "elapsed_s": round(self.elapsed_s, 1),
        }
        document["targets"] = [] if self.quick else [target.to_json() for target in _targets(document)]
        return document


def _targets(document: dict[str, Any]) -> Iterator[Target]:
    answer, lookup = document["exact"]["answer"], document["exact"]["lookup"]
    size = f"{document['entries']:,} entries"
    yield Target("exact hit, look-up, median ms", lookup["median_ms"], "at most", EXACT_MEDIAN_MS)
    yield Target("exact hit, look-up, 99% ms", lookup["p99_ms"], "at most", EXACT_P99_MS)
    yield Target("exact hit, whole answer, median ms", answer["median_ms"], "at most", EXACT_MEDIAN_MS)
    yield Target("exact hit, whole answer, 99% ms", answer["p99_ms"], "at most", EXACT_P99_MS)
    p95 = document["decision"]["after_embedding"]["p95_ms"]
    yield Target(f"decision after embedding, {size}, 95% ms", p95, "at most", DECISION_P95_MS)
    ratio = document["embedding"]["ratio"]["median"]
    yield Target("embedding over bare forward", ratio, "at most", EMBEDDING_RATIO)
    yield Target(f"recall at 8 against flat, {size}", document["recall_at_8"], "at least", RECALL)
    if document["full"] and document["memory"]["peak_gib"] is not None:
        yield Target("memory at its peak, GiB", document["memory"]["peak_gib"], "at most", FULL_GIB)
