"""Layers together: what one of them keeps for somebody alone, or has found wrong, holds in all others."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from cachestack.asking import build_request
from cachestack.entries import Selector
from cachestack.keys import Partition
from cachestack.policy_set import PolicySet
from cachestack.requests import Generation, Request
from cachestack.stores.base import TAKEN

if TYPE_CHECKING:
    from tests.core.conftest import MakeStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
MAIL, MAIL_REWORDED = "Which e-mail address do you have on file?", "Which e-mail address have you got on file?"
ORDER = "Where is my order?"
BUDGET = "budget: {max_wrong_hit_rate: 0.05, audit_share: 1.0}"
CONFIRMED = "admission: {confirmations: 1}"
NO_FRESHNESS = "default: {freshness: {enabled: false}}"


class Scripted:
    """Says what the test wants."""

    name = model = "scripted"

    def __init__(self) -> None:
        self.text = "Open the settings and choose Security."

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield self.text
        return Generation(self.text)


@pytest.fixture
def engine() -> Scripted:
    return Scripted()


def served_from(stack: Any, question: str, user: str | None) -> str:
    return stack.chat(question, tenant="t", user=user).trace.served_from


# What was reported wrong, in a user's own scope and in what all share


def test_a_hit_in_a_users_own_scope_that_was_reported_is_denied_there(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(f"default: {{{BUDGET}}}", engines={"e": engine})
    stack.budgets._draw = lambda: 1.0
    engine.text = "We have jane.doe@gmail.com on file."
    stack.chat(MAIL, tenant="t", user="jane")
    hit = stack.chat(MAIL_REWORDED, tenant="t", user="jane")
    assert hit.trace.served_from == "semantic"
    assert stack.report_wrong(hit.trace.request_id, tenant="t")
    assert stack.explain(MAIL_REWORDED, tenant="t", user="jane").would == "engine"


def test_what_was_reported_in_ones_own_scope_stays_denied_when_it_is_confirmed(
    make_stack: MakeStack, engine: Scripted
) -> None:
    stack = make_stack(f"default: {{{BUDGET}, {CONFIRMED}}}", engines={"e": engine})
    stack.budgets._draw = lambda: 1.0
    stack.chat(QUESTION, tenant="t", user="ana")
    hit = stack.chat(REWORDED, tenant="t", user="ana")
    assert hit.trace.served_from == "semantic"
    assert stack.report_wrong(hit.trace.request_id, tenant="t")
    stack.chat(QUESTION, tenant="t", user="bob")
    assert served_from(stack, QUESTION, "cleo") == "exact", "it is confirmed"
    assert stack.explain(REWORDED, tenant="t", user="ana").would == "engine"


# One's own state, whatever the policy was or is


@pytest.mark.parametrize(("then", "now"), [("", NO_FRESHNESS), (NO_FRESHNESS, "")])
def test_ones_own_state_stays_ones_own_when_the_policy_changes(
    make_stack: MakeStack, engine: Scripted, then: str, now: str
) -> None:
    stack = make_stack(then, engines={"e": engine})
    engine.text = "It is on its way."
    stack.chat(ORDER, tenant="t", user="jane")
    stack.policies = PolicySet.parse(now, "test policy")
    assert stack.explain(ORDER, tenant="t", user="jane").would == "exact"
    for question in (ORDER, "Where's my order?"):
        assert stack.explain(question, tenant="t", user="bob").would == "engine", question


# Who nobody is


def test_an_empty_user_is_nobody_and_has_no_scope_that_others_without_a_name_share(
    make_stack: MakeStack, engine: Scripted
) -> None:
    stack = make_stack(engines={"e": engine})
    engine.text = "We have jane.doe@gmail.com on file."
    assert stack.chat(MAIL, tenant="t", user="").hit_id is None
    assert served_from(stack, MAIL, "") == "engine"
    confirming = make_stack(f"default: {{{CONFIRMED}}}", engines={"e": engine})
    engine.text = "Open the settings and choose Security."
    assert confirming.chat(QUESTION, tenant="t", user="").hit_id is None
    assert build_request("x", user="", role="") == build_request("x")


# Removing a user


def test_removing_a_user_leaves_neither_the_question_nor_the_name_among_the_claims(
    make_stack: MakeStack, engine: Scripted
) -> None:
    stack = make_stack(f"default: {{{CONFIRMED}}}", engines={"e": engine})
    stack.chat(QUESTION, tenant="t", user="ana")
    stack.invalidate(tenant="t", user="ana")
    assert list(stack.performer.store.select(Selector(tenant="t"))) == []
    for user in ("ana", "bob"):
        stack.chat(QUESTION, tenant="t", user=user)
    assert served_from(stack, QUESTION, "cleo") == "exact"
    stack.invalidate(tenant="t", user="ana")
    assert "'ana'" not in str(list(stack.performer.store.select(Selector(tenant="t"))))
    assert served_from(stack, QUESTION, "cleo") == "engine", "whom it was confirmed by is not known any more"


# Comparing says what asking would do


@pytest.mark.parametrize("question", [ORDER, "Is jane.doe@gmail.com my address?"])
def test_compare_knows_whose_an_answer_would_be(make_stack: MakeStack, engine: Scripted, question: str) -> None:
    stack = make_stack(engines={"e": engine})
    ana, bob = (build_request(question, user=user) for user in ("ana", "bob"))
    assert stack.compare(ana, ana).serves
    assert not stack.compare(ana, bob).serves
    confirming = make_stack(f"default: {{{CONFIRMED}}}", engines={"e": engine})
    ana, bob = (build_request(QUESTION, user=user) for user in ("ana", "bob"))
    assert stack.compare(ana, bob).serves
    assert confirming.compare(ana, ana).serves
    assert not confirming.compare(ana, bob).serves


# One process at a question, the others wait: only for what may serve them


class Claims:
    """Of a store that several processes share: each question is being answered by another one, or is claimed."""

    def __init__(self, *, taken: bool) -> None:
        self.taken, self.asked = taken, 0
        self.ends: list[bool] = []

    def __call__(self, partition: Partition, exact: str) -> Any:
        self.asked += 1
        return TAKEN if self.taken else self

    def end(self, *, is_kept: bool) -> None:
        self.ends.append(is_kept)


@pytest.mark.parametrize("options", [{"max_age_s": 0.0}, {"prompt": ORDER}])
def test_nobody_waits_for_an_answer_that_would_not_serve_them(
    make_stack: MakeStack, engine: Scripted, options: dict[str, Any]
) -> None:
    stack = make_stack(engines={"e": engine})
    claims = Claims(taken=True)
    stack.performer._claiming = type("Claiming", (), {"claim": staticmethod(claims)})()
    assert stack.chat(**{"prompt": QUESTION, "user": "bob"} | options).trace.served_from == "engine"
    assert claims.asked == 0


@pytest.mark.parametrize(("text", "is_kept"), [("Choose Security.", True), ("It is jane.doe@gmail.com.", False)])
def test_who_waits_is_told_when_an_answer_was_kept_for_one_user_only(
    make_stack: MakeStack, engine: Scripted, text: str, *, is_kept: bool
) -> None:
    stack = make_stack(engines={"e": engine})
    claims, engine.text = Claims(taken=False), text
    stack.performer._claiming = type("Claiming", (), {"claim": staticmethod(claims)})()
    assert stack.chat(MAIL, user="jane").hit_id is not None
    assert claims.ends == [is_kept]
