"""What moves the states: pure functions from a state and what happened to the next state.

::

    off ──→ shadow ──→ serving ──→ suspended
              ▲   mode: serving       │  alarm: audits, reports, drift
              └── enough labels ◄─────┘

The threshold is the loosest of the grid that can be reached from the strictest one without a threshold over the budget,
by the corpus's curve as the labels shift it; never looser than at the beginning without audits, and never looser than
what alarms have left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cachestack.policy.budget import BudgetPolicy
from cachestack.semantic.budget.bounds import are_too_many, is_above
from cachestack.semantic.budget.curve import NOTHING, band_of
from cachestack.semantic.budget.shift import Shift, log_gain, prior, shift_of
from cachestack.semantic.budget.state import NONE, Bands, ClassState, Mode, Why

HALF_LIFE = 600.0
_FADE = 0.5 ** (1 / HALF_LIFE)
MAX_UNKNOWN = 0.2
"""Beyond this share of labels that nobody could tell, the threshold is not loosened."""
USUAL_EVERY = 100
"""After so many compared answers, what is usual is looked at again."""
RESERVE = 0.8
"""A looser threshold must promise this share of the budget, so that the threshold does not go to and fro."""


def begun(policy: BudgetPolicy, basis: str, now_s: float, why: Why = Why.BEGUN, lowest: int = 0) -> ClassState:
    """Without labels. `basis` names what labels depend on: encoder, verifier, policy; `lowest` is the loosest level
    that the semantic policy leaves."""
    level = max(_level(prior(), policy), lowest)
    mode = Mode.SHADOW if policy.mode == "shadow" or why is Why.DAMAGED else Mode.SERVING
    return ClassState(mode, why, now_s, basis, level, level, lowest, seen={}, seen_now={})


def followed(
    state: ClassState, policy: BudgetPolicy, basis: str, now_s: float, lowest: int = 0, why: Why = Why.BEGUN
) -> ClassState:
    """The state under the policy of the moment: labels of another encoder, verifier or budget count no more."""
    if not policy.is_on:
        return state if state.mode is Mode.OFF else replace(ClassState(), why=Why.POLICY, since_s=now_s)
    if state.mode is Mode.OFF:
        return begun(policy, basis, now_s, why, lowest)
    if state.basis != basis:
        fresh = begun(policy, basis, now_s, Why.CHANGED, lowest)
        return replace(fresh, mode=Mode.SHADOW if state.mode is Mode.SUSPENDED else fresh.mode)
    if policy.mode == "shadow" and state.mode is Mode.SERVING:
        return replace(state, mode=Mode.SHADOW, why=Why.POLICY, since_s=now_s)
    if policy.mode == "serving" and state.mode is Mode.SHADOW and state.why is Why.POLICY:
        return replace(state, mode=Mode.SERVING, since_s=now_s)
    return state


def served(state: ClassState, *, verified: bool, watched: bool) -> ClassState:
    """A hit by meaning was served. `watched`: with some probability it could have been audited, or was verified. An
    audited hit's value comes with its label."""
    return replace(
        state,
        hits=state.hits + 1,
        recent_hits=state.recent_hits + 1,
        unverified=state.unverified + (not verified),
        unwatched=state.unwatched + (not watched),
    )


def valued(state: ClassState, value: float) -> ClassState:
    """The value of a hit (see `bounds.py`)."""
    return replace(state, seen=_with(state.seen, value), seen_now=_with(state.seen_now, value))


def audited(
    state: ClassState, score: float, wrong: bool | None, probability: float, policy: BudgetPolicy, now_s: float
) -> ClassState:
    """An audit has ended; `wrong` is None where nobody can tell. What can't be told is no evidence against suspending
    and none for loosening: it counts as right in the first and stops the second."""
    state = valued(state, 1 / probability if wrong else 0.0)
    state = replace(
        state,
        audits=state.audits + 1,
        audits_wrong=state.audits_wrong + bool(wrong),
        audits_unknown=state.audits_unknown + (wrong is None),
    )
    band = band_of(score)
    if wrong is None or band is None:
        return _judged(state, policy, now_s)
    num, bad = _faded(state.audit_num, state.audit_wrong, band, wrong)
    state = _drifting(replace(state, audit_num=num, audit_wrong=bad), band, wrong)
    return _judged(state, policy, now_s)


def compared(
    state: ClassState, score: float, wrong: bool | None, policy: BudgetPolicy, now_s: float, *, would_serve: bool
) -> ClassState:
    """A question was not served, and the engine's answer was compared with the best candidate's: a free label.
    `would_serve`: in shadow mode, it would have been."""
    state = replace(state, free=state.free + 1, free_unknown=state.free_unknown + (wrong is None))
    band = band_of(score)
    if wrong is None or band is None:
        return _judged(state, policy, now_s)
    num, bad = _faded(state.free_num, state.free_wrong, band, wrong)
    state = replace(state, free_num=num, free_wrong=bad, compared=state.compared + 1)
    if state.mode is not Mode.SERVING:
        hits, misses = (_plus(b, band, x) for b, x in ((state.shadow_hits, 1.0), (state.shadow_wrong, float(wrong))))
        state = replace(state, shadow_hits=hits, shadow_wrong=misses)
    return _judged(_drifting(state, band, wrong), policy, now_s)


