"""The contract of the pool: kept KV, found by token ids.

- What is kept are *segments*: one KV run each, as an engine published it, with the token ids it stands for. A segment
  begins where another ends or within it, so segments form trees, and a path from a root is the beginning of a prompt.
- A path is found by the chained SHA-256 hashes of its blocks, over token ids, model fingerprint and tenant salt; on a
  hash hit the ids themselves are compared. A path may end anywhere, also within a block.
- A `Lease` keeps its path from being evicted until it is released. Runs are shared by all leases; nobody writes to
  their payloads, which the pool never looks into.
- `publish` is given runs of a finished, finite computation. What is there already is not kept twice.
- The byte budget holds after every call, and so does a tenant's own limit at each of its publications. The least
  recently used leaves go first; what is leased or has children stays. What cannot fit is not kept.

::

    [system 0..115)──┬─[question, answer 115..180)──[turn two 180..260)
                     └─[question, answer 115..171)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from cachestack.decisions import Reason
from cachestack.engines.base import KVRun


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
    """What became of runs. `reason` is PUBLISHED, or why something was not kept: OVER_BUDGET, PREFIX_GONE, NOT_FINITE,
    MODEL_CHANGED.

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
class PoolSize:
    """What the pool holds of one model in one dtype for one tenant."""

    model: str
    dtype: str
    tenant: str
    num_segments: int
    num_tokens: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """What the pool holds. `num_leased` segments are being read now."""

    groups: tuple[PoolSize, ...]
    max_bytes: int
    num_bytes: int
    num_tokens: int
    num_segments: int
    num_leased: int
    num_evicted: int
