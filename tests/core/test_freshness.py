"""Lives by class, tag, phrase and relative time, through the whole stack; with a clock that tests move."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cachestack.cli.app import main
from cachestack.decisions import Layer, Reason, Response
from cachestack.errors import PolicyError
from cachestack.policy_set import PolicySet
from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from collections.abc import Generator

    from cachestack.stack import CacheStack
    from tests.core.conftest import Clock, MakeStack

NEVER, SLOW, FAST = "Who wrote Middlemarch?", "Who is the prime minister of Norway?", "What is the weather right now?"
OWN, TOMORROW, THIS_YEAR = "Where is my order?", "Is tomorrow a public holiday?", "Who won the derby this year?"


class Counting:
    name = model = "counting"

    def __init__(self) -> None:
        self.calls, self.fails = 0, False

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.calls += 1
        if self.fails:
            raise OSError("down")
        yield f"answer {self.calls}"
        return Generation(f"answer {self.calls}")


@pytest.fixture
def engine() -> Counting:
    return Counting()


def settled(response: Response) -> dict[str, Any]:
    step = response.trace.step(Layer.SETTLE)
    assert step is not None
    return {"reason": step.reason, **step.detail}


def is_cached(stack: CacheStack, question: str, **options: Any) -> bool:
    return stack.explain(question, **options).would != "engine"


@pytest.mark.parametrize(
    ("question", "changes", "ttl_s"), [(NEVER, "never", 86_400.0), (SLOW, "slow", 3600.0), (FAST, "fast", 60.0)]
)
def test_each_class_has_its_life_and_the_trace_says_why(
    make_stack: MakeStack, clock: Clock, engine: Counting, question: str, changes: str, ttl_s: float
) -> None:
    stack = make_stack(engines={"e": engine}, meaning=False)
    told = settled(stack.chat(question))
    assert (told["changes"], told["ttl_s"], told["reason"]) == (changes, ttl_s, Reason.STORED)
    assert told["bound"] == ("retention.ttl_s" if changes == "never" else f"freshness.{changes}_ttl_s")
    assert told["cues"]
    assert ("evidence" in told) == (changes != "never")
    clock.now_s += ttl_s - 1
    assert stack.chat(question).trace.served_from == "exact"
    clock.now_s += 1
    assert stack.chat(question).trace.served_from == "engine"


def test_zero_is_not_kept_and_is_counted(make_stack: MakeStack, engine: Counting) -> None:
    stack = make_stack("default: {freshness: {fast_ttl_s: 0}}", engines={"e": engine})
    first, second = stack.chat(FAST), stack.chat(FAST)
    assert [r.trace.served_from for r in (first, second)] == ["engine", "engine"]
    assert (first.hit_id, settled(first)["reason"]) == (None, Reason.MOVES)
    looked_up = first.trace.step(Layer.SEMANTIC)
    assert looked_up is not None
    assert (looked_up.reason, looked_up.detail["changes"]) == (Reason.MOVES, "fast")
    stack.chat(NEVER)
    stack.chat(SLOW)
    counted = stack.stats().by_tenant["default"]
    assert counted.freshness == {"fast": 2, "never": 1, "not_kept": 2, "shortened": 1, "slow": 1}
    assert counted.semantic.misses[Reason.MOVES.value] == 2


def test_by_meaning_the_class_of_what_is_asked_holds_too(make_stack: MakeStack, clock: Clock, engine: Counting) -> None:
    policy = "default: {semantic: {encoder_deadline_ms: 60000}, freshness: {slow_ttl_s: 100}}"
    stack = make_stack(policy, engines={"e": engine})
    question, reworded = "Who is the prime minister of Norway?", "who is the prime minister of Norway"
    stack.chat(question)
    clock.now_s += 99
    assert stack.chat(reworded).trace.served_from == "semantic"
    clock.now_s += 1
    assert stack.explain(reworded).would == "engine"


def test_by_meaning_an_answer_that_was_vouched_for_serves_only_those_who_vouch_too(
    make_stack: MakeStack, clock: Clock, engine: Counting
) -> None:
    policy = """
