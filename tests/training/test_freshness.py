"""The freshness model's training: practice is drawn alike each time, and what ships is what it makes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cachestack.corpus import load_freshness, load_questions
from cachestack.errors import ModelError
from cachestack.semantic.freshness.cues import folded
from cachestack.semantic.freshness.model import read, shipped, write
from cachestack.training.freshness import instructions, judged, practice, read_patterns, train_freshness


def test_practice_is_the_same_for_the_same_seed_and_has_no_empty_slot() -> None:
    drawn = practice(0)
    assert drawn == practice(0) != practice(1)
    assert len(drawn) > 2000
    assert not any("{" in one.question for one in drawn)
    assert {one.changes for one in drawn} == {"never", "slow", "fast"}


def test_a_bad_line_of_patterns_is_an_error() -> None:
    assert read_patterns("# note\nfast en is it {x}\nx: a | b\n") == ([("fast", "is it {x}")], {"x": ["a", "b"]})
    with pytest.raises(ValueError, match="neither"):
        read_patterns("often en what\n")


def test_no_question_of_the_parts_that_are_held_back_is_learnt_from() -> None:
    learnt = {folded(one.question) for one in (*practice(0), *judged(), *instructions())}
    learnt |= {folded(one.question) for one in load_freshness("train")}
    for split in ("validation", "test"):
        assert not learnt & {folded(one.question) for one in load_freshness(split)}
        assert not {folded(one.question) for one in (*judged(), *instructions())} & {
            folded(question.text) for question in load_questions(split)
        }


def test_what_ships_is_what_the_training_makes() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn comes with the extra `local`")
    made, ours = train_freshness(seed=0, say=lambda what: None), shipped()
    assert np.allclose(made.weights, ours.weights, atol=0.01)
    for name in ("unsure_from", "sure_from", "fast_from"):
        assert getattr(made, name) == pytest.approx(getattr(ours, name), abs=0.01)


def test_a_file_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(shipped())
    assert np.array_equal(read(data).weights, shipped().weights)
    monkeypatch.setattr("cachestack.semantic.freshness.model.FORMAT", 99)
    with pytest.raises(ModelError, match="another version"):
        read(data)
