"""What the budget knows of one class of one tenant's traffic: plain values, of a size that does not grow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from cachestack.semantic.budget.curve import GRID, NOTHING

STATE_VERSION = 1
Bands = tuple[float, ...]
NONE: Bands = (0.0,) * len(GRID)


class Mode(StrEnum):
    OFF = "off"
    SHADOW = "shadow"
    SERVING = "serving"
    SUSPENDED = "suspended"


class Why(StrEnum):
    """Why a state or a threshold changed."""

    BEGUN = "begun"
    POLICY = "policy"
    CHANGED = "changed"
    DAMAGED = "damaged"
    LABELS = "labels"
    AUDITS = "audits"
    REPORTS = "reports"
    DRIFT = "drift"
    ENOUGH = "enough_labels"


@dataclass(frozen=True, slots=True)
class ClassState:
    """`level` and the others of its kind are places in the grid of thresholds, `NOTHING` behind its end; higher is
    stricter. `begin` is where it started without labels, `floor` the loosest level that alarms have left.

    Labels by band of the score: `free_*` of questions that were not served (the engine was asked anyhow), `audit_*` of
    hits. They fade: a label counts half after `HALF_LIFE` others. `seen` are the values of the hits (see `bounds.py`),
    `seen_now` those since the level last changed, which was test number `tests`; `unwatched` hits could not have been
    audited, `unverified` ones were of pairs that nobody had compared. `doubled` is the drift test's evidence that the
    odds of being wrong have doubled since they were `usual` (0: not known yet).
    """

    mode: Mode = Mode.OFF
    why: Why = Why.BEGUN
    since_s: float = 0.0
    basis: str = ""
    level: int = NOTHING
    begin: int = NOTHING
    floor: int = 0
    free_num: Bands = NONE
    free_wrong: Bands = NONE
    audit_num: Bands = NONE
    audit_wrong: Bands = NONE
    hits: int = 0
    unverified: int = 0
    unwatched: int = 0
    audits: int = 0
    audits_wrong: int = 0
    audits_unknown: int = 0
    free: int = 0
    free_unknown: int = 0
    reported_wrong: int = 0
    reported_right: int = 0
    recent_hits: int = 0
    recent_reports: int = 0
    compared: int = 0
    seen: Mapping[float, int] | None = None
    seen_now: Mapping[float, int] | None = None
    tests: int = 1
    doubled: float = 0.0
    usual: float = 0.0
    shadow_hits: Bands = NONE
    shadow_wrong: Bands = NONE

    @property
    def threshold(self) -> float | None:
        """None: nothing is served by meaning."""
        return GRID[self.level] if self.level < NOTHING else None

    def as_dict(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("seen", "seen_now"):
            values[name] = [[x, n] for x, n in sorted((values[name] or {}).items())]
        return {"v": STATE_VERSION} | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> ClassState:
        """Raises ValueError, KeyError or TypeError for what `as_dict` cannot have made."""
        given = dict(values)
        if given.pop("v") != STATE_VERSION:
            raise ValueError("another version")
        given["mode"], given["why"] = Mode(given["mode"]), Why(given["why"])
        for name in ("seen", "seen_now"):
            given[name] = {float(x): int(n) for x, n in given[name]}
        for name, value in given.items():
            if isinstance(value, list):
                if len(value) != len(GRID):
                    raise ValueError(f"{name} has another length")
                given[name] = tuple(float(x) for x in value)
        state = ClassState(**given)
        numbers = [*state.free_num, *state.free_wrong, *state.audit_num, *state.audit_wrong, state.usual, state.doubled]
        levels = (state.level, state.begin, state.floor)
        if not all(map(math.isfinite, numbers)) or min(numbers) < 0 or any(not 0 <= x <= NOTHING for x in levels):
            raise ValueError("a number is out of its range")
        return replace(state)
