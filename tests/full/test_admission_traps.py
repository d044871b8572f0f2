"""As `test_traps.py`, for what may be kept: which answers, for whom, and that what was removed stays away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

SETTLING, SCOPES, CONFIRMING = "settling.py", "semantic/scopes.py", "semantic/admission/confirming.py"
TESTS = "tests/core/test_scopes.py"
ALONE = f"{TESTS}::test_personal_data_serves_its_user_and_nobody_else"
POISONED = f"{TESTS}::test_an_answer_built_to_match_others_questions_reaches_nobody"
REMOVED = f"{TESTS}::test_a_removed_answer_never_comes_back"

TRAPS = (
    # 8: an error is kept and replayed as an answer
    Trap(
        "an error's text is kept",
        "semantic/admission/judging.py",
        "        if found is not None:\n            return Admission(Scope.NOBODY, found.reason, found.evidence)\n",
        "",
        f"{TESTS}::test_a_refusal_is_not_kept_and_the_reason_is_counted",
    ),
    Trap(
        "a failed call is an answer",
        "attempts.py",
        "                    if error.emitted or _is_hopeless(error.cause):\n"
        "                        raise error.cause from None\n",
        "                    return Answer(Generation(str(error)), True)\n",
        f"{TESTS}::test_a_failure_of_the_upstream_is_never_kept",
    ),
    # 10: an empty placeholder shadows look-ups
    Trap(
        "an empty answer is kept",
        SETTLING,
        "    if not text.strip():\n        return Reason.EMPTY_ANSWER\n",
        "",
        f"{TESTS}::test_no_policy_keeps_an_empty_answer",
    ),
    Trap(
        "a stand-in is kept",
        "semantic/admission/__init__.py",
        "for found, is_sure in (find_placeholder(question, wanted, answer), find_error(wanted, answer)):",
        "for found, is_sure in ():",
        "tests/semantic/test_admission.py::test_the_threshold_decides_what_rules_leave_open",
    ),
    # walls: what is one user's
    Trap(
        "personal data is kept for all",
        SETTLING,
        "place = of_user(asked) if admission.scope is Scope.USER else asked",
        "place = asked",
        ALONE,
    ),
    Trap(
        "a user's scope is everybody's",
        SCOPES,
        "replace(asked.partition, user=asked.request.user)",
        'replace(asked.partition, user="one for all")',
        ALONE,
    ),
    Trap(
        "a user's scope forgets the authorisation epoch",
        SCOPES,
        "replace(asked.partition, user=asked.request.user)",
        "replace(asked.partition, user=asked.request.user, epoch=0)",
        ALONE,
    ),
    Trap(
        "users share the call of what is one person's",
        "pipeline.py",
        "flown = of_user(asked) if has_own_scope(request, policy) and is_alone(request, policy) else asked",
        "flown = asked",
        f"{TESTS}::test_two_users_share_no_call_where_the_question_is_one_persons",
    ),
    Trap(
        "the trace names a secret",
        "semantic/admission/judging.py",
        'said = {"kinds": list(found_in.kinds), "where": list(found_in.where)}',
        'said = {"kinds": list(found_in.kinds), "where": [request.question]}',
        f"{TESTS}::test_a_secret_is_not_kept_and_its_value_is_nowhere",
    ),
    # 21: poisoning
    Trap(
        "an answer serves all at once",
        SETTLING,
        "must_confirm = admissions.needs_confirmation and admission.scope is Scope.ALL",
        "must_confirm = False",
        POISONED,
    ),
    Trap(
        "a user confirms themselves",
        CONFIRMING,
        "if name != user]",
        "]",
        f"{TESTS}::test_one_user_cannot_confirm_themselves",
    ),
    Trap(
        "whatever others were answered confirms",
        CONFIRMING,
        "if same_answer(theirs.answer, entry.answer):",
        "if True:",
        f"{TESTS}::test_answers_that_disagree_are_not_promoted",
    ),
    Trap(
        "a claim that is gone confirms",
        CONFIRMING,
        "        if theirs is None or theirs.principal != name or theirs.expires_at_s <= entry.created_at_s:\n"
        "            continue\n",
        "        theirs = theirs or replace(entry, principal=name)\n",
        f"{TESTS}::test_a_claim_that_was_removed_confirms_nothing",
    ),
    Trap(
        "who confirms followed the other's call",
        SCOPES,
        "policy.admission.confirmations > 0 or belongs",
        "belongs",
        f"{TESTS}::test_users_share_no_call_where_each_must_be_answered",
    ),
    Trap(
        "an answer without a user is kept",
        SETTLING,
        "if must_confirm and request.user is None:",
        "if False:",
        f"{TESTS}::test_who_has_no_user_confirms_nothing_and_is_kept_nowhere",
    ),
    # 22: a wrong hit cannot be removed
    Trap(
        "what it was confirmed by stays",
        CONFIRMING,
        "entry_id = agreeing[0].entry_id if agreeing else entry.entry_id",
        "entry_id = entry.entry_id",
        REMOVED,
    ),
    Trap(
        "the store forgets to remove it",
        "stores/disk.py",
        "        check_selector(selector)\n        fence = Fence(self._clock(), selector)\n",
        "        check_selector(selector)\n        if selector.entry_id is not None:\n            return 2\n"
        "        fence = Fence(self._clock(), selector)\n",
        REMOVED,
    ),
)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, [trap.test for trap in TRAPS])
