"""Where the time of a pass goes, by operator of torch: what explains a target that was missed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TOP = 10
PASSES = 3


@dataclass(frozen=True, slots=True)
class Operator:
    """`share`: of the time of all operators, without what an operator calls. `calls`: in one pass."""

    name: str
    share: float
    calls: float

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "share": round(self.share, 4), "calls": round(self.calls, 1)}


def operator_shares(run: Callable[[], object], *, passes: int = PASSES, top: int = TOP) -> tuple[Operator, ...]:
    """The `top` operators by their own time on the CPU; the profiler makes short operators look dearer."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes lines of its own to stderr otherwise
    from torch.profiler import ProfilerActivity, profile

    run()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(passes):
            run()
    events = [event for event in profiler.key_averages() if event.self_cpu_time_total > 0]
    total = sum(event.self_cpu_time_total for event in events)
    events.sort(key=lambda event: -event.self_cpu_time_total)
    return tuple(Operator(e.key, e.self_cpu_time_total / total, e.count / passes) for e in events[:top])
