"""Features of two texts' word states: symmetric, neutral for equal texts, finite for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cachestack.semantic.states import word_spans
from cachestack.semantic.text import analyse
from cachestack.semantic.verifiers.alignment import NAMES, Words, equal_words, features, words_of

DIMS = 16


def words(text: str, language: str | None = "en", seed: int = 0) -> Words:
    """With random unit states; `seed` says which."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(len(word_spans(text)), DIMS)).astype(np.float32)
    return words_of(analyse(text, language), states / np.linalg.norm(states, axis=1, keepdims=True))


def by_name(cached: Words, asked: Words) -> dict[str, float]:
    return dict(zip(NAMES, features(cached, asked, equal_words(cached, asked)).tolist(), strict=True))


def made(states: list[list[float]], weights: list[float], keys: list[str]) -> Words:
    rows = np.array(states, np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Words(rows, np.array(weights, np.float32), tuple(frozenset(k.split("|")) for k in keys))


SENTENCES = [
    ("How do I reset my password?", "What is the way to change passwords, please?"),
    ("Trains from Leeds to York, and from York to Hull", "Trains from York to Leeds to Hull, to York"),
    ("no", "How do I cancel the direct debit of my sister's card, and when?"),
    ("the of and", "or if to"),
    ("Où est ma commande n° 4711 ?", "where is order 4711"),
    ("a b a b c a", "b a c b"),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("one", "other"), SENTENCES)
def test_the_same_whichever_side_comes_first(one: str, other: str, seed: int) -> None:
    ours, theirs = words(one, seed=seed), words(other, seed=seed + 100)
    there, back = by_name(ours, theirs), by_name(theirs, ours)
    assert there == pytest.approx(back, abs=1e-6)


@pytest.mark.parametrize("text", sorted({text for pair in SENTENCES for text in pair}))
def test_equal_texts(text: str) -> None:
    found = by_name(words(text), words(text))
    differences = {"alone_weight_min", "alone_weight_max", "order"}
    free = {"contrast_min", "contrast_max"}  # how much a text's own words resemble each other
    for name, value in found.items():
        if name in differences:
            assert value == 0, name
        elif name not in free:
            assert value == pytest.approx(1, abs=1e-6), name


def test_each_name_says_what_it_holds() -> None:
    """Three words against two, all by hand: x y z, weights .5 .6 .1, against x' w, weights .5 .9."""
    cached = made([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [0.5, 0.6, 0.1], ["x", "y", "z"])
    asked = made([[0.8, 0.6, 0], [0, 0, 1]], [0.5, 0.9], ["x|xs", "w"])
    found = by_name(cached, asked)
    # cosines: x .8 0, y .6 0, z 0 1
    expected = {
        "best_mean_min": (0.5 * 0.8 + 0.6 * 0.6 + 0.1 * 1) / 1.2,
        "best_mean_max": (0.5 * 0.8 + 0.9 * 1) / 1.4,
        "best_lowest_min": 0.6,
        "best_lowest_max": 0.8,
        "best_second_min": 0.8,
        "best_second_max": 1.0,
        "best_third_min": 1.0,
        "alone_lowest_min": 0.6,
        "alone_lowest_max": 1.0,
        "alone_mean_min": (0.6 * 0.6 + 0.1 * 1) / 0.7,
        "alone_mean_max": 1.0,
        "alone_weight_min": 0.7,
        "alone_weight_max": 0.9,
        "heavy_lowest_min": 0.6,
        "equal_lowest_min": 0.8,
        "equal_mean_max": 0.8,
        "order": 0.0,
        "weight_both": 1.2 / 1.4,
        "words_both": 2 / 3,
        "first_words": 0.8,
        "last_words": 1.0,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-5)


def test_swapped_words_show_in_the_order_only() -> None:
    eye = np.eye(3).tolist()
    keys = ["leeds", "york", "hull"]
    straight = made(eye, [0.9] * 3, keys)
    swapped = made([eye[1], eye[0], eye[2]], [0.9] * 3, ["york", "leeds", "hull"])
    turned = made(eye[::-1], [0.9] * 3, keys[::-1])
    assert by_name(straight, swapped)["order"] == pytest.approx(1 / 3)
    assert by_name(straight, turned)["order"] == 1
    assert by_name(straight, swapped)["best_lowest_min"] == 1


def test_a_repeated_word_counts_alike_from_both_sides() -> None:
    eye = np.eye(3)
    twice = made([eye[0], eye[1], eye[0] + 0.1 * eye[2]], [0.9] * 3, ["york", "leeds", "york"])
    once = made([eye[0] + 0.1 * eye[2], eye[1]], [0.9] * 2, ["york", "leeds"])
    assert by_name(twice, once)["order"] == by_name(once, twice)["order"] > 0


def test_words_are_equal_in_any_of_their_forms_and_a_negator_carries_weight() -> None:
    ours, theirs = words("Renewing 2 orders, not mine"), words("renew the order 2")
    equal = equal_words(ours, theirs)
    assert np.argwhere(equal).tolist() == [[0, 0], [1, 3], [2, 2]]
    assert ours.weights[3] >= 0.5
    assert ours.weights[1] == 1.0
    assert theirs.weights[1] < 0.2
    np.testing.assert_array_equal(equal_words(theirs, ours), equal.T)


ANY = st.text(
    st.one_of(st.sampled_from("ab12 '-.,éœß²½\u0301\ud800"), st.characters()), min_size=1, max_size=30
).filter(word_spans)


@settings(max_examples=120, deadline=None)
@given(ANY, ANY, st.integers(0, 1000), st.sampled_from(["en", "fr", None]))
@example("²", "½ x", 0, None)
@example("\u3164 x", "ﷺ", 0, "fr")
def test_any_two_texts_give_finite_symmetric_numbers(one: str, other: str, seed: int, language: str | None) -> None:
    ours, theirs = words(one, language, seed), words(other, language, seed + 1)
    there = features(ours, theirs, equal_words(ours, theirs))
    back = features(theirs, ours, equal_words(theirs, ours))
    assert there.shape == (len(NAMES),)
    assert str(there.dtype) == "float32"
    assert np.isfinite(there).all()
    np.testing.assert_allclose(there, back, atol=2e-6)
    assert (np.abs(there) <= 2 + ours.weights.sum() + theirs.weights.sum()).all()
