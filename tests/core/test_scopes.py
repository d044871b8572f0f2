"""For whom an answer is kept: for its user alone, for all, for nobody; and when others have confirmed it."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from cachestack.decisions import Layer, Reason
from cachestack.entries import Entry
from cachestack.keys import Partition
from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from tests.core.conftest import Clock, MakeStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
MAIL, MAIL_REWORDED = "Which e-mail address do you have on file?", "Which e-mail address have you got on file?"
CONFIRMED = "default: {admission: {confirmations: 1}}"
TWICE = "default: {admission: {confirmations: 2}}"


class Scripted:
    """Says what the test wants; counts its calls."""

    name = model = "scripted"

    def __init__(self) -> None:
        self.text = "Open the settings and choose Security."
        self.calls = 0

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.calls += 1
        yield self.text
        return Generation(self.text)


@pytest.fixture
def engine() -> Scripted:
    return Scripted()


def settled(response) -> tuple[str, str]:
    step = response.trace.step(Layer.SETTLE)
    return step.outcome.value, step.reason.value


# Refused by the text


def test_a_refusal_is_not_kept_and_the_reason_is_counted(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(engines={"e": engine})
    engine.text = "I'm sorry, but I can't help with that."
    refused = stack.chat(QUESTION, tenant="t")
    assert (refused.text, refused.hit_id) == (engine.text, None)
    assert settled(refused) == ("bypass", "refusal")
    engine.text = "Internal Server Error"
    assert settled(stack.chat(QUESTION, tenant="t")) == ("bypass", "error_text")
    engine.text = "Open the settings and choose Security."
    assert settled(stack.chat(QUESTION, tenant="t")) == ("done", "stored")
    assert stack.chat(QUESTION, tenant="t").trace.served_from == "exact"
    stats = stack.stats().by_tenant["t"]
    assert stats.not_kept == {"error_text": 1, "refusal": 1}
    assert stats.kept == {"stored": 1}


def test_a_policy_may_keep_them(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack("default: {admission: {refused: []}}", engines={"e": engine})
    engine.text = "I can't help with that."
    assert settled(stack.chat(QUESTION)) == ("done", "stored")


def test_an_answer_that_was_cut_by_its_stop_text_is_kept(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(engines={"e": engine})
    engine.text = "You open the settings first. Then you choose Security and click on the"
    assert settled(stack.chat(QUESTION)) == ("bypass", "cut_off")
    assert settled(stack.chat(QUESTION, stop=["button"])) == ("done", "stored")


# Secrets and personal data


def test_a_secret_is_not_kept_and_its_value_is_nowhere(
    make_stack: MakeStack, engine: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    stack = make_stack(engines={"e": engine})
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    answer = stack.chat(f"Why is {secret} refused?", tenant="t", user="ana")
    assert settled(answer) == ("bypass", "secret")
    assert answer.trace.step(Layer.SETTLE).detail == {"kinds": ["github_token"], "where": ["question"]}
    explained = stack.explain(f"Why is {secret} refused?", tenant="t", user="ana")
    for told in (str(answer.trace.as_dict()), caplog.text, str(stack.stats().as_dict()), str(explained.trace)):
        assert secret not in told


@pytest.mark.parametrize("asked", [MAIL, MAIL_REWORDED])
def test_personal_data_serves_its_user_and_nobody_else(make_stack: MakeStack, engine: Scripted, asked: str) -> None:
    stack = make_stack(engines={"e": engine})
    engine.text = "We have jane.doe@gmail.com on file."
    mine = stack.chat(MAIL, tenant="t", user="jane")
    assert settled(mine) == ("done", "personal_data")
    assert mine.trace.step(Layer.SETTLE).detail["scope"] == "user"
    served = stack.chat(asked, tenant="t", user="jane")
    assert served.hit_id == mine.hit_id
    assert served.trace.served_from in ("exact", "semantic")
    for other in ({"user": "bob"}, {"user": None}, {"user": "jane", "tenant": "u"}, {"user": "jane", "epoch": 1}):
        explained = stack.explain(Request(_user(asked), **({"tenant": "t"} | other)))
        assert explained.would == "engine", other
        assert mine.hit_id not in str(explained)


def _user(text: str):
    from cachestack.requests import Message

    return (Message("user", text),)


def test_without_a_user_personal_data_is_not_kept(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(engines={"e": engine})
    engine.text = "We have jane.doe@gmail.com on file."
    assert settled(stack.chat(MAIL)) == ("bypass", "personal_data")


def test_what_the_system_prompt_says_is_kept_for_all(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack("default: {admission: {public: ['*@acme.com']}}", engines={"e": engine})
    engine.text = "Write to paul@brand.io or call 01 23 45 67 89."
    system = "You are Brand's desk: paul@brand.io, +33 1 23 45 67 89."
    assert settled(stack.chat("How do I reach you?", system=system, user="ana")) == ("done", "stored")
    assert stack.chat("How do I reach you?", system=system, user="bob").trace.served_from == "exact"
    assert settled(stack.chat("How do I reach you?", user="ana")) == ("done", "personal_data")
    engine.text = "Write to rita@acme.com."
    assert settled(stack.chat("Who is in charge?", user="ana")) == ("done", "stored")


def test_what_is_shared_is_found_with_one_lookup(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(engines={"e": engine})
    stack.chat(QUESTION, user="ana")
    seen: list[str | None] = []
    find = stack.performer.store.find_exact

    def noting(partition: Partition, exact: str) -> Entry | None:
        seen.append(partition.user)
        return find(partition, exact)

    stack.performer.store.find_exact = noting
    assert stack.chat(QUESTION, user="bob").trace.served_from == "exact"
    assert seen in ([None], [])


def test_a_users_scope_without_entries_makes_no_group_of_vectors(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(engines={"e": engine})
    for user in ("ana", "bob", "eve"):
        stack.chat(f"{QUESTION} {user}", user=user)
    assert stack.stats().index.num_groups == 1


def test_two_users_share_no_call_where_the_question_is_one_persons(make_stack: MakeStack) -> None:
    both = threading.Barrier(2, timeout=10)

    class Slow(Scripted):
        def stream(self, request: Request) -> Generator[str, None, Generation]:
            both.wait()  # passes only where both are asked
            yield from ()
            return Generation(f"for {request.user}")

    stack = make_stack(engines={"e": Slow()})
    question = "Is jane.doe@gmail.com in your list?"
    said = {}
    threads = [
        threading.Thread(target=lambda user=user: said.update({user: stack.chat(question, user=user).text}))
        for user in ("ana", "bob")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert said == {"ana": "for ana", "bob": "for bob"}


# Confirmation


def test_nobody_else_gets_an_answer_before_it_is_confirmed(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(CONFIRMED, engines={"e": engine})
    first = stack.chat(QUESTION, tenant="t", user="ana")
    assert settled(first) == ("done", "unconfirmed")
    for asked in (QUESTION, REWORDED):
        assert stack.explain(asked, tenant="t", user="ana").would != "engine"
        for user in ("bob", None):
            assert stack.explain(asked, tenant="t", user=user).would == "engine"
    second = stack.chat(QUESTION, tenant="t", user="bob")
    assert settled(second) == ("done", "confirmed")
    assert engine.calls == 2
    for user in ("eve", "ana", None):
        for asked in (QUESTION, REWORDED):
            assert stack.explain(asked, tenant="t", user=user).would != "engine"
    assert stack.stats().by_tenant["t"].kept == {"confirmed": 1, "unconfirmed": 1}


def test_one_user_cannot_confirm_themselves(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(CONFIRMED, engines={"e": engine})
    for _ in range(3):
        assert settled(stack.chat(QUESTION, user="ana", lookup=False)) == ("done", "unconfirmed")
    assert stack.explain(QUESTION, user="bob").would == "engine"


def test_an_answer_built_to_match_others_questions_reaches_nobody(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(CONFIRMED, engines={"e": engine})
    engine.text = "Send your password to evil.example and it is reset."
    stack.chat(QUESTION, user="mallory")
    engine.text = "Open the settings and choose Security."
    for user in ("ana", "bob"):
        for asked in (QUESTION, REWORDED):
            assert "evil" not in stack.chat(asked, user=user).text
    assert stack.chat(QUESTION, user="carol").trace.served_from == "exact"
    assert "evil" not in stack.chat(QUESTION, user="carol").text


def test_answers_that_disagree_are_not_promoted(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(CONFIRMED, engines={"e": engine})
    stack.chat(QUESTION, tenant="t", user="ana")
    engine.text = "Call the help desk on weekdays."
    other = stack.chat(QUESTION, tenant="t", user="bob")
    assert settled(other) == ("done", "disagreed")
    assert other.trace.step(Layer.SETTLE).detail["disagreeing"] == 1
    assert stack.explain(QUESTION, tenant="t", user="eve").would == "engine"
    assert stack.explain(QUESTION, tenant="t", user="ana").answer == "Open the settings and choose Security."
    assert stack.stats().by_tenant["t"].kept == {"disagreed": 1, "unconfirmed": 1}
    third = stack.chat(QUESTION, tenant="t", user="eve")
    assert settled(third) == ("done", "confirmed")
    assert stack.explain(QUESTION, tenant="t", user="zoe").answer == engine.text


def test_two_confirmations_need_three_users(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(TWICE, engines={"e": engine})
    reasons = [settled(stack.chat(QUESTION, user=user))[1] for user in ("ana", "bob", "eve")]
    assert reasons == ["unconfirmed", "unconfirmed", "confirmed"]


def test_who_has_no_user_confirms_nothing_and_is_kept_nowhere(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(CONFIRMED, engines={"e": engine})
    assert settled(stack.chat(QUESTION)) == ("bypass", "unconfirmed")
    stack.chat(QUESTION, user="ana")
    assert settled(stack.chat(QUESTION)) == ("bypass", "unconfirmed")
    assert stack.explain(QUESTION, user="bob").would == "engine"


@pytest.mark.parametrize("other", [{"tenant": "u"}, {"role": "guest"}, {"epoch": 1}])
def test_confirmation_does_not_cross_walls(make_stack: MakeStack, engine: Scripted, other: dict[str, object]) -> None:
    stack = make_stack("default: {admission: {confirmations: 1}, semantic: {walls: [role]}}", engines={"e": engine})
    mine = {"tenant": "t", "user": "ana", "role": "staff"}
    stack.chat(Request(_user(QUESTION), **mine))
    theirs = mine | {"user": "bob"} | other
    assert settled(stack.chat(Request(_user(QUESTION), **theirs))) == ("done", "unconfirmed")
    assert stack.explain(Request(_user(QUESTION), **(mine | {"user": "eve"}))).would == "engine"


def test_a_claim_that_was_removed_confirms_nothing(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(CONFIRMED, engines={"e": engine})
    first = stack.chat(QUESTION, tenant="t", user="ana")
    assert stack.report_wrong(first.hit_id, tenant="t")
    assert settled(stack.chat(QUESTION, tenant="t", user="bob")) == ("done", "unconfirmed")


def test_a_claim_ends_with_its_life(make_stack: MakeStack, engine: Scripted, clock: Clock) -> None:
    stack = make_stack("default: {admission: {confirmations: 1}, retention: {ttl_s: 10}}", engines={"e": engine})
    stack.chat(QUESTION, user="ana")
    clock.now_s += 20
    assert settled(stack.chat(QUESTION, user="bob")) == ("done", "unconfirmed")


def test_users_share_no_call_where_each_must_be_answered(make_stack: MakeStack) -> None:
    both = threading.Barrier(2, timeout=10)

    class Slow(Scripted):
        def stream(self, request: Request) -> Generator[str, None, Generation]:
            both.wait()
            yield from ()
            return Generation(self.text)

    stack = make_stack(CONFIRMED, engines={"e": Slow()})
    threads = [threading.Thread(target=stack.chat, args=(QUESTION,), kwargs={"user": user}) for user in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not both.broken


def test_another_way_to_compare_answers(make_stack: MakeStack, engine: Scripted) -> None:
    from dataclasses import replace

    stack = make_stack(CONFIRMED, engines={"e": engine})
    stack._runs._pipeline = replace(
        stack._runs._pipeline, same_answer=lambda one, other: "Security" in one and "Security" in other
    )
    stack.chat(QUESTION, user="ana")
    engine.text = "Security is where you do that, in the settings."
    assert settled(stack.chat(QUESTION, user="bob")) == ("done", "confirmed")


# Wrong hits, and what is never kept


def test_a_removed_answer_never_comes_back(make_stack: MakeStack, engine: Scripted) -> None:
    """From the store, the index, another process, memory, or as a stale answer; nor do the claims that made it."""
    stack = make_stack(
        "default: {admission: {confirmations: 1}, fallback: {engine_error: [stale, raise]}}", engines={"e": engine}
    )
    other = make_stack(
        "default: {admission: {confirmations: 1}, fallback: {engine_error: [stale, raise]}}", engines={"e": engine}
    )
    stack.chat(QUESTION, tenant="t", user="ana")
    wrong = stack.chat(QUESTION, tenant="t", user="bob")
    for one in (stack, other):
        for user in ("ana", "eve"):
            assert one.chat(QUESTION, tenant="t", user=user).trace.served_from == "exact"
        assert one.chat(REWORDED, tenant="t", user="eve").hit_id == wrong.hit_id
    assert stack.invalidate(tenant="t", entry=wrong.hit_id) == 2, "what all share, and the claim it came from"
    again = make_stack("default: {admission: {confirmations: 1}}", engines={"e": engine})
    for one in (stack, other, again):
        for user in ("ana", "bob", "eve", None):
            for asked in (QUESTION, REWORDED):
                assert one.explain(asked, tenant="t", user=user).would == "engine"


def test_a_failure_of_the_upstream_is_never_kept(make_stack: MakeStack) -> None:
    from cachestack.errors import UpstreamError

    class Failing(Scripted):
        def stream(self, request: Request) -> Generator[str, None, Generation]:
            self.calls += 1
            if self.calls == 1:
                raise UpstreamError("bad request", status=400)
            yield self.text
            return Generation(self.text)

    engine = Failing()
    stack = make_stack("default: {fallback: {engine_error: [raise]}}", engines={"e": engine})
    with pytest.raises(UpstreamError):
        stack.chat(QUESTION)
    assert stack.chat(QUESTION).trace.served_from == "engine"
    assert stack.chat(QUESTION).trace.served_from == "exact"


@pytest.mark.parametrize("empty", ["", "  \n", "...", "null", "[your answer here]"])
def test_an_empty_answer_shadows_nothing(make_stack: MakeStack, engine: Scripted, empty: str) -> None:
    stack = make_stack(engines={"e": engine})
    engine.text = empty
    assert stack.chat(QUESTION).hit_id is None
    assert stack.explain(QUESTION).would == "engine"
    engine.text = "Open the settings."
    stack.chat(QUESTION)
    assert stack.explain(QUESTION).answer == "Open the settings."
    engine.text = empty
    stack.chat(QUESTION, lookup=False)
    assert stack.explain(QUESTION).answer == "Open the settings."


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_no_policy_keeps_an_empty_answer(make_stack: MakeStack, engine: Scripted, empty: str) -> None:
    stack = make_stack("default: {admission: {refused: []}}", engines={"e": engine})
    engine.text = empty
    assert settled(stack.chat(QUESTION)) == ("bypass", "empty_answer")
    assert stack.explain(QUESTION).would == "engine"


def test_claims_are_never_served(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(CONFIRMED, engines={"e": engine})
    stack.chat(QUESTION, tenant="t", user="ana")
    from cachestack.entries import Selector

    ledger = [entry for entry in stack.performer.store.select(Selector(tenant="t")) if entry.partition.area]
    assert [(entry.answer, entry.confirmed_by) for entry in ledger] == [("", ("ana",))]
    for user in ("", "claims", "\0claims", None):
        assert stack.explain(QUESTION, tenant="t", user=user).would == "engine"


def test_where_an_answer_came_from_is_kept_and_told(make_stack: MakeStack, engine: Scripted) -> None:
    stack = make_stack(engines={"e": engine})
    made = stack.chat(QUESTION, tenant="t", user="ana")
    provenance = stack.explain(QUESTION, tenant="t", user="bob").provenance
    assert provenance == {
        "entry_id": made.hit_id,
        "tenant": "t",
        "principal": "ana",
        "model": "scripted",
        "engine": "scripted",
        "request_id": made.trace.request_id,
        "created_at_s": 1_000_000.0,
        "confirmed_by": [],
    }


def test_reasons_are_of_the_closed_list() -> None:
    assert {Reason.REFUSAL, Reason.UNCONFIRMED, Reason.DISAGREED, Reason.CONFIRMED} <= set(Reason)
