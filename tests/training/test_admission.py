"""The admission model's training: practice is drawn alike each time, and what ships is what it makes."""

from __future__ import annotations

import numpy as np
import pytest

from cachestack.corpus import load_admission
from cachestack.errors import ModelError
from cachestack.semantic.admission.model import read, shipped, write
from cachestack.training.admission import good_answers, practice, read_patterns, train_admission


def test_practice_is_the_same_for_the_same_seed_and_of_every_kind() -> None:
    drawn = practice(0)
    assert drawn == practice(0) != practice(1)
    assert len(drawn) > 700
    assert {one.kind for one in drawn} == {"good", "refusal", "apology", "error", "cut", "ask_back"}
    assert {one.answer for one in drawn if "{" in one.answer and "}" not in one.answer} == set()


def test_a_bad_line_of_patterns_is_an_error() -> None:
    assert read_patterns("# note\nerror en {x}\nx: a | b\n") == ([("error", "en", "{x}")], {"x": ["a", "b"]})
    with pytest.raises(ValueError, match="neither"):
        read_patterns("maybe en what\n")


def test_no_answer_of_the_test_part_is_learnt_from() -> None:
    learnt = {(one.question, one.answer) for one in (*practice(0), *good_answers())}
    assert not learnt & {(one.question, one.answer) for one in load_admission("test")}


def test_what_ships_is_what_the_training_makes() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn comes with the extra `local`")
    made, ours = train_admission(seed=0, say=lambda what: None), shipped()
    assert np.allclose(made.weights, ours.weights, atol=0.01)
    assert made.refuse_from == pytest.approx(ours.refuse_from, abs=0.01)
    assert made.card["left_out"].keys() == {"1", "2", "3", "4"}


def test_a_file_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = write(shipped())
    assert write(shipped()) == data
    assert len(data) < 500_000
    assert np.array_equal(read(data).weights, shipped().weights)
    monkeypatch.setattr("cachestack.semantic.admission.model.FORMAT", 99)
    with pytest.raises(ModelError, match="another version"):
        read(data)
