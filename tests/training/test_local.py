"""The local verifier is trained from the corpus alone, and the same way every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cachestack.corpus import load_questions
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.text import analyse
from cachestack.semantic.verifiers.artefact import read, shipped, write
from cachestack.semantic.verifiers.base import Side
from cachestack.semantic.verifiers.local import LocalVerifier
from cachestack.training import gathering, growing, local


@pytest.fixture(scope="module")
def minilm(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corpus of forty questions a part, few trees and one pass of the head."""

    def some(split: str) -> Any:
        assert split != "test", "the test part is for measuring at the end"
        return load_questions(split)[::60][:40]  # type: ignore[arg-type]

    monkeypatch.setattr(gathering, "load_questions", some)
    monkeypatch.setattr(local, "load_questions", some)
    monkeypatch.setattr(growing, "NUM_TREES", 12)
    monkeypatch.setattr(local, "HEAD_EPOCHS", 1)


@pytest.mark.usefixtures("few")
def test_training_gives_the_same_file_each_time_and_reads_back(minilm: SentenceEncoder) -> None:
    first = local.train_local(minilm, minilm.weights_sha256, seed=3, say=lambda _: None)
    again = local.train_local(minilm, minilm.weights_sha256, seed=3, say=lambda _: None)
    assert write(first) == write(again)
    back = read(write(first))
    assert back.card == first.card
    assert back.encoder_sha256 == minilm.weights_sha256
    row = np.linspace(-1, 1, len(local.feature_names(True)), dtype=np.float32)
    assert back.with_states.score(row) == first.with_states.score(row)
    other = local.train_local(minilm, minilm.weights_sha256, seed=4, say=lambda _: None)
    assert write(other) != write(first)


def test_what_ships_is_small_and_knows_a_rewording_from_a_near_miss(minilm: SentenceEncoder) -> None:
    made = shipped()
    assert len(write(made)) < 5_000_000
    assert made.encoder_sha256 == minilm.weights_sha256
    verifier = LocalVerifier(made)

    def score(cached: str, asked: str) -> float:
        sides, vectors = [], []
        for text in (cached, asked):
            (one,) = minilm.encode_with_tokens([text])
            sides.append(Side(analyse(text, "en"), made.basis.pack(text, one.tokens)))
            vectors.append(one.vector)
        found, with_states = verifier.score(sides[0], sides[1], float(vectors[0] @ vectors[1]))
        assert with_states
        return found

    same = score("How do I reset my password?", "How can I reset my password please?")
    assert same > 0.9
    assert score("How do I switch roaming on?", "How do I switch roaming off?") < 0.2
    assert score("Flights from Leeds to York", "Flights from York to Leeds") < 0.2