default: {semantic: {encoder_deadline_ms: 60000}, freshness: {slow_ttl_s: 100, stable_tags: [handbook]}}
"""
    stack = make_stack(policy, engines={"e": engine})
    question, reworded = "Who is the prime minister of Norway?", "who is the prime minister of Norway"
    stack.chat(question, tags=["handbook"])
    clock.now_s += 100
    assert stack.explain(reworded, tags=["handbook"]).would == "semantic"
    assert stack.explain(reworded).would == "engine"


@pytest.mark.parametrize("question", [SLOW, FAST])
def test_a_stricter_class_in_todays_policy_holds_for_what_is_kept_already(
    make_stack: MakeStack, clock: Clock, engine: Counting, question: str
) -> None:
    make_stack(engines={"e": engine}, meaning=False).chat(question)
    strict = make_stack("default: {freshness: {slow_ttl_s: 10, fast_ttl_s: 10}}", engines={"e": engine}, meaning=False)
    clock.now_s += 9
    assert is_cached(strict, question)
    clock.now_s += 1
    assert not is_cached(strict, question)


def test_an_entry_that_was_kept_without_a_class_is_judged_when_it_is_met(
    make_stack: MakeStack, clock: Clock, engine: Counting
) -> None:
    make_stack("default: {freshness: {enabled: false}}", engines={"e": engine}, meaning=False).chat(FAST)
    clock.now_s += 61
    assert not is_cached(make_stack(engines={"e": engine}, meaning=False), FAST)


def test_the_request_and_its_caller_still_bound_it(make_stack: MakeStack, clock: Clock, engine: Counting) -> None:
    stack = make_stack(engines={"e": engine}, meaning=False)
    told = settled(stack.chat(FAST, ttl_s=20.0))
    assert (told["ttl_s"], told["bound"]) == (20.0, "ttl_s")
    assert settled(stack.chat(SLOW, ttl_s=90_000.0))["ttl_s"] == 3600.0
    clock.now_s += 20
    assert not is_cached(stack, FAST)
    assert not is_cached(stack, SLOW, ttl_s=15.0)


def test_tags_and_phrases_shorten_and_vouched_tags_take_the_class_away(make_stack: MakeStack, engine: Counting) -> None:
    policy = """
default:
  freshness:
    by_tag: {prices: 30, secret: 0, year: 1e9}
    by_phrase: {"taux de change": 15, Ærø: 40}
    stable_tags: [handbook]
"""
    stack = make_stack(policy, engines={"e": engine}, meaning=False)

    def ttl(question: str, *tags: str) -> tuple[float, str]:
        told = settled(stack.chat(question, tags=tags))
        return told["ttl_s"], told["bound"]

    assert ttl("Who wrote Emma?", "prices") == (30.0, "freshness.by_tag.prices")
    assert ttl("Who wrote Persuasion?", "prices", "secret") == (0.0, "freshness.by_tag.secret")
    assert ttl("Who wrote Villette?", "year") == (86_400.0, "retention.ttl_s")
    assert ttl("Que veut dire TAUX DE CHANGE ?") == (15.0, "freshness.by_phrase.taux de change")
    assert ttl("Who wrote about aero?")[0] == 86_400.0
    assert ttl("Who wrote about ærø ?") == (40.0, "freshness.by_phrase.Ærø")
    assert ttl("What are your opening hours?", "handbook") == (86_400.0, "retention.ttl_s")
    assert ttl("What is on today?", "handbook")[1] == "end of the day"


def test_what_is_unsure_is_what_the_policy_says(make_stack: MakeStack, engine: Counting) -> None:
    from cachestack.semantic.freshness import freshness_of

    unsure = next(
        q for q in ("What is the rent?", "Which plants need sun?", "is tipping usual in Rome", "what should I pack")
        if not freshness_of(q).is_sure
    )  # fmt: skip
    for word in ("never", "slow", "fast"):
        stack = make_stack(f"default: {{freshness: {{unsure: {word}}}}}", engines={"e": engine}, meaning=False)
        assert settled(stack.chat(unsure, version=word))["changes"] == word


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("question", "asked", "end"),
    [
        (TOMORROW, "2026-03-04T23:59:30", "2026-03-05T00:00:00"),
        (THIS_YEAR, "2026-12-31T23:59:30", "2027-01-01T00:00:00"),
        ("Un match demain ?", "2026-03-04T23:59:30", "2026-03-05T00:00:00"),
    ],
)
@pytest.mark.parametrize("vouched", [False, True])
def test_an_answer_about_a_relative_time_ends_with_it(
    make_stack: MakeStack, clock: Clock, engine: Counting, question: str, asked: str, end: str, vouched: bool
) -> None:
    """However long its class, its tag or its policy would keep it; as a stale answer neither."""
    policy = """
default:
  freshness: {stable_tags: [vouched], stale_if_error_s: 100000, stale_while_revalidate_s: 0}
