"""As `test_traps.py`, for comparing answers: each way to call a wrong hit right, put back in, must fail its test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

COMPARE, JUDGING = "tests/answers/test_compare.py", "tests/answers/test_judging.py"
DIFFERENT, UNKNOWN = f"{COMPARE}::test_different", f"{COMPARE}::test_not_known"

CONTRADICTION, COMPARING = "answers/contradiction.py", "answers/comparing.py"

TRAPS = (
    # 24: a judge that fails open
    Trap(
        "a judge that fails has agreed",
        "answers/comparing.py",
        'return Sameness(None, "judge", found.score, {**found.evidence, "judge": f"{type',
        'return Sameness(True, "judge", found.score, {**found.evidence, "judge": f"{type',
        f"{JUDGING}::test_one_that_fails_has_not_agreed",
    ),
    Trap(
        "a judge that is late has agreed",
        "answers/bounded.py",
        'raise TimeoutError(f"no answer within {self._deadline_s:g} s") from None',
        "return True  # type: ignore[return-value]",
        f"{JUDGING}::test_one_that_hangs_has_not_agreed_and_is_not_asked_again_meanwhile",
    ),
    Trap(
        "a judge that speaks unclearly has agreed",
        "answers/judging.py",
        "_WORD.fullmatch(reply)",
        "_WORD.match(reply)",
        f"{JUDGING}::test_what_is_not_clear_is_not_known",
    ),
    Trap(
        "a judge's first word is enough",
        "answers/judging.py",
        "return first if self._ask(question, y, x, until_s) is first else None",
        "return first",
        f"{JUDGING}::test_it_is_asked_in_both_orders_and_must_not_contradict_itself",
    ),
    Trap(
        "what is no truth value is taken for one",
        "answers/comparing.py",
        "if said is not True and said is not False:",
        "if said is None:",
        f"{JUDGING}::test_a_judge_that_gives_something_else_than_a_truth_value_has_said_nothing",
    ),
    # three outcomes read as two
    Trap(
        "not known passes for different",
        "answers/sameness.py",
        "        raise TypeError(",
        "        return self.same is True  # type: ignore[misc]\n        raise TypeError(",
        f"{COMPARE}::test_truth_misleads_nobody",
    ),
    # a failure that says "same"
    Trap(
        "an answer that cannot be read is the same",
        "answers/comparing.py",
        'found = Sameness(None, "meaning", 0.5, {"unknown": f"{type(failure).__name__}: {failure}"})',
        "raise",
        f"{COMPARE}::test_what_cannot_be_read_is_not_known",
    ),
    # evidence that is not looked at
    Trap(
        "the question's words are news",
        "answers/meaning.py",
        '    elif not _is_news(found, question):\n        evidence |= {"unknown": "only the question\'s words"}\n',
        "",
        UNKNOWN,
    ),
    Trap("numbers", CONTRADICTION, "[*_numbers(found, question), *", "[*", DIFFERENT),
    Trap("code", CONTRADICTION, ", *_code(found)]", "]", DIFFERENT),
    Trap("names", CONTRADICTION, "        done += other_names(pair, facts)\n", "", DIFFERENT),
    Trap("negation", CONTRADICTION, "            done += negation(pair)\n", "            pass\n", DIFFERENT),
    Trap("replaced words", CONTRADICTION, "        done += replaced(pair, facts)\n", "", UNKNOWN),
    Trap("conditions", CONTRADICTION, "        done += limited(pair)\n", "", UNKNOWN),
    Trap("refusals", COMPARING, "if refusals[0] != refusals[1]:", "if False:", DIFFERENT),
    Trap("the order of steps", COMPARING, "if order is True:", "if False:", DIFFERENT),
    Trap("true is 1", "answers/structured.py", "if isinstance(a, bool) or isinstance(b, bool) or a", "if a", DIFFERENT),
)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, [trap.test for trap in TRAPS])
