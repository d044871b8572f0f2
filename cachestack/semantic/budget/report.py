"""A class's state for people: what is in force, what is known, and how surely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cachestack.policy.budget import BudgetPolicy
from cachestack.semantic.budget.auditing import largest_value
from cachestack.semantic.budget.bounds import interval
from cachestack.semantic.budget.curve import GRID
from cachestack.semantic.budget.machine import may_loosen, shift_now
from cachestack.semantic.budget.state import ClassState


@dataclass(frozen=True, slots=True)
class AtThreshold:
    """What a threshold would do. `expected`: the wrong ones of a hundred hits, as a fraction, by the curve as shifted;
    `labels` and `wrong` are the compared answers at or above it (faded ones in part)."""

    threshold: float
    expected: float
    labels: float
    wrong: float
    shadow_hits: int
    shadow_wrong: int
    in_force: bool


@dataclass(frozen=True, slots=True)
class ClassReport:
    """`interval`: of the rate of wrong hits by meaning, at the policy's confidence, at all times at once; of the
    `watched` hits."""

    state: str
    why: str
    since_s: float
    threshold: float | None
    budget: float
    interval: tuple[float, float]
    hits: int
    watched: int
    unverified: int
    audits: int
    audits_wrong: int
    audits_unknown: int
    compared: int
    compared_unknown: int
    reported_wrong: int
    reported_right: int
    has_few_labels: bool
    thresholds: tuple[AtThreshold, ...]

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        rows = [{name: getattr(row, name) for name in AtThreshold.__slots__} for row in self.thresholds]
        return {**values, "interval": list(self.interval), "thresholds": rows}


def report_of(state: ClassState, policy: BudgetPolicy) -> ClassReport:
    seen = state.seen or {}
    watched = sum(seen.values())
    bounds = interval(seen, largest_value(policy), 1 - policy.confidence) if watched else (0.0, 1.0)
    shift = shift_now(state)
    rows = tuple(
        AtThreshold(
            threshold,
            round(shift.per_hit[level], 5),
            round(sum(state.free_num[level:]) + sum(state.audit_num[level:]), 1),
            round(sum(state.free_wrong[level:]) + sum(state.audit_wrong[level:]), 1),
            int(sum(state.shadow_hits[level:])),
            int(sum(state.shadow_wrong[level:])),
            level == state.level,
        )
        for level, threshold in enumerate(GRID)
    )
    return ClassReport(
        state=state.mode.value,
        why=state.why.value,
        since_s=state.since_s,
        threshold=state.threshold,
        budget=policy.max_wrong_hit_rate or 0.0,
        interval=(round(bounds[0], 5), round(bounds[1], 5)),
        hits=state.hits,
        watched=watched,
        unverified=state.unverified,
        audits=state.audits,
        audits_wrong=state.audits_wrong,
        audits_unknown=state.audits_unknown,
        compared=state.free,
        compared_unknown=state.free_unknown,
        reported_wrong=state.reported_wrong,
        reported_right=state.reported_right,
        has_few_labels=not may_loosen(state, policy),
        thresholds=rows,
    )
