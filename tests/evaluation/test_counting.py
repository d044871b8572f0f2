"""What decided, languages and times, from outcomes whose counts were worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cachestack.decisions import Reason
from cachestack.evaluation.counting import Share, language_of, summarise
from cachestack.evaluation.deciding import decided_by
from cachestack.evaluation.judging import Outcome, judge_pairs
from cachestack.evaluation.pairs import Pair, pair_of
from cachestack.policy import Policy
from cachestack.semantic.embed import SentenceEncoder


def pair(b: str = "How do I renew my visa?", *, same: bool = True, language: str | None = None) -> Pair:
    row: dict[str, Any] = {"a": "How do I renew my visa?", "b": b, "same_answer": same, "language": language}
    return pair_of(row, "here:1")


def outcome(reason: Reason, *, served: bool, same: bool = True, ms: float = 1.0, **detail: Any) -> Outcome:
    return Outcome(pair(same=same), served, reason, detail, ms)


@pytest.mark.parametrize(
    ("reason", "served", "detail", "word"),
    [
        (Reason.EXACT, True, {}, "exact"),
        (Reason.SIMILAR, True, {"band": "accept"}, "band:accept"),
        (Reason.VALIDATED, True, {"verifier": {"name": "local", "score": 0.9}}, "verifier:local:agree"),
        (Reason.VALIDATED, True, {"verifier": {"why": "words"}, "in_doubt": False}, "verifier:lexical:agree"),
        (Reason.VALIDATED, True, {"verifier": {"name": "local"}, "in_doubt": True}, "verifier:local:undecided:served"),
        (Reason.NOT_VALIDATED, False, {"verifier": {"name": "cross_encoder"}}, "verifier:cross_encoder:refuse"),
        (Reason.NOT_VALIDATED, False, {"verifier": {"name": "judge", "error": "late"}}, "verifier:judge:failed"),
        (Reason.NOT_VALIDATED, False, {"verifier": {"name": "judge", "agrees": None}}, "verifier:judge:undecided"),
        (Reason.GUARD_REJECTED, False, {"guard": "numbers"}, "guard:numbers"),
        (Reason.NOT_VALIDATED, False, {"band": "validate"}, "band:validate:refuse"),
        (Reason.NOT_VALIDATED, False, {"verifier": {"name": "local"}, "in_doubt": True}, "verifier:local:undecided"),
        (Reason.BELOW_THRESHOLD, False, {"similarity": 0.2}, "below_threshold"),
        (Reason.BEYOND_WINDOW, False, {}, "beyond_window"),
    ],
)
def test_what_decided_has_one_word(reason: Reason, served: bool, detail: dict[str, Any], word: str) -> None:
    assert decided_by(outcome(reason, served=served, **detail)) == word


def test_what_decided_is_counted_apart() -> None:
    summary = summarise(
        [
            outcome(Reason.GUARD_REJECTED, served=False, same=False, guard="numbers"),
            outcome(Reason.GUARD_REJECTED, served=False, same=False, guard="numbers"),
            outcome(Reason.GUARD_REJECTED, served=False, guard="numbers"),
            outcome(Reason.SIMILAR, served=True, band="accept"),
            outcome(Reason.SIMILAR, served=True, same=False, band="accept"),
            outcome(Reason.EXACT, served=True),
        ]
    )
    assert list(summary["decided_by"].items()) == [("guard:numbers", 3), ("band:accept", 2), ("exact", 1)]
    assert summary["decided_by_kind"] == {
        "should_hit": {"served": {"band:accept": 1, "exact": 1}, "missed": {"guard:numbers": 1}},
        "traps": {"served": {"band:accept": 1}, "missed": {"guard:numbers": 2}},
    }
    assert sum(summary["decided_by"].values()) == summary["should_hit"]["n"] + summary["traps"]["n"]


def test_the_file_says_the_language_or_the_text_does() -> None:
    assert language_of(pair(language="fr")) == "fr"
    assert language_of(pair()) == "en"
    assert language_of(pair("Comment renouveler mon visa ?")) == "fr"
    assert language_of(pair_of({"a": "404", "b": "404", "same_answer": True}, "here:1")) == "unknown"


def test_languages_are_counted_apart() -> None:
    french = pair("Comment renouveler mon visa ?", same=False)
    summary = summarise([Outcome(pair(), True, Reason.EXACT, {}), Outcome(french, False, Reason.ENCODER_LANGUAGE, {})])
    english, other = summary["by_language"]["en"], summary["by_language"]["fr"]
    assert (english["should_hit"]["n"], english["should_hit"]["served"], english["traps"]["n"]) == (1, 1, 0)
    assert (other["should_hit"]["n"], other["traps"]["n"], other["traps"]["served"]) == (0, 1, 0)


def test_times_are_median_and_nearest_rank_of_what_was_decided() -> None:
    summary = summarise([outcome(Reason.EXACT, served=True, ms=float(ms)) for ms in range(21)])  # 0: never asked
    assert summary["ms_per_decision"] == {"median": 10.5, "p95": 19.0}
    assert summarise([outcome(Reason.DISABLED, served=False, ms=0)])["ms_per_decision"] == {"median": None, "p95": None}


@pytest.mark.parametrize(
    ("served", "n", "low", "high"), [(0, 10, 0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1), (0, 0, 0, 1)]
)
def test_intervals_are_wilsons(served: int, n: int, low: float, high: float) -> None:
    assert Share(n, served).as_dict()["interval"] == pytest.approx([low, high], abs=5e-5)


def test_real_decisions_are_named_and_timed(encoder_path: Path) -> None:
    pairs = [
        pair(),
        pair("how do i renew my visa"),
        pair_of({"a": "Convert 100 USD to EUR", "b": "Convert 250 USD to EUR", "same_answer": False}, "here:1"),
        pair("What do dormice eat?", same=False),
        pair("Comment renouveler mon visa ?"),
        pair("word " * 300, same=False),
    ]
    guards_alone = Policy.model_validate({"semantic": {"verifiers": []}})
    outcomes = judge_pairs(pairs, guards_alone, SentenceEncoder(str(encoder_path)))
    assert [o.served for o in outcomes] == [True, True, False, False, False, False]
    words = [decided_by(o) for o in outcomes]
    assert words == ["exact", "band:accept", "guard:numbers", "below_threshold", "encoder_language", "beyond_window"]
    assert all(0 < o.ms < 60_000 for o in outcomes)
