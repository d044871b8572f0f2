"""Bands, guards, scores, further verifiers, freshness: which candidate is served, and what is said where none is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cachestack.decisions import Hit, Miss, Reason
from cachestack.effects import Verify
from cachestack.entries import Candidate, Entry
from cachestack.errors import PolicyError
from cachestack.keys import Partition
from cachestack.policy import FallbackPolicy, SemanticPolicy
from cachestack.policy_set import PolicySet
from cachestack.semantic.decide import MAX_CHARACTERS, Query, decide
from cachestack.semantic.verifiers.base import Agreement, Side

NOW_S = 1_000.0
ASKED = Query("How do I renew my visa?", "en")
SAME = "What is the best way to renew my visa?"
DOUBTED = "How do I renew my visa in Leeds?"  # a guard has a doubt: a word without a partner
OTHER = "When do I renew my old visa?"  # and here: something else is asked for
CONVERT, CONVERT_MORE = Query("Convert 100 USD to EUR", "en"), "Convert 250 USD to EUR"  # a guard is certain
POLICY = SemanticPolicy(reject_below=0.8, accept_score=0.9, doubt_score=0.5)
TWO = POLICY.model_copy(update={"verifiers": ("local", "cross_encoder")})
SURE = Agreement(None, 0.95)


@dataclass
class Scores:
    """A first verifier: a score for each cached text, and what it was asked."""

    by_text: Mapping[str, float] = field(default_factory=dict)
    otherwise: float = 0.95
    agrees: bool | None = None
    name: str = "local"
    asked: list[tuple[Side, Side, float]] = field(default_factory=list)

    def verify(self, cached: Side, asked: Side, similarity: float) -> Agreement:
        self.asked.append((cached, asked, similarity))
        return Agreement(self.agrees, self.by_text.get(cached.text.raw, self.otherwise))


class Fails:
    name = "local"

    def verify(self, cached: Side, asked: Side, similarity: float) -> Agreement:
        raise TimeoutError("the verifier did not answer")


@dataclass
class Opinions:
    """What further verifiers say, by verifier's name and cached text; notes each question."""

    said: Mapping[tuple[str, str], Agreement] = field(default_factory=dict)
    otherwise: Agreement = SURE
    asked: list[Verify] = field(default_factory=list)

    def __call__(self, effect: Verify) -> Agreement:
        self.asked.append(effect)
        return self.said.get((effect.verifier, effect.cached), self.otherwise)

    @property
    def texts(self) -> list[str]:
        return [effect.cached for effect in self.asked]


def candidate(question: str, similarity: float, *, name: str = "e1", **changes: object) -> Candidate:
    entry = Entry(
        entry_id=name,
        partition=Partition("acme"),
        contract="c",
        exact="x",
        question=question,
        answer="an answer",
        finish_reason="stop",
        prompt_tokens=1,
        completion_tokens=1,
        model="m",
        created_at_s=900.0,
        expires_at_s=2_000.0,
        stale_until_s=2_000.0,
        language="en",
    )
    return Candidate(replace(entry, **changes), similarity)  # type: ignore[arg-type]


def expired(question: str, similarity: float, name: str = "old") -> Candidate:
    return candidate(question, similarity, name=name, expires_at_s=NOW_S, stale_until_s=NOW_S)


def decided(
    *candidates: Candidate,
    query: Query = ASKED,
    policy: SemanticPolicy = POLICY,
    doubt: str = "miss",
    first: object = None,
    further: Opinions | None = None,
    max_age_s: float = math.inf,
) -> Hit[Entry] | Miss:
    """Drive `decide` to its end; every miss and hit must be writable as JSON."""
    fallback = FallbackPolicy(semantic_doubt=doubt)  # type: ignore[arg-type]
    verifier = Scores() if first is None else first
    deciding = decide(query, candidates, policy, fallback, NOW_S, max_age_s, verifier)  # type: ignore[arg-type]
    perform = further or Opinions()
    try:
        effect = next(deciding)
        while True:
            effect = deciding.send(perform(effect))
    except StopIteration as stop:
        decision: Hit[Entry] | Miss = stop.value
    json.dumps(decision.detail, allow_nan=False)
    return decision


