"""The local verifier with a tiny artefact: what it reads, on what scale, and how the artefact is kept."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from cachestack.errors import ModelError
from cachestack.semantic.base import TokenStates
from cachestack.semantic.states import Basis, word_spans
from cachestack.semantic.text import analyse
from cachestack.semantic.verifiers import artefact
from cachestack.semantic.verifiers.alignment import equal_words, words_of
from cachestack.semantic.verifiers.artefact import Artefact, feature_names
from cachestack.semantic.verifiers.base import Side, probability
from cachestack.semantic.verifiers.head import Head
from cachestack.semantic.verifiers.local import LocalVerifier, guard_row
from cachestack.semantic.verifiers.trees import Trees

HIDDEN, DIMS = 12, 8


def stump(name: str, threshold: float, below: float, above: float, with_states: bool, base: float = 0.0) -> Trees:
    """One split on one feature, by its name."""
    return Trees(
        feature=np.array([feature_names(with_states).index(name), -1, -1], np.int16),
        threshold=np.array([threshold, 0, 0], np.float32),
        left=np.array([1, 0, 0], np.int32),
        right=np.array([2, 0, 0], np.int32),
        value=np.array([0, below, above], np.float32),
        roots=np.array([0], np.int32),
        base=base,
        depth=1,
    )


def tiny(**changes: Any) -> Artefact:
    rng = np.random.default_rng(3)
    directions, _ = np.linalg.qr(rng.normal(size=(HIDDEN, DIMS)))
    shapes = {
        "project": (DIMS, 4),
        "compare": (4 * DIMS + 3, 6),
        "compare_bias": (6,),
        "attend": (6,),
        "hidden": (12, 5),
        "hidden_bias": (5,),
        "out": (5,),
        "out_bias": (1,),
    }
    made = Artefact(
        basis=Basis(np.zeros(HIDDEN, np.float32), directions.astype(np.float32)),
        heads=(random_head(rng, shapes), random_head(rng, shapes)),
        with_states=stump("best_mean_min", 0.9, -2.0, 2.0, True),
        words_only=stump("slots_differ", 0.5, 1.0, -1.0, False, base=0.5),
        scales={"with_states": (2.0, 0.5), "words_only": (1.0, 0.0)},
        shifts={"with_states": {"en": 0.0, "fr": 0.25}, "words_only": {"en": 0.0, "fr": -0.5}},
        encoder_sha256="e" * 64,
        card={"trained_on": "nothing", "seed": 1},
    )
    return replace(made, **changes)


def random_head(rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> Head:
    return Head.of({f"own_{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}, "own")


def side(made: Artefact, text: str, seed: int | None = 0) -> Side:
    """Each word's state is its own at random, by `seed`; None: without states."""
    if seed is None:
        return Side(analyse(text, "en"))
    spans = np.array(word_spans(text), np.int32)
    states = np.random.default_rng(seed).normal(size=(len(spans), HIDDEN)).astype(np.float32)
    packed = made.basis.pack(text, TokenStates(states, spans))
    assert packed
    return Side(analyse(text, "en"), packed)


SAME = "How do I reset my password?"
OTHER = "When do I reset my password?"


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_with_states_on_both_sides_they_are_read_on_their_own_scale() -> None:
    made = tiny()
    verifier = LocalVerifier(made)
    alike = verifier.verify(side(made, SAME, 1), side(made, SAME, 1), 0.9)
    assert (alike.agrees, alike.evidence) == (None, {"read": "states"})
    assert alike.score == pytest.approx(sigmoid(2 * 2 + 0.5), abs=1e-9)
    apart = verifier.verify(side(made, SAME, 1), side(made, SAME, 2), 0.9)
    assert apart.score == pytest.approx(sigmoid(2 * -2 + 0.5), abs=1e-9)


@pytest.mark.parametrize("states", [(None, None), (0, None), (None, 0)])
def test_without_states_on_a_side_only_words_are_read(states: tuple[int | None, int | None]) -> None:
    made = tiny()
    verifier = LocalVerifier(made)
    for text, score in ((SAME, sigmoid(1.5)), (OTHER, sigmoid(-0.5))):
        said = verifier.verify(side(made, SAME, states[0]), side(made, text, states[1]), 0.9)
        assert said.evidence == {"read": "words"}
        assert said.score == pytest.approx(score, abs=1e-9)


