"""A stack under a budget: what is served, audits behind the answer, reports, shadow, suspension."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cachestack.aio import AsyncCacheStack
from cachestack.decisions import Layer, Reason, Response
from cachestack.integrations.aside import Aside
from cachestack.requests import Generation, Request, Usage
from cachestack.semantic.budget import machine
from cachestack.semantic.budget.budgets import same_when_normalised
from cachestack.semantic.budget.state import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from cachestack.stack import CacheStack
    from tests.core.conftest import MakeStack

FIRST, AGAIN = "How do I reset my password?", "How can I reset my password?"
PRICED = (
    "default: {{budget: {{max_wrong_hit_rate: 0.05, audit_share: {share}, {more}}}, "
    "prices: {{input_per_million: 1e6}}}}"
)


def policy(share: float = 1.0, more: str = "min_audits: 1") -> str:
    return PRICED.format(share=share, more=more)


class Engine:
    """Answers what it is told to; waits at a gate where there is one."""

    name = model = "engine"

    def __init__(self) -> None:
        self.answer: Callable[[str], str] = lambda _: "the answer"
        self.calls: list[str] = []
        self.gate: threading.Event | None = None
        self.arrived = threading.Event()

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.calls.append(request.question)
        if self.gate is not None:
            self.arrived.set()
            assert self.gate.wait(30)
        text = self.answer(request.question)
        yield text
        return Generation(text, usage=Usage(10, 0, 0))


def compared(stack: CacheStack) -> None:
    """Answers compared by normalised text, others are different."""
    stack.budgets.compare = lambda x, y, _: x == y


def ask(stack: CacheStack, question: str, **options: Any) -> Response:
    return stack.chat(question, tenant="acme", **options)


def made(make_stack: MakeStack, text: str) -> tuple[CacheStack, Engine]:
    engine = Engine()
    stack = make_stack(text, engines={"e": engine})
    compared(stack)
    return stack, engine


def always(stack: CacheStack) -> None:
    stack.budgets._draw = lambda: 0.0


def never(stack: CacheStack) -> None:
    stack.budgets._draw = lambda: 1.0


def state(stack: CacheStack) -> Any:
    assert stack.budgets.wait(30)
    return stack.budgets._of("acme").state("en")


def test_a_hit_says_the_state_and_the_threshold_in_force(make_stack: MakeStack) -> None:
    stack, _ = made(make_stack, policy())
    ask(stack, FIRST)
    step = ask(stack, AGAIN).trace.step(Layer.SEMANTIC)
    assert step is not None
    assert step.reason is Reason.VALIDATED
    assert step.detail["budget"] == {"state": "serving", "threshold": 0.9}
    assert stack.stats().budgets["acme"]["en"].hits == 1


def test_an_audit_runs_after_the_answer_and_delays_nobody(make_stack: MakeStack) -> None:
    stack, engine = made(make_stack, policy())
    always(stack)
    ask(stack, FIRST)
    engine.gate = threading.Event()
    assert ask(stack, AGAIN).text == "the answer"  # the engine stands still, and the answer is here
    assert engine.arrived.wait(30)
    assert ask(stack, AGAIN).text == "the answer", "an audit under way holds nothing up"
    engine.gate.set()
    assert state(stack).audits == 1
    assert engine.calls == [FIRST, AGAIN], "one audit of a pair at a time"
    assert stack.stats().by_tenant["acme"].audits == 1


def test_a_pair_that_an_audit_found_wrong_never_hits_again_and_a_right_one_is_not_audited_twice(
    make_stack: MakeStack,
) -> None:
    stack, engine = made(make_stack, policy())
    always(stack)
    ask(stack, FIRST)
    for _ in range(3):
        ask(stack, AGAIN)
        assert stack.budgets.wait(30)
    assert engine.calls == [FIRST, AGAIN], "it is known to be right"
    engine.answer = lambda question: question
    ask(stack, "Where can I park my car?")
    hit = ask(stack, "Where can I park the car?")
    if hit.trace.served_from == "semantic":
        assert stack.budgets.wait(30)
        assert ask(stack, "Where can I park the car?").text == "Where can I park the car?"


def test_closing_during_an_audit_waits_for_its_end_and_drops_the_others(make_stack: MakeStack) -> None:
    stack, engine = made(make_stack, policy())
    always(stack)
    ask(stack, FIRST)
    engine.gate = threading.Event()
    ask(stack, AGAIN)
    assert engine.arrived.wait(30)
    closing = threading.Thread(target=stack.close)
    closing.start()
    engine.gate.set()
    closing.join(30)
    assert not closing.is_alive()


def test_what_audits_cost_is_no_hits_cost(make_stack: MakeStack) -> None:
    """A hit saves what it would have cost; an audit's price is the tenant's spending, and nobody's request."""
    stack, _ = made(make_stack, policy())
    always(stack)
    ask(stack, FIRST)
    ask(stack, AGAIN)
    assert stack.budgets.wait(30)
    stats = stack.stats().by_tenant["acme"]
    assert (stats.requests, stats.engine_calls, stats.audits) == (2, 1, 1)
    assert stats.audit_cost == pytest.approx(10.0)
    assert stats.cost == pytest.approx(20.0)
    assert stats.cost_saved == pytest.approx(10.0)


