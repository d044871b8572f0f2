"""How much `cachestack bench gateway` measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """`round_s`: how long each side is loaded in a round. `num_first`: requests before memory is looked at."""

    connections: tuple[int, ...] = (1, 16, 128)
    rounds: int = 9
    round_s: float = 1.0
    num_kept: int = 100
    num_misses: int = 300
    num_streams: int = 500
    num_first: int = 10_000
    num_for_memory: int = 100_000
    quick: bool = False


QUICK = Settings(
    rounds=2, round_s=0.2, num_kept=20, num_misses=20, num_streams=40, num_first=1000, num_for_memory=10_000, quick=True
)
