"""Labelled pairs of a question's group."""

from __future__ import annotations

from collections import Counter

import pytest

from cachestack.corpus import load_questions
from cachestack.corpus.schema import NearMiss, Question
from cachestack.training.pairs import Pair, pairs_of_question, shuffled

QUESTION = Question(
    id="bank-0001",
    domain="bank",
    language="en",
    style="plain",
    text="base",
    rewordings=("again", "once more"),
    near_misses=(
        NearMiss(kind="number", text="other number"),
        NearMiss(kind="number", text="third number"),
        NearMiss(kind="date", text="other date"),
    ),
)


def test_every_two_texts_whose_label_is_known() -> None:
    found = {(p.a, p.b): (p.same, p.kind, p.weight) for p in pairs_of_question(QUESTION)}
    assert found == {
        ("base", "again"): (True, "reworded", 1.0),
        ("base", "once more"): (True, "reworded", 1.0),
        ("again", "once more"): (True, "reworded", 1.0),
        ("base", "other number"): (False, "number", 1.0),
        ("again", "other number"): (False, "number reworded", 1.0),
        ("once more", "other number"): (False, "number reworded", 1.0),
        ("base", "third number"): (False, "number", 1.0),
        ("again", "third number"): (False, "number reworded", 1.0),
        ("once more", "third number"): (False, "number reworded", 1.0),
        ("base", "other date"): (False, "date", 1.0),
        ("again", "other date"): (False, "date reworded", 1.0),
        ("once more", "other date"): (False, "date reworded", 1.0),
        ("other number", "other date"): (False, "two near misses", 0.5),
        ("third number", "other date"): (False, "two near misses", 0.5),
    }
    assert {(p.language, p.group) for p in pairs_of_question(QUESTION)} == {("en", "bank-0001")}


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return [pair for question in load_questions("train") for pair in pairs_of_question(question)]


def test_no_pair_of_the_corpus_has_equal_texts_or_two_labels(pairs: list[Pair]) -> None:
    assert not [pair for pair in pairs if pair.a == pair.b]
    labels: dict[frozenset[str], set[bool]] = {}
    for pair in pairs:
        labels.setdefault(frozenset((pair.a, pair.b)), set()).add(pair.same)
    assert not [texts for texts, said in labels.items() if len(said) > 1]


def test_shuffling_keeps_every_pair_swaps_half_and_is_repeatable(pairs: list[Pair]) -> None:
    once, again = shuffled(pairs, 7), shuffled(pairs, 7)
    assert once == again != shuffled(pairs, 8)

    def sides_apart(pair: Pair) -> tuple[object, ...]:
        return (frozenset((pair.a, pair.b)), pair.same, pair.language, pair.group, pair.kind, pair.weight)

    assert Counter(map(sides_apart, once)) == Counter(map(sides_apart, pairs))
    straight = {(pair.a, pair.b) for pair in pairs}
    assert 0.45 < sum((pair.a, pair.b) in straight for pair in once) / len(pairs) < 0.55