def policy(**values: object) -> SemanticPolicy:
    return SemanticPolicy.model_validate(POLICY.model_dump() | values)


# bands


@pytest.mark.parametrize(
    ("similarity", "reason"),
    [(0.7999, Reason.BELOW_THRESHOLD), (0.80, Reason.VALIDATED), (0.95, Reason.VALIDATED), (1.0, Reason.VALIDATED)],
)
def test_nothing_below_reject_below(similarity: float, reason: Reason) -> None:
    decision = decided(candidate(SAME, similarity))
    assert decision.reason is reason
    assert isinstance(decision, Hit) is (reason is Reason.VALIDATED)
    assert decision.detail["similarity"] == pytest.approx(similarity)


@pytest.mark.parametrize("below", [0.0, 0.5, 0.95])
def test_the_lower_end_is_the_policys(below: float) -> None:
    other = policy(reject_below=below, accept_from=0.95)
    assert decided(candidate(SAME, below), policy=other).reason is Reason.VALIDATED
    assert decided(candidate(SAME, below - 0.01), policy=other).reason is Reason.BELOW_THRESHOLD


def test_a_similarity_that_is_no_number_is_far() -> None:
    assert decided(candidate(SAME, math.nan), candidate(SAME, 0.1)).reason is Reason.BELOW_THRESHOLD


def test_a_hit_says_how_it_came_about() -> None:
    decision = decided(candidate(SAME, 0.95), first=Scores(otherwise=0.93))
    assert isinstance(decision, Hit)
    assert decision.value.entry_id == "e1"
    assert {k: decision.detail[k] for k in ("band", "age_s", "entry_id", "similarity")} == {
        "band": "accept",
        "age_s": 100.0,
        "entry_id": "e1",
        "similarity": 0.95,
    }
    assert decision.detail["guards_passed"] > 10
    assert "doubts" not in decision.detail
    assert decision.detail["verifier"] == {"name": "local", "score": 0.93, "accept_score": 0.9, "doubt_score": 0.5}
    assert decided(candidate(SAME, 0.85)).detail["band"] == "validate"


def test_no_candidate_is_no_entry() -> None:
    assert decided().reason is Reason.NO_ENTRY


# guards


@pytest.mark.parametrize("similarity", [0.85, 1.0])
@pytest.mark.parametrize("verifiers", [(), ("local",), ("local", "cross_encoder")])
def test_a_certain_guard_stops_any_similarity_and_nobody_is_asked(
    similarity: float, verifiers: tuple[str, ...]
) -> None:
    first, further = Scores(agrees=True), Opinions(otherwise=Agreement(True, 1.0))
    decision = decided(
        candidate(CONVERT_MORE, similarity),
        query=CONVERT,
        policy=policy(verifiers=verifiers),
        doubt="serve",
        first=first,
        further=further,
    )
    assert decision.reason is Reason.GUARD_REJECTED
    assert (decision.detail["guard"], decision.detail["certain"]) == ("numbers", True)
    assert "250" in json.dumps(decision.detail["evidence"])
    assert decision.detail["entry_id"] == "e1"
    assert (first.asked, further.asked) == ([], [])


@pytest.mark.parametrize("question", [DOUBTED, OTHER])
def test_a_doubt_is_weighed_by_the_first_verifier(question: str) -> None:
    served = decided(candidate(question, 0.85), first=Scores(otherwise=0.9))
    assert served.reason is Reason.VALIDATED
    assert ("slot" if question == OTHER else "content") in served.detail["doubts"]
    assert decided(candidate(question, 1.0), first=Scores(otherwise=0.49)).reason is Reason.NOT_VALIDATED