"""
    stack = make_stack(policy, engines={"e": engine}, meaning=False)
    tags = ["vouched"] if vouched else []
    clock.now_s = at(asked)
    told = settled(stack.chat(question, tags=tags))
    assert told["bound"].startswith("end of the ")
    clock.now_s = at(end) - 1
    assert is_cached(stack, question, tags=tags)
    clock.now_s = at(end)
    assert not is_cached(stack, question, tags=tags)
    engine.fails = True
    with pytest.raises(OSError, match="down"):
        stack.chat(question, tags=tags)


def test_tomorrow_asked_today_and_asked_tomorrow_do_not_share_a_call(make_stack: MakeStack, clock: Clock) -> None:
    """Single flight: the leader asks before midnight, the follower after."""
    begun, finish = threading.Event(), threading.Event()

    class Waiting(Counting):
        def stream(self, request: Request) -> Generator[str, None, Generation]:
            self.calls += 1
            number = self.calls
            if number == 1:
                begun.set()
                assert finish.wait(30)
            yield f"answer {number}"
            return Generation(f"answer {number}")

    stack = make_stack(engines={"e": Waiting()}, meaning=False)
    clock.now_s = at("2026-03-04T23:59:59")
    texts: list[str] = []
    leader = threading.Thread(target=lambda: texts.append(stack.chat(TOMORROW).text))
    leader.start()
    assert begun.wait(30)
    clock.now_s = at("2026-03-05T00:00:01")
    try:
        assert stack.chat(TOMORROW).text == "answer 2"
    finally:
        finish.set()
        leader.join()
    assert texts == ["answer 1"]
    assert stack.chat(TOMORROW).text != "answer 1", "the late answer of the day before is not served today"


def test_ones_own_state_is_served_to_whoever_asked_it(make_stack: MakeStack, engine: Counting) -> None:
    stack = make_stack(engines={"e": engine})
    first = stack.chat(OWN, user="ann")
    assert stack.chat(OWN, user="ann").trace.served_from == "exact"
    for other in ("bob", None):
        assert stack.chat(OWN, user=other).trace.served_from == "engine"
    assert settled(first)["own_state"] is True
    assert stack.chat(OWN).trace.served_from == "exact", "who asks without a user counts as one"
    assert not is_cached(stack, "where is my order", user="ann"), "nor by meaning"


def test_two_users_who_ask_for_their_own_at_once_do_not_share_a_call(make_stack: MakeStack) -> None:
    barrier = threading.Barrier(2, timeout=30)

    class Meeting(Counting):
        def stream(self, request: Request) -> Generator[str, None, Generation]:
            barrier.wait()
            yield str(request.user)
            return Generation(str(request.user))

    stack = make_stack(engines={"e": Meeting()}, meaning=False)
    texts: dict[str, str] = {}
    threads = [threading.Thread(target=lambda u=u: texts.update({u: stack.chat(OWN, user=u).text})) for u in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {"a": "a", "b": "b"}


def test_ones_own_state_may_be_not_kept_at_all(make_stack: MakeStack, engine: Counting) -> None:
    stack = make_stack("default: {freshness: {own_state: not_kept}}", engines={"e": engine}, meaning=False)
    told = settled(stack.chat(OWN, user="ann"))
    assert (told["reason"], told["bound"]) == (Reason.MOVES, "freshness.own_state")


# Sliding


SLIDING = "default: {semantic: {encoder_deadline_ms: 60000}, retention: {ttl_s: 1000, sliding_s: 100}}"


def test_use_prolongs_up_to_the_last_moment_and_popular_entries_expire(
    make_stack: MakeStack, clock: Clock, engine: Counting
) -> None:
    stack = make_stack(SLIDING, engines={"e": engine}, meaning=False)
    stack.chat(NEVER)
    for _ in range(11):
        clock.now_s += 90
        assert stack.chat(NEVER).trace.served_from == "exact"
    clock.now_s += 9  # 999 s old
    assert stack.chat(NEVER).trace.served_from == "exact"
    clock.now_s += 1
    assert stack.chat(NEVER).trace.served_from == "engine"


def test_use_by_others_does_not_prolong_the_life_that_the_first_asked_for(
    make_stack: MakeStack, clock: Clock, engine: Counting
) -> None:
    stack = make_stack(SLIDING, engines={"e": engine}, meaning=False)
    stack.chat(NEVER, ttl_s=150)
    clock.now_s += 90
    assert stack.chat(NEVER).trace.served_from == "exact"
    clock.now_s += 59
    assert stack.chat(NEVER).trace.served_from == "exact"
    clock.now_s += 1
    assert not is_cached(stack, NEVER)


def test_an_entry_that_nobody_uses_ends_sooner(make_stack: MakeStack, clock: Clock, engine: Counting) -> None:
    stack = make_stack(SLIDING, engines={"e": engine}, meaning=False)
    stack.chat(NEVER)
    clock.now_s += 100
    assert not is_cached(stack, NEVER)


def test_a_use_by_meaning_prolongs_too(make_stack: MakeStack, clock: Clock, engine: Counting) -> None:
    stack = make_stack(SLIDING, engines={"e": engine})
    stack.chat("How do I reset my password?")
    for _ in range(3):
        clock.now_s += 60
        assert stack.chat("How can I reset my password?").trace.served_from == "semantic"


def test_a_use_does_not_bring_back_what_was_invalidated(make_stack: MakeStack, clock: Clock, engine: Counting) -> None:
    from cachestack.effects import Prolong

    stack = make_stack(SLIDING, engines={"e": engine}, meaning=False)
    hit_id = stack.chat(NEVER).hit_id
    entry = next(iter(stack.performer.store.select(_any())))
    assert entry.entry_id == hit_id
    stack.invalidate(tenant="default")
    stack.performer.perform(Prolong(entry, 100.0), {})
    assert list(stack.performer.store.select(_any())) == []


def _any() -> Any:
    from cachestack.entries import Selector

    return Selector()


# Clocks


@pytest.mark.parametrize(("ttl_s", "back_s", "cached"), [(60, 30, True), (60, 61, False), (5, 4, True), (5, 6, False)])
def test_an_entry_of_the_future_lives_no_longer_than_its_life_again(
    make_stack: MakeStack, clock: Clock, engine: Counting, ttl_s: float, back_s: float, cached: bool
) -> None:
    stack = make_stack(f"default: {{freshness: {{fast_ttl_s: {ttl_s}}}}}", engines={"e": engine}, meaning=False)
    stack.chat(FAST)
    clock.now_s -= back_s
    assert is_cached(stack, FAST) == cached


# Policies


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("slow_ttl_s: -1", "greater than or equal to 0"),
        ("never_ttl_s: 0", "greater than 0"),
        ("timezone: Mars/Olympus", "time zone"),
        ("unsure: maybe", "'never', 'slow' or 'fast'"),
        ("by_tag: {prices: soon}", "valid number"),
        ("by_phrase: {'?!': 10}", "letter or a digit"),
        ("fast_ttl: 3", "did you mean 'fast_ttl_s'"),
        ("enabled: 3", "valid boolean"),
    ],
)
def test_what_is_wrong_in_the_section_is_said(section: str, problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        PolicySet.parse(f"default: {{freshness: {{{section}}}}}", "test")


def test_mappings_are_shown_as_they_were_written_and_a_policy_can_be_hashed(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    text = "default: {freshness: {by_tag: {prices: 60, menu: 30}, stable_tags: [b, a]}}"
    policies = PolicySet.parse(text, "test")
    shown = {row.key: (row.value, row.origin) for row in policies.effective("t")}
    assert shown["freshness.by_tag"] == ({"menu": 30.0, "prices": 60.0}, "default in test")
    assert shown["freshness.stable_tags"][0] == ["a", "b"]
    assert hash(policies.policy("t")) == hash(PolicySet.parse(text, "other").policy("t"))
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    assert main(["policy", "show", "t", "--policies", str(file)]) == 0
    assert "freshness.by_tag" in capsys.readouterr().out


def test_stale_if_error_says_all_that_is_needed(make_stack: MakeStack, clock: Clock, engine: Counting) -> None:
    stack = make_stack("default: {freshness: {stale_if_error_s: 100}}", engines={"e": engine}, meaning=False)
    stack.chat(FAST)
    engine.fails = True
    clock.now_s += 159
    assert stack.chat(FAST).trace.served_from == "stale"
    with pytest.raises(OSError, match="down"):
        stack.chat(FAST, user="x", ttl_s=1.0)
    clock.now_s += 1
    with pytest.raises(OSError, match="down"):
        stack.chat(FAST)


SHARED = Path(__file__).parents[2].parent / "shared/data/pairs/other_date.jsonl"


@pytest.mark.skipif(not SHARED.exists(), reason="the development data of ../shared/data is not here")
def test_the_same_question_as_of_another_date_is_another_question(make_stack: MakeStack) -> None:
    """The first hundred pairs; docs/semantic.md has the figure for all."""
    stack = make_stack()
    pairs = [json.loads(line) for line in SHARED.read_text("utf-8").splitlines()[:100]]
    assert [pair["id"] for pair in pairs if stack.compare(pair["a"], pair["b"]).serves] == []
