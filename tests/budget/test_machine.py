"""The states of a budget, in any order of events: never serving while suspended, never looser than is supported."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cachestack.policy.budget import BudgetPolicy
from cachestack.semantic.budget import machine
from cachestack.semantic.budget.curve import GRID, NOTHING
from cachestack.semantic.budget.machine import RESERVE, begun, may_loosen, shift_now
from cachestack.semantic.budget.state import ClassState, Mode, Why

SCORES = st.sampled_from([0.1, 0.45, 0.62, 0.77, 0.86, 0.91, 0.93, 0.95, 0.97, 0.99, 1.0])
VERDICTS = st.sampled_from([False, False, False, True, None])


def policy(**changes: object) -> BudgetPolicy:
    return BudgetPolicy.model_validate({"max_wrong_hit_rate": 0.02} | changes)


class BudgetMachine(RuleBasedStateMachine):
    """All that can happen to one class."""

    @initialize(rate=st.sampled_from([0.005, 0.01, 0.02, 0.1]), mode=st.sampled_from(["serving", "shadow"]))
    def begin(self, rate: float, mode: str) -> None:
        self.policy = policy(max_wrong_hit_rate=rate, mode=mode, shadow_labels=10, drift_every=100)
        self.state = machine.followed(ClassState(), self.policy, "basis", 0.0)
        self.was = self.state
        self.now = 0.0

    def _move(self, state: ClassState) -> None:
        self.was, self.state = self.state, state
        self.now += 1

    @rule(verified=st.booleans(), watched=st.booleans())
    def served(self, verified: bool, watched: bool) -> None:
        if self.state.mode is Mode.SERVING and self.state.threshold is not None:
            self._move(machine.served(self.state, verified=verified, watched=watched))
            if watched:
                self._move(machine.valued(self.state, 0.0))

    @rule(score=SCORES, wrong=VERDICTS, chance=st.sampled_from([0.01, 1.0]), times=st.integers(1, 8))
    def audited(self, score: float, wrong: bool | None, chance: float, times: int) -> None:
        for _ in range(times):
            self._move(machine.audited(self.state, score, wrong, chance, self.policy, self.now))

    @rule(score=SCORES, wrong=VERDICTS, times=st.integers(1, 40))
    def compared(self, score: float, wrong: bool | None, times: int) -> None:
        for _ in range(times):
            self._move(machine.compared(self.state, score, wrong, self.policy, self.now, would_serve=True))

    @rule(wrong=st.booleans())
    def reported(self, wrong: bool) -> None:
        before = self.state
        self._move(machine.reported(self.state, wrong, self.policy, self.now))
        assert self.state.level >= before.level, "a report loosens nothing"
        assert not (before.mode is not Mode.SERVING and self.state.mode is Mode.SERVING), "nor does it begin serving"

    @rule(mode=st.sampled_from(["serving", "shadow"]))
    def another_mode(self, mode: str) -> None:
        self.policy = self.policy.model_copy(update={"mode": mode})
        self._move(machine.followed(self.state, self.policy, self.state.basis, self.now))

    @rule(basis=st.sampled_from(["basis", "other"]))
    def another_basis(self, basis: str) -> None:
        before = self.state
        self._move(machine.followed(self.state, self.policy, basis, self.now))
        if basis != before.basis:
            assert sum(self.state.free_num) == sum(self.state.audit_num) == 0, "labels of another encoder say nothing"
            assert not (before.mode is Mode.SUSPENDED and self.state.mode is Mode.SERVING)

    @invariant()
    def never_serving_right_after_suspended(self) -> None:
        """The way back leads through shadow."""
        assert not (self.was.mode is Mode.SUSPENDED and self.state.mode is Mode.SERVING)

    @invariant()
    def shadow_mode_never_serves(self) -> None:
        if self.policy.mode == "shadow":
            after = machine.followed(self.state, self.policy, self.state.basis, self.now)
            assert after.mode is not Mode.SERVING

    @invariant()
    def never_looser_than_supported(self) -> None:
        state = self.state
        assert state.floor <= state.level <= NOTHING
        if state.level < state.begin:
            assert may_loosen(state, self.policy), "without audits nothing is looser than at the beginning"
        # the threshold was looked at after the last label, with what was known then
        if state is not self.was and state.free + state.audits > self.was.free + self.was.audits:
            expected = 0.0 if state.level == NOTHING else shift_now(state).per_hit[state.level]
            rate = self.policy.max_wrong_hit_rate or 0.0
            assert expected <= rate + 1e-12 or state.mode is Mode.SUSPENDED
            if state.level < self.was.level:
                assert expected <= RESERVE * rate + 1e-12

    @invariant()
    def what_is_kept_is_what_was(self) -> None:
        assert ClassState.from_dict(json.loads(json.dumps(self.state.as_dict()))) == self.state
        assert len(json.dumps(self.state.as_dict())) < 8000


BudgetMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBudgetMachine = BudgetMachine.TestCase


def test_the_strict_beginning_follows_the_budget() -> None:
    assert [begun(policy(max_wrong_hit_rate=r), "b", 0.0).threshold for r in (0.003, 0.01, 0.05)] == [None, 0.94, 0.9]


def test_free_labels_alone_never_loosen() -> None:
    state = begun(policy(), "b", 0.0)
    for _ in range(2000):
        state = machine.compared(state, 0.8, False, policy(), 0.0, would_serve=False)
    assert state.level == state.begin
    for _ in range(policy().min_audits):
        state = machine.audited(state, 0.95, False, 1.0, policy(), 0.0)
    assert state.level < state.begin


def test_labels_that_nobody_can_tell_loosen_nothing() -> None:
    state = begun(policy(), "b", 0.0)
    for _ in range(500):
        state = machine.compared(state, 0.8, False, policy(), 0.0, would_serve=False)
        state = machine.compared(state, 0.8, None, policy(), 0.0, would_serve=False)
    for _ in range(20):
        state = machine.audited(state, 0.95, False, 1.0, policy(), 0.0)
    assert state.level == state.begin
    assert state.free_unknown == 500


def test_wrong_audits_tighten_and_then_suspend() -> None:
    state, seen = begun(policy(), "b", 0.0), []
    for _ in range(200):
        state = machine.served(state, verified=False, watched=True)
        state = machine.audited(state, 0.99, True, 1.0, policy(), 5.0)
        seen.append(state.mode)
        if state.mode is Mode.SUSPENDED:
            break
    assert state.mode is Mode.SUSPENDED
    assert state.why in (Why.AUDITS, Why.DRIFT)
    assert state.since_s == 5.0


def test_reports_suspend_even_where_audits_see_nothing() -> None:
    state = begun(policy(), "b", 0.0)
    for _ in range(60):
        state = machine.valued(machine.served(state, verified=False, watched=True), 0.0)
        state = machine.reported(state, True, policy(), 1.0)
    assert state.mode is Mode.SUSPENDED
    assert state.why is Why.REPORTS


def test_a_drift_of_free_labels_suspends_and_the_way_back_leads_through_shadow() -> None:
    p = policy(shadow_labels=30)
    state = begun(p, "b", 0.0)
    for number in range(400):
        state = machine.compared(state, 0.72, number % 5 == 0, p, 0.0, would_serve=False)
    assert state.mode is Mode.SERVING
    modes = [state.mode]
    for _ in range(200):
        state = machine.compared(state, 0.72, True, p, 1.0, would_serve=False)
        if state.mode is not modes[-1]:
            modes.append(state.mode)
        if state.mode is Mode.SUSPENDED:
            break
    assert modes == [Mode.SERVING, Mode.SUSPENDED]
    assert state.why is Why.DRIFT
    for number in range(60):
        state = machine.compared(state, 0.72, number % 5 == 0, p, 2.0, would_serve=False)
        if state.mode is not modes[-1]:
            modes.append(state.mode)
    assert modes == [Mode.SERVING, Mode.SUSPENDED, Mode.SHADOW, Mode.SERVING]
    assert state.level >= state.begin


def test_levels_of_a_looser_doubt_score_are_never_reached() -> None:
    state = begun(policy(max_wrong_hit_rate=0.5), "b", 0.0, lowest=4)
    for _ in range(300):
        state = machine.audited(state, 0.95, False, 1.0, policy(max_wrong_hit_rate=0.5), 0.0)
    assert state.threshold == GRID[4]


def test_a_wrong_audit_weighs_as_much_as_it_was_unlikely() -> None:
    state = machine.audited(begun(policy(), "b", 0.0), 0.95, True, 0.05, policy(), 0.0)
    state = machine.audited(state, 0.95, False, 0.05, policy(), 0.0)
    assert state.seen == {20.0: 1, 0.0: 1}
