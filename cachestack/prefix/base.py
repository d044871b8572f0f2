"""The contract of the pool: kept KV, found by token ids.

- What is kept are *segments*: one KV run each, as an engine published it, with the token ids it stands for. A segment
  begins where another ends or within it, so segments form trees, and a path from a root is the beginning of a prompt.
- A path is found by the chained SHA-256 hashes of its blocks, over token ids, model fingerprint and tenant salt; on a
  hash hit the ids themselves are compared. A path may end anywhere, also within a block.
- A `Lease` keeps its path from being evicted until it is released, a *pin* until its time is over. Runs are shared by
  all leases; nobody writes to their payloads, which the pool never looks into.
- `publish` is given runs of a finished, finite computation. What is there already is not kept twice; a run that begins
  with what is there already is kept only where most of it is new: a run cannot be made to begin later without the
  engine that made it, and the next request of its kind finds what is there and publishes the rest alone.
- The byte budget holds after every call, and so does a tenant's own limit at each of its publications. Leaves of least
  value go first, or the least recently used, as the publisher's policy says (see eviction.py); what is leased, pinned
  or has children stays. What cannot fit is not kept.
- Each segment knows its *principals*: the users whose requests published or matched it, and how far.

::

    [system 0..115)──┬─[question, answer 115..180)──[turn two 180..260)
                     └─[question, answer 115..171)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from cachestack.decisions import Reason
from cachestack.engines.base import KVRun

Pressure = Literal["evict", "skip"]
Eviction = Literal["value", "lru"]

UNKNOWN_S_PER_TOKEN = 1e-3
"""What a token's prefill counts for where its cost is not known yet. All such tokens count alike."""

SavedSeconds = Callable[[int, int], float]
"""Seconds of prefill that KV of prompt tokens `[start, stop)` saves; 0 where it is not known."""


def unknown_cost(start: int, stop: int) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Space:
    """Where KV may be reused: one model in one state, for one tenant."""

    fingerprint: str
    salt: bytes


@dataclass(frozen=True, slots=True)
class Label:
    """Whose a segment is, for limits and for showing."""

    tenant: str = ""
    model: str = ""
    dtype: str = ""


class Lease:
    """The right to read `runs`, which cover `num_tokens` tokens from token 0. Releasing it twice is harmless."""

    __slots__ = ("_release", "num_tokens", "runs")

    def __init__(self, runs: tuple[KVRun, ...], release: Callable[[Lease], None]) -> None:
        self.runs = runs
        self.num_tokens = sum(run.num_tokens for run in runs)
        self._release = release

    def release(self) -> None:
        self._release(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class Published:
    """What became of runs. `reason` is PUBLISHED, or why something was not kept: OVER_BUDGET, MOSTLY_KEPT, PREFIX_GONE,
    INVALIDATED, NOT_FINITE, MODEL_CHANGED.

    `num_shared_tokens` were there already; `num_bytes` counts what was newly kept.
    """

    reason: Reason = Reason.PUBLISHED
    num_tokens: int = 0
    num_shared_tokens: int = 0
    num_refused_tokens: int = 0
    num_bytes: int = 0

    @property
    def detail(self) -> dict[str, Any]:
        shown = {
            "kept_tokens": self.num_tokens,
            "kept_bytes": self.num_bytes,
            "shared_tokens": self.num_shared_tokens,
            "refused_tokens": self.num_refused_tokens,
        }
        return {k: v for k, v in shown.items() if v or k == "kept_tokens"}


@dataclass(frozen=True, slots=True)
class Pinned:
    """What became of a pin. `reason` is PINNED, or why there is none: PIN_OVER_BUDGET, PREFIX_GONE.

    `num_bytes`: what the pin holds, or would have; `max_bytes`: how much may be pinned, where that was the reason.
    `for_s`: how long from now it holds.
    """

    reason: Reason
    num_bytes: int = 0
    max_bytes: int | None = None
    for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolSize:
    """What the pool holds of one model in one dtype for one tenant."""

    model: str
    dtype: str
    tenant: str
    num_segments: int
    num_tokens: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class PoolPrefix:
    """One kept beginning of prompts, from token 0: what it holds, how it is used. Never its text or token ids.

    `num_tokens` and `num_bytes` are the whole path's. `num_own_tokens` of them are not part of the prefix that it
    continues. `saved_s` is what one use saves by the prefill-cost model (0 while that knows nothing). `num_users` is
    None where it counts as the tenant's own: requests without a user, or more users than are told apart.
    """

    tenant: str
    model: str
    num_tokens: int
    num_own_tokens: int
    num_bytes: int
    num_uses: int
    idle_s: float
    saved_s: float
    pinned_for_s: float = 0.0
    num_users: int | None = None
    is_leased: bool = False


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """What the pool holds. `num_leased` segments are being read now. `prefixes`: the most useful ones, best first."""

    groups: tuple[PoolSize, ...]
    max_bytes: int
    num_bytes: int
    num_tokens: int
    num_segments: int
    num_leased: int
    num_evicted: int
    num_pinned_bytes: int = 0
    prefixes: tuple[PoolPrefix, ...] = ()
