"""As `test_traps.py`, for conversations: what a question leans on, and what is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full.trap_support import Trap, check, check_unspoilt

pytestmark = pytest.mark.full

COMPARING, LEANING = "semantic/context/comparing.py", "semantic/context/leaning.py"
TURNS, KEYS, CONVERSATIONS = "semantic/context/turns.py", "keys.py", "semantic/conversations.py"
CASE = "tests/semantic/test_context.py::test_a_conversation_serves_another_where_what_matters_is_the_same"
STACK = "tests/core/test_conversations.py::"
STORIES = STACK + "test_the_same_question_after_two_stories_never_hits"
FIRST = STACK + "test_the_first_message_counts_too"
POISON = STACK + "test_an_answer_under_an_instruction_is_not_for_others"
WALLS = STACK + "test_other_tenants_users_roles_and_system_prompts_stay_walls"
UNKNOWN = STACK + "test_an_entry_that_does_not_say_what_it_leaned_on_serves_its_own_history_alone"
CHATTER = STACK + "test_chatter_and_other_topics_do_not_prevent_a_hit"
OLDER = "tests/semantic/test_context.py::test_what_is_too_old_to_be_read_for_facts_counts_as_a_whole"

PASSAGE, UNREAD = "a text, and other words in the question", "a history that is not read"
NUMBER, BACK = "another number, told otherwise", "another question back"


def case(name: str, file: str, fix: str, fault: str, of: str) -> Trap:
    return Trap(name, file, fix, fault, f"{CASE}[{of}]")


TRAPS = (
    # 19: only the last message used
    Trap("the last message alone compared", COMPARING, "    if not leans:\n", "    if True:\n", STORIES),
    Trap(
        "what is refused served all the same",
        CONVERSATIONS,
        "        if meeting.same:\n",
        "        if True:\n",
        STORIES,
    ),
    Trap(
        "the first message ignored",
        TURNS,
        "for m in messages[:-1] if m.role not in",
        "for m in messages[2:-1] if m.role not in",
        FIRST,
    ),
    Trap("only the last exchange kept", TURNS, "tuple(reversed(exchanges))", "tuple(exchanges[:1])", FIRST),
    Trap("what is too old to be read forgotten", COMPARING, "    if a.older != b.older:\n", "    if False:\n", OLDER),
    Trap(
        "an entry that says nothing of its history served",
        CONVERSATIONS,
        "return loads(text) if text else None",
        "return (loads(text) if text else None) or NOTHING_BEFORE",
        UNKNOWN,
    ),
    Trap(
        "the system prompt missing from the group",
        KEYS,
        'replace(self, history=_digest_of_none(b"history"))',
        'replace(self, history=_digest_of_none(b"history"), system="")',
        "tests/core/test_conversations.py::test_without_a_history_the_group_is_the_contract_itself",
    ),
    # 98% wrong: what a last message leans on
    case("an answer without its question", COMPARING, "if answers and not", "if False and not", BACK),
    case("a text given before", COMPARING, "    if a.passages != b.passages:\n", "    if False:\n", PASSAGE),
    case("what an asker is", COMPARING, "    if one_sided:\n", "    if False:\n", "a plan on one side"),
    case("whose it is", COMPARING, "    if a == b:\n", "    if True:\n", "mine"),
    case("a number against another", COMPARING, "        if left and right:\n", "        if False:\n", NUMBER),
    case("a thing taken for known", LEANING, "<= RICH and takes_for_known:", "<= RICH and False:", "la garantie"),
    case("what was spoken of before", COMPARING, ">= enough:\n", ">= 1e9:\n", "spoken of before"),
    case("a sentence that goes on", LEANING, "if first in _THEREFORE or", "if False and", "therefore"),
    case("who did what to whom", TURNS, '" ".join(order)', '" ".join(sorted(order))', "who did it"),
    case("what is said on one side", COMPARING, "if is_last or not others or", "if False and", "remboursement ou rien"),
    # poison
    Trap("instructions left out", COMPARING, "    if a.standing != b.standing:\n", "    if False:\n", POISON),
    case("a language that is not read", COMPARING, "    if a.is_unread or b.is_unread:\n", "    if False:\n", UNREAD),
    case("a planted fact", COMPARING, "_weight(_spoken_of(turn, claims)) >= TOUCHES", "False", "claimed before"),
    # and the other way: hits that chatter prevents
    Trap(
        "chatter taken for a story", TURNS, "    if not exchange.facts:\n        return True\n", "    return False\n",
        CHATTER,
    ),
)  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_test_of_a_trap_fails_when_its_fix_is_taken_out(copy: Path, trap: Trap) -> None:
    check(copy, trap)


def test_the_tests_pass_on_the_copy_as_it_is(copy: Path) -> None:
    check_unspoilt(copy, [trap.test for trap in TRAPS])