def reported(state: ClassState, wrong: bool, policy: BudgetPolicy, now_s: float) -> ClassState:
    """A user's word. Users report what annoys them: it tightens and suspends, and never loosens."""
    if not wrong:
        return replace(state, reported_right=state.reported_right + 1)
    state = replace(state, reported_wrong=state.reported_wrong + 1, recent_reports=state.recent_reports + 1)
    judged = _judged(state, policy, now_s)
    return judged if judged.level >= state.level and state.mode is Mode.SERVING else state


def may_loosen(state: ClassState, policy: BudgetPolicy) -> bool:
    """Whether the threshold may be looser than it was without labels: free labels are never enough."""
    labels = state.audits + state.free
    unknown = state.audits_unknown + state.free_unknown
    known = state.audits - state.audits_unknown
    return known >= policy.min_audits and unknown <= MAX_UNKNOWN * labels


def supported_level(state: ClassState, policy: BudgetPolicy) -> int:
    """The loosest level that the labels, the audits and the alarms allow."""
    shift = shift_now(state)
    level = max(_level(shift, policy), state.floor)
    if level < state.level:
        level = min(state.level, max(_level(shift, policy, RESERVE), state.floor))
    return level if may_loosen(state, policy) else max(level, state.begin)


def shift_now(state: ClassState) -> Shift:
    num = tuple(a + b for a, b in zip(state.free_num, state.audit_num, strict=True))
    wrong = tuple(a + b for a, b in zip(state.free_wrong, state.audit_wrong, strict=True))
    return shift_of(num, wrong)


def _judged(state: ClassState, policy: BudgetPolicy, now_s: float) -> ClassState:
    """After each label: alarms first, then the way back, then the threshold."""
    budget = policy.max_wrong_hit_rate
    if budget is None:
        return state
    alpha = (1 - policy.confidence) / (state.tests * (state.tests + 1))  # spent over all tests together
    if state.mode is Mode.SERVING:
        if state.doubled > 0 and _gone(state, policy):
            return _suspended(state, Why.DRIFT, policy, now_s)
        if is_above(state.seen_now or {}, budget, alpha):
            return _tightened(state, Why.AUDITS, policy, now_s)
        if are_too_many(state.recent_reports, state.recent_hits, budget, alpha):
            return _tightened(state, Why.REPORTS, policy, now_s)
    elif state.mode is Mode.SUSPENDED and state.compared >= 1:
        state = replace(state, mode=Mode.SHADOW, since_s=now_s)
    if state.mode is Mode.SHADOW and policy.mode == "serving" and state.compared >= policy.shadow_labels:
        state = replace(state, mode=Mode.SERVING, why=Why.ENOUGH, since_s=now_s)
    level = supported_level(state, policy)
    if level == state.level:
        return state
    return replace(state, level=level, **_anew(state))


def _tightened(state: ClassState, why: Why, policy: BudgetPolicy, now_s: float) -> ClassState:
    """One step; where that serves next to nothing, suspended."""
    if state.level + 1 >= NOTHING:
        return _suspended(state, why, policy, now_s)
    level = state.level + 1
    return replace(state, level=level, floor=level, why=why, since_s=now_s, **_anew(state))


def _suspended(state: ClassState, why: Why, policy: BudgetPolicy, now_s: float) -> ClassState:
    """Exact only. What was learnt of scores is of another traffic: it begins anew, in shadow, at the strict beginning
    or stricter."""
    return replace(
        state,
        mode=Mode.SUSPENDED,
        why=why,
        since_s=now_s,
        level=max(state.level, state.begin),
        floor=max(state.begin, state.floor),
        free_num=NONE,
        free_wrong=NONE,
        audit_num=NONE,
        audit_wrong=NONE,
        compared=0,
        **_anew(state),
        doubled=0.0,
        usual=0.0,
    )


def _anew(state: ClassState) -> dict[str, Any]:
    """Another threshold, another test."""
    return {"seen_now": {}, "recent_hits": 0, "recent_reports": 0, "tests": state.tests + 1}


def _drifting(state: ClassState, band: int, wrong: bool) -> ClassState:
    """Evidence in the manner of CUSUM, of values whose mean is at most 1 while the odds are as usual or less."""
    usual, is_due = state.usual, state.compared % USUAL_EVERY == USUAL_EVERY - 1
    if usual == 0.0:  # nothing is usual yet
        return replace(state, usual=shift_now(state).factor) if is_due else state
    doubled = max(0.0, state.doubled + log_gain(band, wrong, usual, 2 * usual))
    return replace(state, doubled=doubled, usual=shift_now(state).factor if doubled == 0.0 and is_due else usual)


def _gone(state: ClassState, policy: BudgetPolicy) -> bool:
    return state.doubled >= math.log(policy.drift_every)


def _level(shift: Shift, policy: BudgetPolicy, share: float = 1.0) -> int:
    assert policy.max_wrong_hit_rate is not None, "a budget that is on has a rate"
    return shift.strictest_run(share * policy.max_wrong_hit_rate)


def _faded(num: Bands, bad: Bands, band: int, wrong: bool) -> tuple[Bands, Bands]:
    faded = tuple(x * _FADE for x in num), tuple(x * _FADE for x in bad)
    return _plus(faded[0], band, 1.0), _plus(faded[1], band, float(wrong))


def _plus(bands: Bands, band: int, value: float) -> Bands:
    return (*bands[:band], bands[band] + value, *bands[band + 1 :])


def _with(seen: Mapping[float, int] | None, value: float) -> dict[float, int]:
    return {**(seen or {}), value: (seen or {}).get(value, 0) + 1}
