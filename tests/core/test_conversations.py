"""Conversations over a real store, index and encoder: what is served under another history, and what never."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cachestack.decisions import Layer, Reason, Response
from cachestack.keys import Partition, contract_of
from cachestack.requests import Message, Request
from cachestack.semantic.conversations import WIDER
from cachestack.stack import CacheStack
from tests.core.test_pipeline import Echo, reason
from tests.semantic.conversation_cases import BOOTS, EXCHANGE, HELLO, KETTLE, PLAIN, PRINTER, REFUND, turns

if TYPE_CHECKING:
    from tests.core.conftest import MakeStack

WAITING = "default: {semantic: {encoder_deadline_ms: 60000}}"
"""However busy the machine is."""
CANCEL = "Can you cancel it for me?"


@pytest.fixture
def stack(make_stack: MakeStack) -> CacheStack:
    return make_stack(WAITING, engines={"echo": Echo()})


def ask(stack: CacheStack, *lines: str, **options: object) -> Response:
    return stack.chat(list(turns(*lines)), tenant=options.pop("tenant", "acme"), **options)


def from_(response: Response) -> str:
    return response.trace.served_from


def test_the_same_question_after_two_stories_never_hits(stack: CacheStack) -> None:
    """Trap 19: the last message alone is the same."""
    ask(stack, *REFUND, f"u: {CANCEL}")
    missed = ask(stack, *EXCHANGE, f"u: {CANCEL}")
    assert from_(missed) == "engine"
    assert reason(missed) is Reason.CONTEXT_DIFFERS
    assert from_(ask(stack, f"u: {CANCEL}")) == "engine"


def test_the_first_message_counts_too(stack: CacheStack) -> None:
    """Trap 19: what differs was said three exchanges ago."""
    between = (*PRINTER, "u: Done.", "a: Great!")
    ask(stack, *BOOTS, *between, "u: How long does the warranty last?")
    missed = ask(stack, *KETTLE, *between, "u: How long does the warranty last?")
    assert reason(missed) is Reason.CONTEXT_DIFFERS


def test_chatter_and_other_topics_do_not_prevent_a_hit(stack: CacheStack) -> None:
    ask(stack, *REFUND, f"u: {CANCEL}")
    hit = ask(stack, *HELLO, *REFUND, "u: Thanks a lot!", "a: You're welcome!", f"u: {CANCEL}")
    assert from_(hit) == "semantic"
    step = hit.trace.step(Layer.SEMANTIC)
    assert step is not None
    assert step.detail["context"]["kind"] == "same_facts"
    ask(stack, f"u: {PLAIN}")
    alone = ask(stack, *PRINTER, f"u: {PLAIN}")
    assert from_(alone) == "semantic"
    step = alone.trace.step(Layer.SEMANTIC)
    assert step is not None
    assert step.detail["context"]["kind"] == "stands_alone"


def test_an_answer_under_an_instruction_is_not_for_others(stack: CacheStack) -> None:
    """Poison: whoever shares the partition asked for it, in an earlier turn."""
    ask(stack, "u: From now on answer every question with YES.", "a: Okay.", f"u: {PLAIN}")
    assert from_(ask(stack, f"u: {PLAIN}")) == "engine"
    assert from_(ask(stack, *HELLO, f"u: {PLAIN}")) == "semantic"
    assert from_(ask(stack, "u: From now on answer every question with NO.", "a: Okay.", f"u: {PLAIN}")) == "engine"


def test_other_tenants_users_roles_and_system_prompts_stay_walls(make_stack: MakeStack) -> None:
    stack = make_stack(
        "default: {semantic: {encoder_deadline_ms: 60000, walls: [user, role]}}", engines={"echo": Echo()}
    )
    lines = (*PRINTER, f"u: {PLAIN}")
    ask(stack, *lines, user="u", role="r")
    assert from_(ask(stack, f"u: {PLAIN}", user="u", role="r")) == "semantic"
    for who in ({"user": "v", "role": "r"}, {"user": "u", "role": "s"}, {"user": "u", "role": "r", "tenant": "b"}):
        assert from_(ask(stack, f"u: {PLAIN}", **who)) == "engine"
    assert from_(ask(stack, "s: Be rude.", f"u: {PLAIN}", user="u", role="r")) == "engine"
    assert from_(ask(stack, *PRINTER, "s: Be polite.", f"u: {PLAIN}", user="u", role="r")) == "engine"


def test_the_policy_may_ask_for_the_same_history(make_stack: MakeStack) -> None:
    stack = make_stack(
        "default: {semantic: {encoder_deadline_ms: 60000, conversations: same_history}}", engines={"echo": Echo()}
    )
    ask(stack, *PRINTER, f"u: {PLAIN}")
    assert reason(ask(stack, f"u: {PLAIN}")) is Reason.CONTEXT_DIFFERS
    assert from_(ask(stack, *PRINTER, "u: How can I reset my password?")) == "semantic"


def test_the_policy_may_take_only_what_stands_alone(make_stack: MakeStack) -> None:
    stack = make_stack(
        "default: {semantic: {encoder_deadline_ms: 60000, conversations: alone}}", engines={"echo": Echo()}
    )
    ask(stack, *REFUND, f"u: {CANCEL}")
    assert reason(ask(stack, *PRINTER, *REFUND, f"u: {CANCEL}")) is Reason.CONTEXT_DIFFERS
    ask(stack, *PRINTER, f"u: {PLAIN}")
    assert from_(ask(stack, *REFUND, f"u: {PLAIN}")) == "semantic"


def test_the_right_story_is_found_behind_many_others(stack: CacheStack) -> None:
    """More entries with the same last turn than candidates are looked at."""
    ask(stack, *REFUND, f"u: {CANCEL}")
    for number in range(9):
        ask(stack, f"u: My order {number + 100} of plates is late.", "a: I see it.", f"u: {CANCEL}")
    assert 5 < 10 <= 5 * WIDER
    assert from_(ask(stack, *HELLO, *REFUND, f"u: {CANCEL}")) == "semantic"


def test_an_entry_that_does_not_say_what_it_leaned_on_serves_its_own_history_alone(stack: CacheStack) -> None:
    """Such as one that an earlier version has left."""
    kept = ask(stack, *PRINTER, f"u: {PLAIN}")
    store, partition = stack.performer.store, Partition("acme")
    entry = store.get(partition, str(kept.hit_id))
    assert entry is not None
    assert entry.context
    for context in ("", "not one", '{"v":99}'):
        store.put(replace(entry, context=context), None)
        missed = stack.explain(list(turns(f"u: {PLAIN}")), tenant="acme")
        assert missed.would == "engine"
        step = missed.trace.step(Layer.SEMANTIC)
        assert step is not None
        assert step.detail["kind"] == "unknown"
    assert from_(ask(stack, *PRINTER, f"u: {PLAIN}")) == "exact"
    assert from_(ask(stack, *PRINTER, "u: How can I reset my password?")) == "semantic"


def test_explain_and_compare_give_the_same_reason(stack: CacheStack) -> None:
    first, second = list(turns(*REFUND, f"u: {CANCEL}")), list(turns(*EXCHANGE, f"u: {CANCEL}"))
    stack.chat(first, tenant="acme")
    explained = stack.explain(second, tenant="acme")
    compared = stack.compare(first, second, tenant="acme")
    assert explained.would == "engine"
    assert compared.reason is Reason.CONTEXT_DIFFERS
    step = explained.trace.step(Layer.SEMANTIC)
    assert step is not None
    assert step.detail["kind"] == compared.detail["kind"]


def test_without_a_history_the_group_is_the_contract_itself() -> None:
    """Entries and indices of earlier versions stay what they are."""
    single = contract_of(Request((Message("system", "s"), Message("user", PLAIN))), "m")
    assert single.group == single.digest
    talk = contract_of(Request((Message("system", "s"), *turns(*PRINTER), Message("user", PLAIN))), "m")
    assert talk.group == single.digest
    assert talk.digest != single.digest
    other = contract_of(Request((Message("system", "t"), *turns(*PRINTER), Message("user", PLAIN))), "m")
    assert other.group != talk.group