def test_without_verifiers_any_doubt_refuses_and_cosine_decides() -> None:
    alone = policy(verifiers=())
    first, further = Scores(), Opinions()

    def asked(question: str, similarity: float) -> Hit[Entry] | Miss:
        return decided(candidate(question, similarity), policy=alone, doubt="serve", first=first, further=further)

    refused = asked(DOUBTED, 0.99)
    assert refused.reason is Reason.GUARD_REJECTED
    assert (refused.detail["guard"], refused.detail["certain"]) == ("content", False)
    assert asked(SAME, 0.90).reason is Reason.SIMILAR
    assert asked(SAME, 0.8999).reason is Reason.NOT_VALIDATED
    assert (first.asked, further.asked) == ([], [])


def test_a_sensitive_scope_is_served_from_accept_from_without_any_doubt_only() -> None:
    sensitive = policy(sensitive=True, verifiers=["local", "cross_encoder"])
    first, further = Scores(), Opinions()

    def asked(question: str, similarity: float) -> Hit[Entry] | Miss:
        return decided(candidate(question, similarity), policy=sensitive, doubt="serve", first=first, further=further)

    assert asked(SAME, 0.8999).reason is Reason.SENSITIVE_SCOPE
    doubted = asked(DOUBTED, 0.99)
    assert (doubted.reason, doubted.detail["guard"]) == (Reason.GUARD_REJECTED, "content")
    assert (first.asked, further.asked) == ([], [])
    assert asked(SAME, 0.90).reason is Reason.VALIDATED
    low = decided(candidate(SAME, 0.99), policy=sensitive, first=Scores(otherwise=0.3))
    assert low.reason is Reason.NOT_VALIDATED  # the verifier is heard there too


@pytest.mark.parametrize(("side", "length"), [("cached", 1), ("asked", 1), ("neither", 0)])
def test_a_text_beyond_the_limit_is_not_read(side: str, length: int) -> None:
    text = "visa " * (MAX_CHARACTERS // 5)
    assert len(text) == MAX_CHARACTERS
    cached, asked = (text + "s" * (length if side == name else 0) for name in ("cached", "asked"))
    decision = decided(candidate(cached, 1.0), query=Query(asked, "en"))
    assert (decision.detail.get("guard") == "length") is (side != "neither")
    assert decision.reason is (Reason.VALIDATED if side == "neither" else Reason.GUARD_REJECTED)


def test_a_text_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str, language: str | None) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("cachestack.semantic.decide._analyse", fails)
    decision = decided(candidate(SAME, 1.0), doubt="serve")
    assert (decision.reason, decision.detail["guard"]) == (Reason.GUARD_REJECTED, "reading")
    assert "too deep" in decision.detail["evidence"]["error"]


# languages


def in_french(question: str) -> Candidate:
    return candidate(question, 0.95, language="fr")


def test_another_language_is_served_only_where_the_policy_says_so() -> None:
    query, cached = Query("Internet?", "en"), in_french("Internet ?")
    assert decided(cached, query=query).detail["guard"] == "language"
    assert decided(cached, query=query, policy=policy(cross_language=True)).reason is Reason.VALIDATED
    alone = policy(cross_language=True, verifiers=())
    assert decided(cached, query=query, policy=alone).reason is Reason.SIMILAR


def test_across_languages_all_other_guards_hold() -> None:
    query = Query("Terminal 2?", "en")
    decision = decided(in_french("Terminal 3 ?"), query=query, policy=policy(cross_language=True))
    assert decision.reason is Reason.GUARD_REJECTED
    assert decision.detail["guard"] in ("numbers", "identifiers")


def test_an_unknown_language_is_taken_to_be_the_others() -> None:
    first = Scores()
    decided(in_french("Comment activer le wifi ?"), query=Query("comment activer le wifi", None), first=first)
    [(cached, asked, _)] = first.asked
    assert (cached.text.language, asked.text.language) == ("fr", "fr")


