"""What `cachestack bench gateway` found, as values and as its JSON document; and its aims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from cachestack.bench.gateway_client import Load
from cachestack.bench.machine import Machine
from cachestack.bench.ratios import INTERVAL, coverage, paired_ratio, percentile
from cachestack.bench.targets import Target

FORMAT = 1
RATIO = 0.60
MISS_MS = 2.0
RSS_BYTES = 8 * 1024 * 1024
"""More than this after the first requests is growth; less is what allocators and a database's page cache do."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """At so many connections: the gateway and the bare route, each round both."""

    gateway: Sequence[Load]
    bare: Sequence[Load]

    @property
    def num_wrong(self) -> int:
        return sum(load.num_wrong for load in (*self.gateway, *self.bare))

    def to_json(self) -> dict[str, Any]:
        times = [seconds for load in self.gateway for seconds in load.latencies_s]
        of_bare = [seconds for load in self.bare for seconds in load.latencies_s]
        ratio = paired_ratio([load.per_second for load in self.gateway], [load.per_second for load in self.bare])
        return {
            "req_s": round(median(load.per_second for load in self.gateway), 1),
            "p50_ms": round(1000 * median(times), 3),
            "p99_ms": round(1000 * percentile(times, 0.99), 3),
            "bare_req_s": round(median(load.per_second for load in self.bare), 1),
            "bare_p50_ms": round(1000 * median(of_bare), 3),
            "bare_p99_ms": round(1000 * percentile(of_bare, 0.99), 3),
            "ratio": round(ratio.median, 4),
            "ratio_low": round(ratio.low, 4),
            "ratio_high": round(ratio.high, 4),
            "client_share": round(max(load.client_share for load in (*self.gateway, *self.bare)), 3),
        }


@dataclass(frozen=True, slots=True)
class Misses:
    """The same questions, put to the upstream and through the gateway by turns, one at a time."""

    direct_s: Sequence[float]
    through_s: Sequence[float]
    num_wrong: int

    @property
    def overhead_ms(self) -> float:
        return 1000 * (median(self.through_s) - median(self.direct_s))

    def to_json(self) -> dict[str, Any]:
        return {
            "direct_p50_ms": round(1000 * median(self.direct_s), 3),
            "gateway_p50_ms": round(1000 * median(self.through_s), 3),
            "gateway_p99_ms": round(1000 * percentile(self.through_s, 0.99), 3),
            "asked": len(self.through_s),
        }


@dataclass(frozen=True, slots=True)
class Streams:
    """All at once, half of them hits. An error is a stream that is not whole, or not the right answer."""

    num: int
    num_errors: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {"n": self.num, "errors": self.num_errors, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True)
class Growth:
    """Of the gateway's memory over so many exact hits; None where the system does not tell."""

    num_bytes: int | None
    num_requests: int
    num_wrong: int


@dataclass(frozen=True, slots=True)
class GatewayReport:
    exact: Mapping[int, Pairs]
    misses: Misses
    streams: Streams
    growth: Growth
    answer_bytes: int
    rounds: int
    machine: Machine
    quick: bool
    elapsed_s: float

    @property
    def num_wrong(self) -> int:
        return sum(pairs.num_wrong for pairs in self.exact.values()) + self.misses.num_wrong + self.growth.num_wrong

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "format": FORMAT,
            "exact": {str(number): pairs.to_json() for number, pairs in self.exact.items()},
            "miss_overhead_ms": round(self.misses.overhead_ms, 3),
            "misses": self.misses.to_json(),
            "streams": self.streams.to_json(),
            "rss_growth_bytes": self.growth.num_bytes,
            "rss_requests": self.growth.num_requests,
            "agreement": {"holds": not (self.num_wrong or self.streams.num_errors), "wrong": self.num_wrong},
            "answer_bytes": self.answer_bytes,
            "rounds": self.rounds,
            "interval": {"kind": INTERVAL, "coverage": round(coverage(self.rounds), 4)},
            "machine": self.machine.to_json(),
            "quick": self.quick,
            "elapsed_s": round(self.elapsed_s, 1),
        }
        document["targets"] = [] if self.quick else [target.to_json() for target in targets_of(document)]
        return document


def targets_of(document: Mapping[str, Any]) -> Iterator[Target]:
    for number, figures in document["exact"].items():
        yield Target(f"exact hits over the bare route, {number} connections", figures["ratio"], "at least", RATIO)
    yield Target("a miss over the upstream alone, median ms", document["miss_overhead_ms"], "at most", MISS_MS)
    yield Target(f"errors of {document['streams']['n']} streams", document["streams"]["errors"], "at most", 0)
    if document["rss_growth_bytes"] is not None:
        name = f"memory grown over {document['rss_requests']:,} hits, MiB"
        yield Target(name, round(document["rss_growth_bytes"] / 2**20, 2), "at most", RSS_BYTES / 2**20)
