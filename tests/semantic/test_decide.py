"""Bands, guards, verifier, freshness and doubt: which candidate is served, and what is said where none is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cachestack.decisions import Hit, Miss, Reason
from cachestack.entries import Candidate, Entry
from cachestack.keys import Partition
from cachestack.policy import FallbackPolicy, SemanticPolicy
from cachestack.semantic.decide import Query, decide
from cachestack.semantic.text import Text
from cachestack.semantic.verify import Agreement

NOW_S = 1_000.0
ASKED = Query("How do I renew my visa?", "en")
SAME = "What is the best way to renew my visa?"
OTHER = "How do I cancel my visa?"
POLICY = SemanticPolicy()


def candidate(question: str, similarity: float, *, expires_at_s: float = 2_000.0, name: str = "e1") -> Candidate:
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
        expires_at_s=expires_at_s,
        stale_until_s=expires_at_s,
        language="en",
    )
    return Candidate(entry, similarity)


def asked(
    *candidates: Candidate, policy: SemanticPolicy = POLICY, doubt: str = "miss", **options: object
) -> Hit[Entry] | Miss:
    fallback = FallbackPolicy(semantic_doubt=doubt)  # type: ignore[arg-type]
    decision = decide(ASKED, candidates, policy, fallback, now_s=NOW_S, **options)  # type: ignore[arg-type]
    json.dumps(decision.detail, allow_nan=False)
    return decision


class Says:
    """A verifier with a fixed opinion, which notes what it was asked."""

    def __init__(self, agrees: bool | None) -> None:
        self.agrees = agrees
        self.similarities: list[float] = []

    def verify(self, cached: Text, asked: Text, similarity: float) -> Agreement:
        self.similarities.append(similarity)
        return Agreement(self.agrees, 0.5)


class Fails:
    def verify(self, cached: Text, asked: Text, similarity: float) -> Agreement:
        raise TimeoutError("the judge did not answer")


@pytest.mark.parametrize(
    ("similarity", "reason"),
    [
        (0.7999, Reason.BELOW_THRESHOLD),
        (0.80, Reason.VALIDATED),
        (0.8999, Reason.VALIDATED),
        (0.90, Reason.SIMILAR),
        (1.0, Reason.SIMILAR),
    ],
)
def test_the_bands_include_their_lower_end(similarity: float, reason: Reason) -> None:
    decision = asked(candidate(SAME, similarity))
    assert decision.reason is reason
    assert isinstance(decision, Hit) is (reason is not Reason.BELOW_THRESHOLD)
    assert decision.detail["similarity"] == pytest.approx(similarity)


def test_a_hit_says_how_it_came_about() -> None:
    decision = asked(candidate(SAME, 0.95))
    assert isinstance(decision, Hit)
    assert decision.value.entry_id == "e1"
    assert decision.detail["band"] == "accept"
    assert decision.detail["age_s"] == 100.0
    assert decision.detail["entry_id"] == "e1"
    assert decision.detail["guards_passed"] > 10


def test_no_candidate_is_no_entry() -> None:
    assert asked().reason is Reason.NO_ENTRY


@pytest.mark.parametrize("similarity", [0.85, 0.99, 1.0])
def test_a_guard_stops_any_similarity(similarity: float) -> None:
    decision = asked(candidate(OTHER, similarity))
    assert decision.reason is Reason.GUARD_REJECTED
    assert decision.detail["guard"] == "content"
    assert decision.detail["evidence"]["cached"] == ["cancel"]
    assert decision.detail["entry_id"] == "e1"


def test_the_next_candidate_is_tried_after_a_guard() -> None:
    decision = asked(candidate(OTHER, 0.99, name="wrong"), candidate(SAME, 0.92, name="right"))
    assert isinstance(decision, Hit)
    assert decision.value.entry_id == "right"


def test_the_reason_is_that_of_the_nearest_live_candidate() -> None:
    decision = asked(candidate(OTHER, 0.99, name="near"), candidate("How do I renew my card?", 0.85, name="far"))
    assert decision.detail["entry_id"] == "near"


def test_an_expired_entry_is_skipped_for_a_live_one() -> None:
    old = candidate(SAME, 0.99, expires_at_s=NOW_S, name="old")
    decision = asked(old, candidate(SAME, 0.91, name="live"))
    assert isinstance(decision, Hit)
    assert decision.value.entry_id == "live"


def test_expired_is_said_only_where_nothing_else_was_near() -> None:
    old = candidate(SAME, 0.99, expires_at_s=NOW_S, name="old")
    assert asked(old).reason is Reason.EXPIRED
    assert asked(old, candidate(SAME, 0.5)).reason is Reason.EXPIRED
    assert asked(old, candidate(OTHER, 0.95)).reason is Reason.GUARD_REJECTED
    assert asked(candidate(SAME, 0.5, expires_at_s=NOW_S)).reason is Reason.BELOW_THRESHOLD


def test_a_sensitive_scope_never_serves_from_the_middle_band() -> None:
    sensitive = replace_policy(sensitive=True)
    verifier = Says(True)
    assert asked(candidate(SAME, 0.85), policy=sensitive, verifier=verifier).reason is Reason.SENSITIVE_SCOPE
    assert verifier.similarities == []
    assert asked(candidate(SAME, 0.90), policy=sensitive).reason is Reason.SIMILAR


def test_the_verifier_is_asked_in_the_middle_band_only_and_after_the_guards() -> None:
    verifier = Says(True)
    asked(candidate(SAME, 0.95), verifier=verifier)
    asked(candidate(OTHER, 0.85), verifier=verifier)
    assert verifier.similarities == []
    assert asked(candidate(SAME, 0.85), verifier=verifier).reason is Reason.VALIDATED
    assert verifier.similarities == [0.85]


def test_a_verifier_that_disagrees_is_a_miss_even_where_doubt_serves() -> None:
    for doubt in ("miss", "serve"):
        assert asked(candidate(SAME, 0.85), verifier=Says(False), doubt=doubt).reason is Reason.NOT_VALIDATED


def test_doubt_follows_the_policy() -> None:
    assert asked(candidate(SAME, 0.85), verifier=Says(None)).reason is Reason.NOT_VALIDATED
    served = asked(candidate(SAME, 0.85), verifier=Says(None), doubt="serve")
    assert served.reason is Reason.VALIDATED
    assert served.detail["in_doubt"] is True


def test_a_verifier_that_fails_is_a_miss_even_where_doubt_serves() -> None:
    decision = asked(candidate(SAME, 0.85), verifier=Fails(), doubt="serve")
    assert decision.reason is Reason.NOT_VALIDATED
    assert "did not answer" in decision.detail["verifier"]["error"]


@pytest.mark.parametrize("bands", [(0.5, 0.6), (0.95, 0.95), (0.0, 1.0)])
def test_other_bands_from_the_policy(bands: Sequence[float]) -> None:
    policy = replace_policy(reject_below=bands[0], accept_from=bands[1])
    just_below = asked(candidate(SAME, bands[0] - 0.01), policy=policy)
    assert just_below.reason is Reason.BELOW_THRESHOLD
    assert asked(candidate(SAME, bands[1]), policy=policy).reason is Reason.SIMILAR


def test_an_unknown_language_is_taken_to_be_the_others() -> None:
    french = candidate("Comment activer le wifi ?", 0.95)
    french = Candidate(replace(french.entry, language="fr"), 0.95)
    decision = decide(Query("comment desactiver le wifi", None), [french], POLICY, FallbackPolicy(), NOW_S)
    assert decision.reason is Reason.GUARD_REJECTED
    assert decision.detail["guard"] in ("negation", "opposites")


def test_another_language_is_rejected() -> None:
    french = Candidate(replace(candidate("Internet ?", 0.95).entry, language="fr"), 0.95)
    decision = decide(Query("Internet?", "en"), [french], POLICY, FallbackPolicy(), NOW_S)
    assert decision.detail["guard"] == "language"


def test_a_very_long_text_is_not_read() -> None:
    text = "visa " * 1_000
    decision = decide(Query(text, "en"), [candidate(text, 1.0)], POLICY, FallbackPolicy(), NOW_S)
    assert decision.reason is Reason.GUARD_REJECTED
    assert decision.detail["guard"] == "length"


def replace_policy(**values: object) -> SemanticPolicy:
    return SemanticPolicy.model_validate(POLICY.model_dump() | values)
