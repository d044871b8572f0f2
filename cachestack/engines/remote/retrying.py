"""How long a call may take, and when it is made again."""

from __future__ import annotations

import email.utils
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

RETRIED = frozenset({408, 429})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`read_s`: between two pieces of an answer, and before the first. `total_s`: the whole call, retries included."""

    connect_s: float = 5.0
    read_s: float = 120.0
    total_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Retries:
    """Waits grow from `base_s` by doubling to `cap_s`, each drawn between 0 and that ("full jitter").

    A server's Retry-After is honoured up to `retry_after_cap_s`; where it asks for more, the call fails with what it
    asked for.
    """

    num_retries: int = 2
    base_s: float = 0.5
    cap_s: float = 8.0
    retry_after_cap_s: float = 20.0

    def wait_s(self, attempt: int, retry_after_s: float | None, rng: random.Random) -> float | None:
        """Before attempt `attempt` + 1 (the first is 0); None: there is to be none."""
        if attempt >= self.num_retries or (retry_after_s or 0.0) > self.retry_after_cap_s:
            return None
        jitter_s = rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0**attempt))
        return jitter_s if retry_after_s is None else retry_after_s + jitter_s


def is_retried(status: int) -> bool:
    """Whether the same call may go well in a moment. A conflict (409) does not pass by waiting."""
    return status in RETRIED or status >= 500


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """From `retry-after-ms` or `retry-after`, in seconds or as a date."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            seconds = float(text) * unit_s
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.timestamp() - time.time())
