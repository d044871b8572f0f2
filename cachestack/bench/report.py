"""What `cachestack bench prefix` found, as values and as its JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from cachestack.bench.document import FORMAT
from cachestack.bench.forks import ForkCost
from cachestack.bench.lookup import LookupCost
from cachestack.bench.machine import Machine
from cachestack.bench.operators import Operator
from cachestack.bench.peer import PeerFigures
from cachestack.bench.ratios import INTERVAL, Ratio, coverage, paired_ratio
from cachestack.bench.targets import targets_of

TOLERANCE = 1e-3
"""The largest difference of logits between two ways to one prompt that is still the same result; see docs/prefix.md."""
SHOWN = ("whole", "recipe", "single", "packed", "floor")
RATIOS = (
    ("single", "floor"),
    ("whole", "packed"),
    ("whole", "single"),
    ("recipe", "single"),
    ("floor", "packed"),
)
PEER_RATIOS = (("peer", "packed"), ("peer", "single"))


@dataclass(frozen=True, slots=True)
class Agreement:
    """Largest differences of logits against the whole prompt's, over all compared tickets; whether the largest logit
    was the same each time; and whether a first run and a hit gave equal logits bit for bit. `peer_same_argmax`: the
    share of tickets whose largest logit the other engine, with its own weights, has in the same place."""

    differences: Mapping[str, float]
    same_argmax: bool
    cold_equals_warm: bool
    num_compared: int
    peer_same_argmax: float | None = None

    @property
    def holds(self) -> bool:
        return self.same_argmax and self.cold_equals_warm and all(d <= TOLERANCE for d in self.differences.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "max_difference": {name: float(f"{d:.3g}") for name, d in self.differences.items()},
            "tolerance": TOLERANCE,
            "same_argmax": self.same_argmax,
            "cold_equals_warm": self.cold_equals_warm,
            "compared": self.num_compared,
            **({} if self.peer_same_argmax is None else {"peer_same_argmax": round(self.peer_same_argmax, 4)}),
        }


@dataclass(frozen=True, slots=True)
class Prefix:
    """One prefix. `times_ms`: for each column an item's time in each repetition, in the same order."""

    prefix_tokens: int
    suffix_tokens: int
    pack_items: int
    times_ms: Mapping[str, Sequence[float]]
    agreement: Agreement
    profile: Mapping[str, Sequence[Operator]] = field(default_factory=dict)

    @property
    def reps(self) -> int:
        return len(self.times_ms["whole"])

    @property
    def ceiling(self) -> float:
        """How many times fewer tokens a hit computes."""
        return (self.prefix_tokens + self.suffix_tokens) / self.suffix_tokens

    def ratio(self, slower: str, faster: str) -> Ratio:
        return paired_ratio(self.times_ms[slower], self.times_ms[faster])

    def to_json(self) -> dict[str, Any]:
        pairs = (*RATIOS, *(PEER_RATIOS if "peer" in self.times_ms else ()))
        names = (*SHOWN, *(("peer",) if "peer" in self.times_ms else ()))
        return {
            **{f"{name}_ms": round(median(self.times_ms[name]), 2) for name in names},
            "ceiling": round(self.ceiling, 2),
            "ratios": {f"{a}_over_{b}": self.ratio(a, b).to_json() for a, b in pairs},
            "pack_items": self.pack_items,
            "reps": self.reps,
            "agreement": self.agreement.to_json(),
        }


@dataclass(frozen=True, slots=True)
class PrefixReport:
    """`cold_by_length`: the first run with a declared prefix over one whole pass, by the prefix's tokens."""

    prefixes: tuple[Prefix, ...]
    cold_by_length: Mapping[int, Ratio]
    fork: ForkCost
    lookup: LookupCost
    machine: Machine
    peer: PeerFigures | None = None
    quick: bool = False
    elapsed_s: float = 0.0

    @property
    def agrees(self) -> bool:
        return all(prefix.agreement.holds for prefix in self.prefixes)

    def to_json(self) -> dict[str, Any]:
        first, last = self.prefixes[0], self.prefixes[-1]
        document: dict[str, Any] = {
            "format": FORMAT,
            "prefix": {str(prefix.prefix_tokens): prefix.to_json() for prefix in self.prefixes},
            "fork_ms": round(self.fork.time.median_ms, 4),
            "copied_bytes": self.fork.fork_bytes,
            "lookup_ms": round(self.lookup.full.median_ms, 4),
            "miss_overhead": first.ratio("miss", "whole").to_json(),
            "miss_overhead_keeping_all": first.ratio("miss_keeping", "whole").to_json(),
            "cold_publish_overhead": self.cold_by_length[last.prefix_tokens].to_json(),
            "cold_publish_by_length": {str(n): ratio.to_json() for n, ratio in sorted(self.cold_by_length.items())},
            "fork": self.fork.to_json(),
            "lookup": self.lookup.to_json(),
            "agreement": {"holds": self.agrees},
            "suffix_tokens": last.suffix_tokens,
            "interval": {"kind": INTERVAL, "coverage": round(coverage(last.reps), 4)},
            "machine": self.machine.to_json(),
            "quick": self.quick,
            "elapsed_s": round(self.elapsed_s, 1),
        }
        if self.peer is not None:
            document["peer"] = self.peer.to_json()
        if any(prefix.profile for prefix in self.prefixes):
            document["profile"] = {
                str(prefix.prefix_tokens): {
                    name: [operator.to_json() for operator in operators] for name, operators in prefix.profile.items()
                }
                for prefix in self.prefixes
            }
        document["targets"] = [target.to_json() for target in targets_of(document)]
        return document
