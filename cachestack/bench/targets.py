"""The aims that the prefix layer is held to, read off a report's document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Sense = Literal["at most", "at least"]

PACKED_AT_LEAST = {"167": 7.5, "977": 29.0}
SINGLE_AT_MOST = {"167": 1.10, "977": 1.30}
MISS_AT_MOST = 1.03
COLD_AT_MOST = 1.4
FORK_MS_AT_MOST = 1.0
LOOKUP_MS_AT_MOST = 0.3


@dataclass(frozen=True, slots=True)
class Target:
    """`value` is a median. `is_met` looks at it alone; whether the interval clears the bound is for the reader."""

    name: str
    value: float
    sense: Sense
    bound: float

    @property
    def is_met(self) -> bool:
        return self.value <= self.bound if self.sense == "at most" else self.value >= self.bound

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "sense": self.sense,
            "bound": self.bound,
            "met": self.is_met,
        }


def targets_of(document: Mapping[str, Any]) -> tuple[Target, ...]:
    """Those that the document's prefix lengths have bounds for."""
    return () if document["quick"] else tuple(_targets(document))  # a quick run measures nothing


def _targets(document: Mapping[str, Any]) -> Iterator[Target]:
    for tokens, figures in document["prefix"].items():
        ratios = figures["ratios"]
        if tokens in SINGLE_AT_MOST:
            name = f"one by one over the floor, {tokens} tokens"
            yield Target(name, ratios["single_over_floor"]["median"], "at most", SINGLE_AT_MOST[tokens])
        if tokens in PACKED_AT_LEAST:
            name = f"whole prompt over packed, {tokens} tokens"
            yield Target(name, ratios["whole_over_packed"]["median"], "at least", PACKED_AT_LEAST[tokens])
    yield Target("fork, ms", document["fork_ms"], "at most", FORK_MS_AT_MOST)
    yield Target("bytes copied by a fork", document["copied_bytes"], "at most", 0)
    yield Target("look-up, ms", document["lookup_ms"], "at most", LOOKUP_MS_AT_MOST)
    yield Target("miss over whole prompt", document["miss_overhead"]["median"], "at most", MISS_AT_MOST)
    cold = [ratio["median"] for _, ratio in sorted(document["cold_publish_by_length"].items(), key=lambda x: int(x[0]))]
    for tokens, ratio in document["cold_publish_by_length"].items():
        yield Target(f"first run over whole prompt, {tokens} tokens", ratio["median"], "at most", COLD_AT_MOST)
    if len(cold) > 1:
        yield Target("first run, longest prefix over shortest", round(cold[-1] / cold[0], 4), "at most", 1.0)
    for tokens, figures in document["prefix"].items():
        if "peer_over_packed" in figures["ratios"]:
            name = f"llama.cpp over packed, {tokens} tokens"
            yield Target(name, figures["ratios"]["peer_over_packed"]["median"], "at least", 1.0)