# the first verifier


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (1.0, Reason.VALIDATED),
        (0.90, Reason.VALIDATED),
        (math.nextafter(0.90, 0), Reason.NOT_VALIDATED),
        (0.50, Reason.NOT_VALIDATED),
        (math.nextafter(0.50, 0), Reason.NOT_VALIDATED),
        (0.0, Reason.NOT_VALIDATED),
    ],
)
def test_a_score_is_enough_from_accept_score_on(score: float, reason: Reason) -> None:
    decision = decided(candidate(SAME, 0.99), first=Scores(otherwise=score))
    assert decision.reason is reason
    assert decision.detail.get("in_doubt", False) is (0.5 <= score < 0.9)


@pytest.mark.parametrize(("accept", "doubt"), [(0.7, 0.7), (1.0, 0.0), (0.3, 0.2)])
def test_thresholds_are_the_policys(accept: float, doubt: float) -> None:
    other = policy(accept_score=accept, doubt_score=doubt)
    assert decided(candidate(SAME, 0.99), policy=other, first=Scores(otherwise=accept)).reason is Reason.VALIDATED
    between = (accept + doubt) / 2
    if doubt < accept:
        said = decided(candidate(SAME, 0.99), policy=other, first=Scores(otherwise=between), doubt="serve")
        assert said.detail["in_doubt"] is True


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 1.5, -0.1])
@pytest.mark.parametrize("agrees", [None, True])
def test_a_score_that_is_none_is_a_miss_whatever_is_said(score: float, agrees: bool | None) -> None:
    """From the first verifier, and from a further one."""
    first = decided(candidate(SAME, 0.99), first=Scores(otherwise=score, agrees=agrees), doubt="serve")
    assert first.reason is Reason.NOT_VALIDATED
    said = Opinions(otherwise=Agreement(agrees, score))
    further = decided(candidate(SAME, 0.99), policy=TWO, first=Scores(otherwise=0.6), further=said, doubt="serve")
    assert further.reason is Reason.NOT_VALIDATED
    assert len(said.asked) == 1


def test_a_first_verifier_may_be_sure_by_itself() -> None:
    assert decided(candidate(SAME, 0.85), first=Scores(otherwise=0.6, agrees=True)).reason is Reason.VALIDATED
    for doubt in ("miss", "serve"):
        disagrees = Scores(otherwise=1.0, agrees=False)
        assert decided(candidate(SAME, 0.99), first=disagrees, doubt=doubt).reason is Reason.NOT_VALIDATED


def test_a_first_verifier_that_fails_is_a_miss_even_where_doubt_serves() -> None:
    further = Opinions(otherwise=Agreement(True, 1.0))
    decision = decided(candidate(SAME, 0.99), policy=TWO, first=Fails(), doubt="serve", further=further)
    assert decision.reason is Reason.NOT_VALIDATED
    assert decision.detail["verifier"] == {"name": "local", "error": "TimeoutError: the verifier did not answer"}
    assert further.asked == []


def test_it_is_given_both_texts_and_their_states() -> None:
    first = Scores()
    decided(candidate(SAME, 0.87, states=b"cached"), query=Query(ASKED.text, "en", b"asked"), first=first)
    [(cached, asked, similarity)] = first.asked
    assert (cached.text.raw, cached.states, asked.text.raw, asked.states) == (SAME, b"cached", ASKED.text, b"asked")
    assert similarity == 0.87


def test_the_policy_names_the_first_verifier() -> None:
    deciding = decide(ASKED, [candidate(SAME, 0.85)], policy(verifiers=["lexical"]), FallbackPolicy(), NOW_S)
    with pytest.raises(StopIteration) as stop:
        next(deciding)
    assert stop.value.value.reason is Reason.VALIDATED
    assert stop.value.value.detail["verifier"]["name"] == "lexical"


@pytest.mark.parametrize("cached", [OTHER, DOUBTED, "How do I renew my visas 2 days before?", "May I renew my visa?"])
def test_the_lexical_verifier_does_not_pass_over_a_guards_doubt(cached: str) -> None:
    """It reads words only: what another guard doubts must not be served because every word has its partner."""
    lexical = policy(verifiers=["lexical"])
    deciding = decide(ASKED, [candidate(cached, 0.99)], lexical, FallbackPolicy(semantic_doubt="serve"), NOW_S)
    with pytest.raises(StopIteration) as stop:
        next(deciding)
    assert isinstance(stop.value.value, Miss)


