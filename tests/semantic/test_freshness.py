"""How soon answers change, from the question alone; relative times; and the algebra of lives."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.corpus import load_freshness
from cachestack.entries import Entry
from cachestack.keys import Partition
from cachestack.policy import FreshnessPolicy, Policy, RetentionPolicy
from cachestack.requests import Message, Request
from cachestack.semantic.freshness import freshness_of
from cachestack.semantic.freshness.cues import cues, folded
from cachestack.semantic.freshness.life import Life, life_of, max_served_age, serves, serves_stale
from cachestack.semantic.freshness.model import shipped
from cachestack.semantic.freshness.relative import Period, end_of, relative_period

NEVER = [
    "Who wrote Middlemarch?", "When did the Berlin Wall fall?", "How do I reset my password?", "What does HTTP mean?",
    "What is 17 times 23?", "Who won the World Cup in 1998?", "Who was the first mayor of Lyon?", "Tell me a joke",
    "Translate 'see you tomorrow' into French", "Qui a écrit Germinal ?", "Comment annuler ma commande ?",
    "En quelle année a fini la guerre de Cent Ans ?", "Que veut dire « en ce moment » en anglais ?",
    "What is a current account?", "hello", "prompt number 7",
]  # fmt: skip
MOVING = [
    "Who is the prime minister of Norway?", "When was the last time Leeds won the cup?",
    "What is the latest version of Go?", "How many seasons of Night Shift are there?",
    "Which country has won the most medals?",
    "Qui est le maire de Nantes ?",
    "Quel est le plus haut immeuble du monde ?", "What is the minimum wage in Ohio?", "How old is the Danish king?",
]  # fmt: skip
FAST = [
    "What is the weather in Oslo right now?", "What is the exchange rate of the pound today?", "Where is my order?",
    "Is the shop open now?", "What is my balance?", "Quel temps fait-il à Brest ?", "Où en est ma commande ?",
    "Quel est mon solde ?", "Are there seats left for tonight?", "Y a-t-il des bouchons en ce moment ?",
    "What's the score?", "Le musée est-il ouvert aujourd'hui ?",
]  # fmt: skip


@pytest.mark.parametrize("question", NEVER)
def test_what_stays_true_never_changes(question: str) -> None:
    assert freshness_of(question).changes == "never"


@pytest.mark.parametrize("question", MOVING)
def test_what_moves_is_not_taken_to_stay(question: str) -> None:
    found = freshness_of(question)
    assert found.changes in ("slow", "fast")
    assert found.score > 0.5


@pytest.mark.parametrize("question", FAST)
def test_what_moves_within_days_or_with_its_asker_is_fast(question: str) -> None:
    found = freshness_of(question)
    assert (found.changes, bool(found.evidence)) == ("fast", True)


@pytest.mark.parametrize(
    ("question", "own"),
    [
        ("Where is my order?", True), ("What is my balance?", True), ("Où en est ma commande ?", True),
        ("Quel est mon solde ?", True), ("How do I track my order?", False), ("Is the shop open now?", False),
        ("What is the weather in Oslo right now?", False),
    ],
)  # fmt: skip
def test_what_is_the_askers_alone_is_known(question: str, own: bool) -> None:
    assert freshness_of(question).own_state == own


def test_the_validation_part_is_held_to_the_targets_that_thresholds_were_chosen_for() -> None:
    rows = load_freshness("validation")
    taken = {
        label: [freshness_of(r.question).changes for r in rows if r.changes == label] for label in ("never", "fast")
    }
    assert sum(c == "never" for c in taken["fast"]) <= 0.05 * len(taken["fast"])
    assert sum(c != "never" for c in taken["never"]) <= 0.15 * len(taken["never"])


@given(st.text(max_size=300))
def test_any_text_has_a_class_and_the_same_one_again(text: str) -> None:
    found = freshness_of(text)
    freshness_of.cache_clear()
    assert freshness_of(text) == found
    assert found.changes in ("never", "slow", "fast")
    assert 0 <= found.score <= 1


def test_a_long_text_is_judged_in_a_few_milliseconds() -> None:
    """Patterns that look far ahead must not take for ever on what they nearly match."""
    freshness_of("warm up")
    for hostile in ("when is " * 4000, "how many " * 4000, "is my order " * 3000, "a " * 20_000, "what is the " * 4000):
        begin = time.perf_counter()
        freshness_of(hostile)
        assert time.perf_counter() - begin < 1.0


def test_a_long_text_is_judged_by_its_ends_and_ends_with_a_time_that_it_names_anywhere() -> None:
    filling = "The council met and the minutes were approved by all who were there. " * 12
    article = f"Summarise this article. {filling} It rained yesterday. {filling} Who wrote it?"
    assert (freshness_of(article).changes != "fast", freshness_of(article).relative) == (True, "day")
    assert freshness_of(f"{filling} What is the weather right now?").changes == "fast"


def test_letter_case_accents_and_apostrophes_do_not_count() -> None:
    plain = freshness_of("ou en est ma commande aujourd'hui")
    for other in ("Où en est ma commande aujourd’hui", "OÙ EN EST MA COMMANDE AUJOURD'HUI"):
        assert (freshness_of(other).changes, freshness_of(other).relative) == (plain.changes, plain.relative)


def test_the_model_is_small_and_says_what_it_was_made_of() -> None:
    model = shipped()
    assert model.weights.nbytes < 1_000_000
    assert model.card["num_labelled"] > 1000
    assert model.unsure_from < model.sure_from
    assert len(cues().by_name) > 30


@pytest.mark.parametrize(
    ("question", "period"),
    [
        ("What is on today?", "day"), ("Is it a holiday tomorrow?", "day"), ("Who won yesterday?", "day"),
        ("Quel jour férié demain ?", "day"), ("ouvert ce soir ?", "day"), ("le match d'hier", "day"),
        ("Flights on Monday", "day"), ("un train lundi matin", "day"), ("3 days ago", "day"),
        ("dans deux semaines", "day"),
        ("In the next 20 minutes?", "hour"), ("il y a une heure", "hour"), ("What is on this week?", "week"),
        ("la semaine prochaine", "week"), ("next month's menu", "month"), ("le mois dernier", "month"),
        ("results of last quarter", "quarter"), ("Who won last year?", "year"), ("cette année", "year"),
        ("Are you open on Mondays?", None), ("Ouvert le lundi ?", None), ("Who won in 1998?", None),
        ('What does "tomorrow" mean?', None), ("Sunday roast recipes", None), ("yesteryear", None),
    ],
)  # fmt: skip
def test_relative_times_are_read(question: str, period: Period | None) -> None:
    found = relative_period(folded(question))
    assert (found and found[0]) == period


@pytest.mark.parametrize(
    ("period", "now", "end"),
    [
        ("hour", "2026-03-04T10:59:59", "2026-03-04T11:00:00"),
        ("day", "2026-03-04T00:00:00", "2026-03-05T00:00:00"),
        ("day", "2026-03-04T23:59:59", "2026-03-05T00:00:00"),
        ("week", "2026-03-04T12:00:00", "2026-03-08T00:00:00"),  # Wednesday: before Sunday, where weeks begin for some
        ("week", "2026-03-07T12:00:00", "2026-03-08T00:00:00"),
        ("week", "2026-03-08T12:00:00", "2026-03-09T00:00:00"),
        ("month", "2026-12-31T23:00:00", "2027-01-01T00:00:00"),
        ("quarter", "2026-05-05T00:00:00", "2026-07-01T00:00:00"),
        ("quarter", "2026-11-05T00:00:00", "2027-01-01T00:00:00"),
        ("year", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "Asia/Kathmandu"])
def test_a_period_ends_in_the_zone_of_the_policy(period: Period, now: str, end: str, zone: str) -> None:
    def at(text: str) -> float:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()

    assert end_of(period, at(now), zone) == pytest.approx(at(end))


def test_a_day_may_have_23_hours() -> None:
    begin = datetime(2026, 3, 29, tzinfo=ZoneInfo("Europe/Paris")).timestamp()
    assert end_of("day", begin, "Europe/Paris") - begin == 23 * 3600


@given(st.sampled_from(["hour", "day", "week", "month", "quarter", "year"]), st.floats(0, 4e9))
def test_a_period_ends_after_now_and_within_its_length(period: Period, now_s: float) -> None:
    longest_s = {"hour": 3600, "day": 86_400, "week": 7 * 86_400, "month": 31 * 86_400, "quarter": 92 * 86_400}
    left_s = end_of(period, now_s, "UTC") - now_s
    assert 0 < left_s <= longest_s.get(period, 366 * 86_400) + 1e-3


@pytest.mark.parametrize("now_s", [-1e18, 1e18, 253_402_300_799.0])
def test_a_time_that_no_calendar_has_keeps_nothing(now_s: float) -> None:
    assert end_of("day", now_s, "UTC") <= max(now_s, 253_402_300_800.0)


ttls = st.one_of(st.just(0.0), st.floats(1e-3, 1e6))


@given(
    question=st.sampled_from([NEVER[0], MOVING[0], FAST[0], FAST[2], "What is on tomorrow?", "price of tea this year"]),
    retention=st.floats(1e-3, 1e6), own=st.none() | st.floats(1e-3, 1e6), never=st.none() | st.floats(1e-3, 1e6),
    slow=ttls, fast=ttls, by_tag=ttls, by_phrase=ttls, tags=st.sets(st.sampled_from(["t", "s", "u"])),
    max_age=st.none() | st.floats(0, 1e6), now_s=st.floats(0, 4e9), unsure=st.sampled_from(["never", "slow", "fast"]),
)  # fmt: skip
def test_a_life_is_the_shortest_of_all_bounds(
    question: str, retention: float, own: float | None, never: float | None, slow: float, fast: float, by_tag: float,
    by_phrase: float, tags: set[str], max_age: float | None, now_s: float, unsure: str,
) -> None:  # fmt: skip
    section = {
        "slow_ttl_s": slow, "fast_ttl_s": fast, "never_ttl_s": never, "unsure": unsure,
        "by_tag": {"t": by_tag}, "by_phrase": {"TÉA": by_phrase}, "stable_tags": ["s"],
    }  # fmt: skip
    policy = Policy(retention=RetentionPolicy(ttl_s=retention), freshness=FreshnessPolicy(**section))
    request = Request((Message("user", question),), tags=tuple(tags), ttl_s=own, max_age_s=max_age)
    life, found = life_of(request, policy, now_s), freshness_of(question)
    changes = "never" if "s" in tags else found.changes if found.is_sure else unsure
    bounds = [retention, own, {"never": never, "slow": slow, "fast": fast}[changes]]
    bounds += [by_tag if "t" in tags else None, by_phrase if "tea" in question else None]
    assert life.ttl_s == min(bound for bound in bounds if bound is not None)
    assert life.end_s(now_s) <= now_s + life.ttl_s
    if found.relative is not None:
        assert life.end_s(now_s) <= end_of(found.relative, now_s, "UTC")
    assert max_served_age(request, policy) >= life.ttl_s or max_age is not None
    assert life.is_kept(now_s) == (life.ttl_s > 0)

    entry = kept_as(request, life, now_s)
    for age_s in (0.0, life.ttl_s / 2, life.ttl_s, life.ttl_s * 2 + 1, 1e7):
        if serves(entry, request, policy, now_s + age_s, max_served_age(request, policy)):
            assert now_s + age_s < life.end_s(now_s)
            assert max_age is None or age_s < max_age + 1e-3
        if serves_stale(entry, request, policy, now_s + age_s, 50.0):
            assert now_s + age_s < life.end_s(now_s) + 50.0 + 1e-3
            assert now_s + age_s < life.until_s
            assert max_age is None or age_s < max_age + 1e-3


def kept_as(request: Request, life: Life, now_s: float) -> Entry:
    return Entry(
        entry_id="e", partition=Partition("t"), contract="c", exact="x", question=request.question, answer="a",
        finish_reason="stop", prompt_tokens=0, completion_tokens=0, model="m", created_at_s=now_s,
        expires_at_s=life.end_s(now_s), stale_until_s=min(life.end_s(now_s) + 1e6, life.until_s),
        changes=life.changes, own_state=life.own_state,
    )  # fmt: skip


@given(
    uses=st.lists(st.floats(0, 500), max_size=20),
    sliding=st.floats(1, 300),
    ttl=st.floats(1, 2000),
    back=st.floats(0, 50),
)
def test_uses_move_an_end_forward_only_and_never_beyond_the_last_moment(
    uses: list[float], sliding: float, ttl: float, back: float
) -> None:
    begin_s = 1e6
    life = Life(ttl, "retention.ttl_s")
    entry = kept_as(Request((Message("user", "q"),)), life, begin_s)
    entry = Entry(**{n: getattr(entry, n) for n in entry.__slots__} | {"ends_at_s": begin_s + ttl})
    entry = Entry(
        **{n: getattr(entry, n) for n in entry.__slots__} | {"expires_at_s": min(begin_s + sliding, begin_s + ttl)}
    )
    for use_s in uses:
        used = entry.used(begin_s + use_s - back, sliding)
        assert entry.expires_at_s <= used.expires_at_s <= begin_s + ttl
        assert (used.created_at_s, used.stale_until_s) == (entry.created_at_s, entry.stale_until_s)
        entry = used


def test_an_entry_whose_policy_had_no_sliding_end_is_not_moved_by_a_use() -> None:
    entry = kept_as(Request((Message("user", "q"),)), Life(10, "x"), 100.0)
    assert entry.used(109.0, 1000.0).expires_at_s == 110.0


def test_switched_off_nothing_is_judged() -> None:
    policy = Policy(freshness=FreshnessPolicy(enabled=False, by_tag={"t": 5.0}))
    life = life_of(Request((Message("user", "What is the weather today?"),)), policy, 0.0)
    assert (life.ttl_s, life.until_s, life.changes) == (86_400.0, math.inf, "")
    assert life_of(Request((Message("user", "What is the weather today?"),), tags=("t",)), policy, 0.0).ttl_s == 5.0


def test_utc_is_the_zone_where_none_is_named() -> None:
    now = datetime(2026, 3, 4, 22, 30, tzinfo=UTC)
    request = Request((Message("user", "Is tomorrow a holiday?"),))
    assert life_of(request, Policy(), now.timestamp()).until_s == datetime(2026, 3, 5, tzinfo=UTC).timestamp()
    paris = Policy(freshness=FreshnessPolicy(timezone="Europe/Paris"))
    assert life_of(request, paris, now.timestamp()).until_s == datetime(2026, 3, 4, 23, tzinfo=UTC).timestamp()