def test_states_that_are_not_of_the_text_are_not_read() -> None:
    made = tiny()
    wrong = Side(analyse(SAME, "en"), side(made, "one word more than that, or two").states)
    said = LocalVerifier(made).verify(wrong, side(made, SAME), 0.9)
    assert said.evidence == {"read": "words"}


@pytest.mark.parametrize("name", ["cosine", "head"])
def test_cosine_and_the_heads_mean_score_are_the_last_two_columns(name: str) -> None:
    made = tiny()
    scores: list[float] = []
    for seed in range(2, 12):
        sides = side(made, SAME, 1), side(made, SAME, seed)
        one, other = (words_of(s.text, made.basis.unpack(SAME, s.states)) for s in sides)
        scores.append(sum(head.score(one, other, equal_words(one, other)) for head in made.heads) / 2)
    assert max(scores) > min(scores)
    threshold = 0.7 if name == "cosine" else (max(scores) + min(scores)) / 2
    made = tiny(with_states=stump(name, threshold, -1.0, 1.0, True), scales={"with_states": (1.0, 0.0)})
    verifier = LocalVerifier(made)
    found = {
        verifier.verify(side(made, SAME, 1), side(made, SAME, seed), cosine).score
        for cosine in (0.6, 0.8)
        for seed in range(2, 12)
    }
    assert sorted(found) == pytest.approx([sigmoid(-1), sigmoid(1)])


def test_the_score_does_not_depend_on_the_order() -> None:
    made = tiny(with_states=stump("head", 0.1, -1.0, 1.0, True))
    verifier = LocalVerifier(made)
    for seed in range(5):
        one, other = side(made, SAME, seed), side(made, "How can I change the passwords of 2 users?", seed + 9)
        assert verifier.verify(one, other, 0.9).score == verifier.verify(other, one, 0.9).score


def test_a_log_odds_that_is_no_number_is_no_agreement() -> None:
    assert math.isnan(probability(math.nan))
    assert probability(math.inf) == pytest.approx(1)
    assert probability(-math.inf) == pytest.approx(0)
    assert probability(0.0) == 0.5
    made = tiny(scales={"words_only": (math.nan, 0.0)})
    assert math.isnan(LocalVerifier(made).verify(side(made, SAME, None), side(made, SAME, None), 0.9).score)


@pytest.mark.parametrize(
    ("cached", "asked", "shift"), [("en", "en", 0.0), ("fr", "fr", -0.5), ("en", "fr", 0.0), (None, None, 0.0)]
)
def test_a_languages_shift_is_added_where_both_texts_are_in_it(
    cached: str | None, asked: str | None, shift: float
) -> None:
    made = tiny()
    sides = (Side(analyse(SAME, cached)), Side(analyse(SAME, asked)))
    unshifted = made.words_only.score(guard_row(sides[0].text, sides[1].text))
    score, with_states = LocalVerifier(made).score(*sides, 0.9)
    assert not with_states
    assert score == pytest.approx(probability(unshifted + shift))


# the artefact


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.tolist())
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return value


def test_it_is_read_as_it_was_written_and_written_alike() -> None:
    made = tiny()
    data = artefact.write(made)
    read = artefact.read(data)
    assert plain(read) == plain(made)
    assert artefact.write(read) == data == artefact.write(tiny())


def changed(**changes: Any) -> bytes:
    """The written artefact with other values in its `meta`."""
    with np.load(io.BytesIO(artefact.write(tiny()))) as arrays:
        found = dict(arrays)
    found["meta"] = np.array(json.dumps(json.loads(str(found["meta"])) | changes))
    file = io.BytesIO()
    np.savez(file, **found)
    return file.getvalue()


def test_one_of_another_version_is_refused() -> None:
    assert plain(artefact.read(changed())) == plain(tiny())
    with pytest.raises(ModelError, match="has format 3; this version reads 2"):
        artefact.read(changed(format=3, features={}))
    fewer = {"with_states": list(feature_names(True)), "words_only": list(feature_names(False))[:-1]}
    with pytest.raises(ModelError, match="other features than this version computes"):
        artefact.read(changed(features=fewer))
    turned = {"with_states": list(feature_names(True))[::-1], "words_only": list(feature_names(False))}
    with pytest.raises(ModelError, match="other features"):
        artefact.read(changed(features=turned))