# further verifiers


def test_a_further_verifier_is_asked_in_doubt_only() -> None:
    for score, questions in ((0.95, 0), (0.90, 0), (0.89, 1), (0.50, 1), (0.49, 0)):
        further = Opinions()
        decided(candidate(SAME, 0.99), policy=TWO, first=Scores(otherwise=score), further=further)
        assert len(further.asked) == questions, score


def test_what_it_is_asked() -> None:
    further = Opinions()
    slow = policy(verifiers=["local", "judge:local"], verifier_deadline_ms=250)
    decision = decided(candidate(SAME, 0.99), policy=slow, first=Scores(otherwise=0.625), further=further)
    assert further.asked == [Verify("judge:local", SAME, ASKED.text, 0.625, 0.25)]
    assert decision.reason is Reason.VALIDATED
    assert decision.detail["before"]["score"] == 0.625
    assert (decision.detail["verifier"]["name"], decision.detail["verifier"]["score"]) == ("judge:local", 0.95)


@pytest.mark.parametrize(
    ("said", "doubt", "reason"),
    [
        (Agreement(None, 0.90), "miss", Reason.VALIDATED),
        (Agreement(True, 0.60), "miss", Reason.VALIDATED),
        (Agreement(None, 0.89), "miss", Reason.NOT_VALIDATED),
        (Agreement(None, 0.89), "serve", Reason.VALIDATED),
        (Agreement(None, 0.49), "serve", Reason.NOT_VALIDATED),
        (Agreement(False, 1.0), "serve", Reason.NOT_VALIDATED),
        (Agreement(False, 0.0, {"error": "no answer within 1 s"}), "serve", Reason.NOT_VALIDATED),
    ],
)
def test_what_a_further_verifier_can_say(said: Agreement, doubt: str, reason: Reason) -> None:
    further = Opinions(otherwise=said)
    decision = decided(candidate(SAME, 0.99), policy=TWO, first=Scores(otherwise=0.6), further=further, doubt=doubt)
    assert decision.reason is reason
    assert decision.detail["verifier"]["name"] == "cross_encoder"
    assert decision.detail["verifier"].get("error") == said.evidence.get("error")
    in_doubt = said.agrees is None and 0.5 <= said.score < 0.9
    assert decision.detail.get("in_doubt", False) is in_doubt


@pytest.mark.parametrize("doubt", ["miss", "serve"])
def test_without_a_further_verifier_doubt_follows_the_policy(doubt: str) -> None:
    decision = decided(candidate(SAME, 0.99), first=Scores(otherwise=0.6), doubt=doubt)
    assert decision.reason is (Reason.VALIDATED if doubt == "serve" else Reason.NOT_VALIDATED)
    assert decision.detail["in_doubt"] is True


def test_verifiers_are_asked_in_order_until_one_is_sure() -> None:
    three = policy(verifiers=["local", "cross_encoder", "judge:a", "judge:b"])
    further = Opinions({("cross_encoder", SAME): Agreement(None, 0.7), ("judge:a", SAME): Agreement(True, 1.0)})
    decision = decided(candidate(SAME, 0.99), policy=three, first=Scores(otherwise=0.6), further=further)
    assert isinstance(decision, Hit)
    assert [effect.verifier for effect in further.asked] == ["cross_encoder", "judge:a"]
    assert decision.detail["before"]["name"] == "cross_encoder"


SIX = {f"How do I renew my visa {'please ' * n}?": score for n, score in enumerate((0.55, 0.89, 0.7, 0.3, 0.8, 0.6), 1)}


