"""Sweeps: curves from scores, worked out by hand and checked against counting anew at every threshold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.decisions import Reason
from cachestack.evaluation.judging import Outcome, judge_pairs
from cachestack.evaluation.pairs import pair_of
from cachestack.evaluation.scores import scale_of, score_of, similarity_of, with_open_bands
from cachestack.evaluation.sweep import Curve, curve, sweep
from cachestack.evaluation.sweep_plot import plot_sweeps
from cachestack.policy import Policy
from cachestack.semantic.embed import SentenceEncoder


def outcome(same: bool, score: float | None, reason: Reason = Reason.NOT_VALIDATED, **detail: Any) -> Outcome:
    pair = pair_of({"a": "x", "b": "y", "same_answer": same}, "here:1")
    verifier = {} if score is None else {"verifier": {"name": "local", "score": score, "threshold": 0.5}}
    return Outcome(pair, False, reason, {"similarity": 0.85, **verifier, **detail})


def test_a_score_is_the_verifiers_or_the_similarity() -> None:
    assert score_of(outcome(True, 0.7)) == 0.7
    assert score_of(outcome(True, None)) == 0.85
    assert score_of(outcome(True, 0.9, Reason.GUARD_REJECTED)) == -math.inf
    assert score_of(outcome(True, None, Reason.EXACT)) == math.inf
    assert score_of(Outcome(outcome(True, 0.1).pair, False, Reason.BEYOND_WINDOW, {})) is None
    assert similarity_of(outcome(True, 0.7, Reason.GUARD_REJECTED)) == 0.85


def test_a_verifier_that_does_not_grade_leaves_the_similarity() -> None:
    for verifier in ({"only_asked": ["please"]}, {"name": "lexical", "score": 1.0}, {"name": "judge", "score": None}):
        one = outcome(True, None, verifier=verifier)
        assert score_of(one) == 0.85
        assert scale_of((one,)) == "similarity"
    assert scale_of((outcome(True, 0.1), outcome(True, None))) == "verifier:local"


def test_a_curve_worked_out_by_hand() -> None:
    outcomes = [
        outcome(True, None, Reason.EXACT),
        outcome(True, 0.9),
        outcome(False, 0.8),
        outcome(True, 0.8),
        outcome(True, 0.3),
        outcome(False, 0.2),
        outcome(False, 0.99, Reason.GUARD_REJECTED),  # never served
        Outcome(outcome(False, 0.5).pair, False, Reason.BEYOND_WINDOW, {}),  # never served
    ]
    found = curve(outcomes, score_of, "verifier:local")
    assert [(p.threshold, p.served.served, p.wrong.served) for p in found.points] == [
        (None, 1, 0),
        (0.9, 2, 0),
        (0.8, 3, 1),
        (0.3, 4, 1),
        (0.2, 4, 2),
    ]
    assert {(p.served.n, p.wrong.n) for p in found.points} == {(4, 4)}
    at = found.as_dict()["served_at"]
    assert list(at) == ["0.01", "0.02", "0.05"]
    assert (at["0.05"]["threshold"], at["0.05"]["served"], at["0.05"]["wrong"]) == (0.9, 0.5, 0)
    assert at["0.05"]["served_interval"] == pytest.approx([0.1500, 0.8500], abs=5e-5)
    point = found.at(0.25)
    assert point is not None
    assert (point.threshold, point.served.rate) == (0.3, 1.0)


def test_where_nothing_can_be_served_within_a_bound() -> None:
    assert curve([outcome(False, None, Reason.EXACT), outcome(True, 0.9)], score_of, "x").at(0.05) is None
    assert curve([outcome(True, 0.9)], score_of, "x").at(0.05) is None  # no traps: there is nothing to bound


scores = st.one_of(st.none(), st.sampled_from([math.inf, -math.inf]), st.integers(0, 6).map(lambda n: n / 6))


@given(st.lists(st.tuples(st.booleans(), scores), min_size=1, max_size=60))
def test_a_curve_counts_as_serving_at_each_threshold_would(drawn: list[tuple[bool, float | None]]) -> None:
    outcomes = [outcome(same, None, number=n) for n, (same, _) in enumerate(drawn)]
    found = curve(outcomes, lambda o: drawn[o.detail["number"]][1], "x")
    for point in found.points:
        threshold = math.inf if point.threshold is None else point.threshold
        for same, share in ((True, point.served), (False, point.wrong)):
            assert share.served == sum(s is same and v is not None and v >= threshold for s, v in drawn)
    kept = found.spaced
    assert (kept[0], kept[-1]) == (found.points[0], found.points[-1])
    assert set(kept) <= set(found.points)


def test_many_points_are_thinned_and_few_are_not() -> None:
    long = curve([outcome(n % 2 == 0, n / 10_000) for n in range(10_000)], score_of, "x")
    assert len(long.points) == 10_001
    assert len(long.spaced) < 300
    assert len(Curve("x", long.points[:3]).spaced) <= 3


def test_open_bands_score_what_the_policy_refuses(encoder_path: Path) -> None:
    """A pair below the policy's threshold has a score with open bands, and a guard still refuses."""
    rows = [
        ("How do I reset my password?", "I forgot my password, what now?", True),
        ("How do I renew my visa?", "how do i renew my visa", True),
        ("How do I renew my visa?", "How do I cancel my visa?", False),
        ("How do I renew my visa?", "How do I renew my visa?", True),
    ]
    pairs = [pair_of({"a": a, "b": b, "same_answer": same}, "here:1") for a, b, same in rows]
    encoder = SentenceEncoder(str(encoder_path))
    guards_alone = Policy.model_validate({"semantic": {"verifiers": [], "reject_below": 0.8}})
    decided = judge_pairs(pairs, guards_alone, encoder)
    opened = judge_pairs(pairs, with_open_bands(guards_alone), encoder)
    assert [o.served for o in decided] == [False, True, False, True]
    assert decided[0].reason is Reason.BELOW_THRESHOLD
    assert opened[0].reason is not Reason.BELOW_THRESHOLD
    assert similarity_of(opened[0]) == similarity_of(decided[0])
    assert score_of(opened[1]) == similarity_of(opened[1])
    assert score_of(opened[2]) == -math.inf
    assert score_of(opened[3]) == math.inf
    found = sweep(decided, opened).as_dict()
    assert found["policy"]["served"] == pytest.approx(2 / 3)
    assert found["policy"]["wrong"] == 0
    assert found["cosine"]["points"][-1]["served"] == 1
    json.dumps(found, allow_nan=False)


def test_a_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcomes = [outcome(n % 2 == 0, n / 20) for n in range(20)]
    found = sweep(outcomes, outcomes).as_dict()
    plot_sweeps({"one $ two $.jsonl": found, "other.jsonl": found}, tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
