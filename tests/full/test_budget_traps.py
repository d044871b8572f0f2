"""As `test_semantic_traps.py`, for the error budget: costs, wrong hits that stay, judges that fail open, and more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

BUDGETS, MACHINE, TERMS = "semantic/budget/budgets.py", "semantic/budget/machine.py", "semantic/budget/terms.py"
RUNNING = "tests/budget/test_running.py"
STATES = "tests/budget/test_machine.py"
KEEPER = "tests/budget/test_keeper.py"

TRAPS = (
    # 14: cost counted on hits
    Trap(
        "an audit counted as a request",
        "afresh.py",
        "self._stats.count(tenant, audits=1,",
        "self._stats.count(tenant, requests=1, audits=1,",
        f"{RUNNING}::test_what_audits_cost_is_no_hits_cost",
    ),
    Trap(
        "an audit's cost forgotten",
        "afresh.py",
        "audits=1, audit_cost=cost, cost=cost)",
        "audits=1)",
        f"{RUNNING}::test_what_audits_cost_is_no_hits_cost",
    ),
    Trap(
        "audits without a limit on what they cost",
        BUDGETS,
        "and (limit is None or spent < limit)",
        "",
        f"{RUNNING}::test_limits_of_audits",
    ),
    # 22: a wrong hit that can't be removed
    Trap(
        "a reported pair that hits again",
        TERMS,
        "if c.entry.entry_id not in self.denied and c",
        "if c",
        f"{RUNNING}::test_a_reported_pair_never_hits_again_not_even_in_another_process",
    ),
    Trap(
        "a report that the wrong tenant may make",
        "stack.py",
        "hit = self.budgets.report(tenant, hit_id, wrong=True,",
        'hit = self.budgets.report("acme", hit_id, wrong=True,',
        f"{RUNNING}::test_a_reported_pair_never_hits_again_not_even_in_another_process",
    ),
    Trap(
        "a report that another user may make",
        BUDGETS,
        "(by is not None and not _is_behind(hit.partition, by))",
        "False",
        "tests/gateway/test_reports.py::"
        "test_nobody_reports_what_another_tenant_or_user_was_served_or_learns_that_it_was",
    ),
    Trap(
        "an entry that stays though it was to be removed",
        "stack.py",
        "self.invalidate(tenant=tenant, entry=hit.entry_id)",
        "pass",
        f"{RUNNING}::test_the_entry_of_a_reported_hit_can_be_removed",
    ),
    Trap(
        "a pair that another process finds right again",
        "semantic/budget/keeper.py",
        "wrong = max(wrong, excluded.wrong)",
        "wrong = excluded.wrong",
        f"{KEEPER}::test_two_processes_add_to_each_other",
    ),
    # 24: a judge that fails open
    Trap(
        "a comparison that failed passes for same",
        BUDGETS,
        "            self._failed(error)\n            return None\n        return None if same",
        "            return False\n        return None if same",
        f"{RUNNING}::test_a_comparison_that_fails_or_cannot_tell_does_not_pass_for_same",
    ),
    Trap(
        "what nobody can tell passes for same",
        BUDGETS,
        "return None if same is None else not same",
        "return not (same is None or same)",
        f"{RUNNING}::test_a_comparison_that_fails_or_cannot_tell_does_not_pass_for_same",
    ),
    Trap(
        "a budget that cannot be read serves",
        BUDGETS,
        "return Terms(Mode.SUSPENDED, None)",
        "return Terms(Mode.SERVING, 0.4)",
        f"{RUNNING}::test_a_budget_that_cannot_be_asked_serves_nothing_by_meaning",
    ),
    Trap(
        "a damaged file begins as if nothing had been learnt",
        MACHINE,
        'policy.mode == "shadow" or why is Why.DAMAGED',
        'policy.mode == "shadow"',
        f"{KEEPER}::test_a_damaged_file_begins_anew_in_shadow_and_trusts_no_entry_from_before",
    ),
    # the budget's own
    Trap(
        "free labels alone loosen",
        MACHINE,
        "known >= policy.min_audits and",
        "",
        f"{STATES}::test_free_labels_alone_never_loosen",
    ),
    Trap(
        "labels that nobody can tell loosen",
        MACHINE,
        " and unknown <= MAX_UNKNOWN * labels",
        "",
        f"{STATES}::test_labels_that_nobody_can_tell_loosen_nothing",
    ),
    Trap(
        "shadow serves",
        TERMS,
        "if self.mode is Mode.SERVING and (self.threshold",
        "if (self.threshold",
        f"{RUNNING}::test_shadow_serves_nothing_by_meaning_and_counts_what_it_would_have",
    ),
    Trap(
        "the way back leaves out shadow",
        MACHINE,
        "state = replace(state, mode=Mode.SHADOW, since_s=now_s)\n    if state.mode is Mode.SHADOW and",
        "state = replace(state, mode=Mode.SERVING, since_s=now_s)\n    if state.mode is Mode.SHADOW and",
        f"{STATES}::test_a_drift_of_free_labels_suspends_and_the_way_back_leads_through_shadow",
    ),
    Trap(
        "weights forgotten",
        MACHINE,
        "1 / probability if wrong else 0.0",
        "1.0 if wrong else 0.0",
        f"{STATES}::test_a_wrong_audit_weighs_as_much_as_it_was_unlikely",
    ),
)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, [trap.test for trap in TRAPS])