def test_at_most_two_candidates_are_asked_about_the_best_score_first() -> None:
    texts = list(SIX)
    further = Opinions(otherwise=Agreement(False, 0.1))
    candidates = [candidate(text, 0.99 - n / 100, name=f"e{n}") for n, text in enumerate(texts)]
    decision = decided(*candidates, policy=TWO, first=Scores(SIX), further=further, doubt="serve")
    assert further.texts == [texts[1], texts[4]]
    assert decision.reason is Reason.NOT_VALIDATED


def test_the_second_is_not_asked_about_where_the_first_is_agreed_to() -> None:
    texts = list(SIX)
    further = Opinions()
    candidates = [candidate(text, 0.99 - n / 100, name=f"e{n}") for n, text in enumerate(texts)]
    decision = decided(*candidates, policy=TWO, first=Scores(SIX), further=further)
    assert isinstance(decision, Hit)
    assert decision.value.question == texts[1]
    assert further.texts == [texts[1]]


def test_a_sure_one_is_served_before_anybody_is_asked_about_a_nearer_one_in_doubt() -> None:
    further = Opinions()
    near, far = candidate(DOUBTED, 0.99, name="near"), candidate(SAME, 0.85, name="far")
    decision = decided(near, far, policy=TWO, first=Scores({DOUBTED: 0.6}), further=further)
    assert isinstance(decision, Hit)
    assert decision.value.entry_id == "far"
    assert further.asked == []


# several candidates, and age


def test_the_next_candidate_is_tried_after_a_guard_and_after_a_verifier() -> None:
    right = candidate("Please convert 100 USD to EUR!", 0.92, name="right")
    decision = decided(candidate(CONVERT_MORE, 0.99, name="wrong"), right, query=CONVERT)
    assert isinstance(decision, Hit)
    assert decision.value.entry_id == "right"
    wrong, right = candidate(OTHER, 0.99, name="wrong"), candidate(SAME, 0.92, name="right")
    decision = decided(wrong, right, first=Scores({OTHER: 0.2}))
    assert isinstance(decision, Hit)
    assert decision.value.entry_id == "right"


def test_the_reason_is_that_of_the_nearest_live_candidate() -> None:
    first = Scores({OTHER: 0.6, DOUBTED: 0.7, SAME: 0.8})
    far = [candidate(SAME, 0.85, name="far"), candidate(DOUBTED, 0.84, name="farther")]
    further = Opinions(otherwise=Agreement(False, 0.1))
    # the nearest is in doubt, but by its score the last of three, so that nobody is asked about it
    decision = decided(
        expired(SAME, 0.995), candidate(OTHER, 0.99, name="near"), *far, policy=TWO, first=first, further=further
    )
    assert further.texts == [SAME, DOUBTED]
    assert (decision.reason, decision.detail["entry_id"]) == (Reason.NOT_VALIDATED, "near")
    assert (decision.detail["in_doubt"], decision.detail["verifier"]["score"]) == (True, 0.6)
    rejected = decided(candidate(CONVERT_MORE, 0.99, name="near"), *far, query=CONVERT, first=Scores(otherwise=0.0))
    assert (rejected.reason, rejected.detail["entry_id"]) == (Reason.GUARD_REJECTED, "near")


def test_an_expired_entry_is_skipped_for_a_live_one() -> None:
    decision = decided(expired(SAME, 0.99), candidate(SAME, 0.91, name="live"))
    assert isinstance(decision, Hit)
    assert decision.value.entry_id == "live"


def test_expired_is_said_only_where_nothing_else_was_near() -> None:
    old = expired(SAME, 0.99)
    assert decided(old).reason is Reason.EXPIRED
    assert decided(old, candidate(SAME, 0.5)).reason is Reason.EXPIRED
    assert decided(old, candidate(OTHER, 0.95), first=Scores(otherwise=0)).reason is Reason.NOT_VALIDATED
    assert decided(expired(SAME, 0.5)).reason is Reason.BELOW_THRESHOLD


def test_age_is_also_the_askers() -> None:
    assert decided(candidate(SAME, 0.99), max_age_s=100.5).reason is Reason.VALIDATED
    assert decided(candidate(SAME, 0.99), max_age_s=99.5).reason is Reason.EXPIRED