@pytest.mark.parametrize("more", ["max_audits_per_hour: 0", "audit_spend_per_day: 0"])
def test_limits_of_audits(make_stack: MakeStack, more: str) -> None:
    stack, engine = made(make_stack, policy(more=more))
    always(stack)
    ask(stack, FIRST)
    for _ in range(4):
        ask(stack, AGAIN)
    assert stack.budgets.wait(30)
    assert engine.calls == [FIRST]
    assert state(stack).unwatched == 4


def test_an_audit_whose_engine_fails_proves_nothing(make_stack: MakeStack) -> None:
    stack, engine = made(make_stack, policy())
    always(stack)
    ask(stack, FIRST)

    def fails(question: str) -> str:
        raise RuntimeError("down")

    engine.answer = fails
    assert ask(stack, AGAIN).text == "the answer"
    found = state(stack)
    assert (found.audits, found.audits_unknown, found.audits_wrong) == (1, 1, 0)
    assert sum(found.audit_num) == 0


def test_a_comparison_that_fails_or_cannot_tell_does_not_pass_for_same(make_stack: MakeStack) -> None:
    """A judge that fails open would loosen the threshold."""
    stack, engine = made(make_stack, policy())
    always(stack)
    ask(stack, FIRST)
    engine.answer = lambda _: "quite other words"

    def broken(x: str, y: str, question: str) -> bool:
        raise RuntimeError("the judge is down")

    for compare in (broken, same_when_normalised):
        stack.budgets.compare = compare
        ask(stack, AGAIN)
        assert stack.budgets.wait(30)
    found = state(stack)
    assert found.audits_unknown == found.audits == 2
    assert sum(found.audit_num) == 0
    assert not machine.may_loosen(found, stack.policies.policy("acme").budget)


def test_a_reported_pair_never_hits_again_not_even_in_another_process(make_stack: MakeStack, tmp_path: Path) -> None:
    stack, engine = made(make_stack, policy())
    never(stack)
    ask(stack, FIRST)
    hit = ask(stack, AGAIN)
    assert hit.trace.served_from == "semantic"
    assert not stack.report_wrong(hit.trace.request_id, tenant="other"), "another tenant's report is nobody's"
    assert stack.report_wrong(hit.trace.request_id, tenant="acme")
    engine.answer = lambda _: "another answer"
    assert ask(stack, AGAIN).trace.served_from == "engine"
    assert ask(stack, AGAIN).text == "another answer", "from now on it has an answer of its own"
    assert ask(stack, FIRST).text == "the answer", "others are still served by the entry"
    assert stack.stats().by_tenant["acme"].wrong_hit_reports == 1


def test_the_entry_of_a_reported_hit_can_be_removed(make_stack: MakeStack) -> None:
    stack, _ = made(make_stack, policy())
    never(stack)
    ask(stack, FIRST)
    hit = ask(stack, AGAIN)
    assert stack.report_wrong(hit.trace.request_id, tenant="acme", remove=True)
    assert ask(stack, FIRST).trace.served_from == "engine"


def test_an_exact_repeat_is_reported_by_its_entry_and_an_unknown_id_is_told(make_stack: MakeStack) -> None:
    stack, _ = made(make_stack, policy())
    first = ask(stack, FIRST)
    assert stack.report_wrong(first.hit_id or "", tenant="acme")
    assert ask(stack, FIRST).trace.served_from == "engine"
    assert not stack.report_wrong("nobody", tenant="acme")
    assert not stack.report_right("nobody", tenant="acme")


def test_reports_that_it_was_right_count_and_loosen_nothing(make_stack: MakeStack) -> None:
    stack, _ = made(make_stack, policy())
    never(stack)
    ask(stack, FIRST)
    hit = ask(stack, AGAIN)
    before = state(stack).level
    assert stack.report_right(hit.trace.request_id, tenant="acme")
    assert (state(stack).reported_right, state(stack).level) == (1, before)


def test_shadow_serves_nothing_by_meaning_and_counts_what_it_would_have(make_stack: MakeStack) -> None:
    stack, _ = made(make_stack, policy(more="mode: shadow"))
    ask(stack, FIRST)
    shadowed = ask(stack, AGAIN)
    step = shadowed.trace.step(Layer.SEMANTIC)
    assert step is not None
    assert (shadowed.trace.served_from, step.reason) == ("engine", Reason.SHADOW)
    assert ask(stack, AGAIN).trace.served_from == "exact"
    assert stack.budgets.wait(30)
    report = stack.stats().budgets["acme"]["en"]
    assert (report.state, report.hits, report.compared) == ("shadow", 0, 1)
    assert [row.shadow_hits for row in report.thresholds if row.threshold in (0.4, 0.9)] == [1, 1]


