"""Builds a trace while the pipeline runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from cachestack.decisions import Layer, Outcome, Reason, Step, Trace


class TraceBuilder:
    """Collects steps; each step's time is what passed since the one before it."""

    def __init__(self, request_id: str, tenant: str, timer: Callable[[], float] = time.perf_counter) -> None:
        self.request_id = request_id
        self._tenant = tenant
        self._timer = timer
        self._begin = self._last = timer()
        self._steps: list[Step] = []

    def add(self, layer: Layer, outcome: Outcome, reason: Reason, detail: Mapping[str, Any] | None = None) -> None:
        now = self._timer()
        self._steps.append(Step(layer, outcome, reason, now - self._last, detail or {}))
        self._last = now

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._timer() - self._begin

    def of(self, steps: tuple[Step, ...]) -> Trace:
        """All of the steps at once; there were none before."""
        self._steps.extend(steps)
        return Trace(self.request_id, self._tenant, steps, self._timer() - self._begin)

    def trace(self) -> Trace:
        """The steps so far."""
        return Trace(self.request_id, self._tenant, tuple(self._steps), self._timer() - self._begin)