SCORE = st.sampled_from([0.0, 0.3, 0.5, 0.7, 0.9, 1.0, math.nan])
SAID = st.builds(Agreement, st.sampled_from([True, False, None]), SCORE)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([SAME, DOUBTED, OTHER]), SCORE, st.booleans()), max_size=6),
    st.lists(SAID, min_size=2, max_size=2),
    st.sampled_from(["miss", "serve"]),
)
def test_whatever_verifiers_say_a_hit_has_its_grounds(
    entries: list[tuple[str, float, bool]], said: list[Agreement], doubt: str
) -> None:
    texts = [f"{text} {'please ' * n}" for n, (text, _, _) in enumerate(entries)]
    scores = Scores({text: score for text, (_, score, _) in zip(texts, entries, strict=True)})
    candidates = [
        (candidate if live else expired)(text, 0.99 - n / 100, name=f"e{n}")
        for n, (text, (_, _, live)) in enumerate(zip(texts, entries, strict=True))
    ]
    answers = iter(said)
    further = Opinions()
    answered: dict[str, Agreement] = {}

    def perform(effect: Verify) -> Agreement:
        further.asked.append(effect)
        return answered.setdefault(effect.cached, next(answers))

    decision = decided(*candidates, policy=TWO, first=scores, further=perform, doubt=doubt)  # type: ignore[arg-type]
    live = {t: s for t, (_, s, is_live) in zip(texts, entries, strict=True) if is_live}
    assert len(further.asked) <= 2
    assert all(0.5 <= live[text] < 0.9 for text in further.texts)
    if isinstance(decision, Hit):
        text = decision.value.question
        if live[text] < 0.9:
            opinion = answered[text]
            sure = opinion.agrees is True or opinion.score >= 0.9
            assert opinion.agrees is not False
            assert opinion.score >= 0.5
            assert sure or doubt == "serve"
    elif live:
        assert decision.detail["entry_id"] == f"e{texts.index(next(iter(live)))}"
        assert not any(score >= 0.9 for score in live.values())


# the policy


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"accept_score": 0.3}, r"accept_score \(0.3\) must not be below doubt_score \(0.4\)"),
        ({"doubt_score": 0.95}, r"accept_score \(0.75\) must not be below doubt_score \(0.95\)"),
        ({"verifiers": ["bert"]}, "allowed: local, lexical, cross_encoder, cross_encoder:NAME, judge:ENGINE"),
        ({"verifiers": ["local", "judge:"]}, "allowed: local"),
        ({"verifiers": ["local", "cross_encoder:"]}, "allowed: local"),
        ({"verifiers": ["local", "Local\n"]}, "allowed: local"),
        ({"verifiers": ["cross_encoder"]}, r"must begin with local or lexical: for example \[local, cross_encoder\]"),
        ({"verifiers": ["local", "lexical"]}, "only the first can be local or lexical; leave the others out"),
        ({"verifiers": ["local", "judge:a", "judge:a"]}, "names one twice"),
        ({"accept_score": True}, "true and false are no numbers"),
        ({"verifier_deadline_ms": 0}, "greater than 0"),
    ],
)
def test_a_policy_that_cannot_be_says_what_to_do(values: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SemanticPolicy.model_validate(values)


def test_a_policy_file_names_the_place_of_a_wrong_verifier() -> None:
    with pytest.raises(PolicyError, match=r"shop\.yaml: default\.semantic\.verifiers\.1: .*allowed: local.*'bert'"):
        PolicySet.parse("default: {semantic: {verifiers: [local, bert]}}", "shop.yaml")
    kept = PolicySet.parse("default: {semantic: {verifiers: [local, 'judge:gpt 4', 'cross_encoder:a/b']}}", "shop.yaml")
    assert kept.policy("default").semantic.verifiers == ("local", "judge:gpt 4", "cross_encoder:a/b")