def test_suspended_is_exact_only(make_stack: MakeStack) -> None:
    stack, _ = made(make_stack, policy())
    never(stack)
    ask(stack, FIRST)
    assert ask(stack, AGAIN).trace.served_from == "semantic"
    tenant = stack.budgets._of("acme")
    budget = stack.policies.policy("acme").budget
    for _ in range(200):
        tenant.step("en", partial(machine.audited, score=0.99, wrong=True, probability=1.0, policy=budget, now_s=0.0))
    assert tenant.state("en").mode is Mode.SUSPENDED
    missed = ask(stack, AGAIN)
    assert missed.trace.served_from == "engine"
    assert ask(stack, FIRST).trace.served_from == "exact"


def test_a_pair_served_often_and_never_compared_is_asked_of_the_engine(make_stack: MakeStack) -> None:
    stack, engine = made(make_stack, policy())
    never(stack)
    stack.budgets.ask = None
    ask(stack, FIRST)
    served = [ask(stack, AGAIN).trace.served_from for _ in range(8)]
    assert served == ["semantic"] * 6 + ["engine", "exact"]
    assert engine.calls == [FIRST, AGAIN]
    assert state(stack).free == 1


def test_without_a_budget_nothing_of_it_is_touched(make_stack: MakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack, _ = made(make_stack, "")

    def touched(*_: object) -> None:
        raise AssertionError("no budget is kept")

    for name in ("consult", "served", "missed"):
        monkeypatch.setattr(stack.budgets, name, touched)
    ask(stack, FIRST)
    assert ask(stack, AGAIN).trace.served_from == "semantic"
    assert stack.stats().budgets == {}


def test_a_budget_that_cannot_be_asked_serves_nothing_by_meaning(
    make_stack: MakeStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, _ = made(make_stack, policy())
    ask(stack, FIRST)

    def fails(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(stack.budgets, "_of", fails)
    assert ask(stack, AGAIN).trace.served_from == "engine"
    monkeypatch.undo()


def test_async_stacks_audit_behind_the_answer_too(make_stack: MakeStack) -> None:
    stack, _ = made(make_stack, policy())
    always(stack)
    gate, calls = threading.Event(), []

    async def run() -> str:
        both = AsyncCacheStack(stack)

        @both.wrap(tenant="acme", model="m")  # type: ignore[untyped-decorator]
        async def answer(prompt: str) -> str:
            calls.append(prompt)
            if prompt == AGAIN:
                await asyncio.get_running_loop().run_in_executor(None, gate.wait, 30)
            return "the answer"

        await answer(FIRST)
        return str(await answer(AGAIN))

    assert asyncio.run(run()) == "the answer"
    gate.set()
    assert state(stack).audits == 1
    assert calls == [FIRST, AGAIN]


def test_changes_are_logged_and_observed(make_stack: MakeStack, caplog: pytest.LogCaptureFixture) -> None:
    stack, _ = made(make_stack, policy())
    seen: list[Any] = []
    stack.budgets.observe(seen.append)
    with caplog.at_level("INFO", logger="cachestack"):
        ask(stack, FIRST)
    assert [(c.before.mode, c.after.mode, c.tenant, c.of_class) for c in seen] == [
        (Mode.OFF, Mode.SERVING, "acme", "en")
    ]
    assert "error budget of tenant 'acme', class en: serving" in caplog.text


def test_a_policy_without_a_first_verifier_that_scores_is_refused(make_stack: MakeStack) -> None:
    with pytest.raises(Exception, match="verifiers must begin with local"):
        make_stack("default: {semantic: {verifiers: []}, budget: {max_wrong_hit_rate: 0.01}}").policies.policy("x")


def test_two_hits_of_a_pair_that_share_an_audit_are_both_valued_by_it(make_stack: MakeStack) -> None:
    stack, engine = made(make_stack, policy())
    always(stack)
    ask(stack, FIRST)
    engine.gate, engine.answer = threading.Event(), lambda _: "another answer"
    for _ in range(3):
        ask(stack, AGAIN)
    engine.gate.set()
    seen = state(stack).seen
    assert sum(seen.values()) == 3
    assert 0.0 not in seen, "all three were wrong"


def test_what_has_no_engine_to_ask_is_not_audited(make_stack: MakeStack) -> None:
    stack, _ = made(make_stack, policy())
    always(stack)
    beside = Aside(stack, "library", tenant="acme")
    first, again = (beside.request(question, {}, by_meaning=True) for question in (FIRST, AGAIN))
    beside.keep(first, Generation("the answer"))
    for _ in range(2):
        assert beside.find(again) == "the answer"
    assert state(stack).audits == 0


def test_an_engine_that_says_nothing_finds_nothing_wrong(make_stack: MakeStack) -> None:
    stack, engine = made(make_stack, policy())
    always(stack)
    ask(stack, FIRST)
    engine.answer = lambda _: " "
    for _ in range(2):
        assert ask(stack, AGAIN).trace.served_from == "semantic"
        assert state(stack).audits_wrong == 0
