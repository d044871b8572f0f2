"""Rule-made pairs: repeatable, truly changed, and never another number under the label `same`."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from cachestack.corpus import load_questions
from cachestack.corpus.schema import Question
from cachestack.training import contrasts as rules
from cachestack.training.contrasts import contrasts
from cachestack.training.pairs import Pair

SEED = 5
ENGLISH = {  # a text that each rule changes, and None, or what it must become
    "number": ("Refund within 14 days?", None),
    "opposite": ("How do I enable roaming?", None),
    "sibling": ("Is the shop open on Monday?", None),
    "swap": ("Trains from Leeds to York?", "Trains from York to Leeds?"),
    "negation": ("Can I cancel the order?", "Can I not cancel the order?"),
    "qualifier": ("How do I cancel?", None),
    "date": ("What is the price?", None),
    "case": ("What is the Price?", None),
    "polite": ("What is the price?", None),
    "typo": ("What is the delivery price?", None),
    "unaccented": ("Where is the café?", "Where is the cafe?"),
    "written": ("Can 3 people share?", "Can three people share?"),
    "shortened": ("I cannot log in", "I can't log in"),
}
FRENCH = {
    "number": ("Remboursé sous 14 jours ?", None),
    "opposite": ("Comment activer l'itinérance ?", None),
    "sibling": ("Ouvert le lundi ?", None),
    "swap": ("Train de Lille à Nantes ?", "Train de Nantes à Lille ?"),
    "negation": ("Puis-je annuler ?", "ne puis-je pas annuler ?"),
    "qualifier": ("Comment annuler ?", None),
    "date": ("Quel est le prix ?", None),
    "case": ("Quel est le Prix ?", None),
    "polite": ("Quel est le prix ?", None),
    "typo": ("Quel est le montant ?", None),
    "unaccented": ("Où est le café ?", "Ou est le cafe ?"),
    "written": ("Pour 3 personnes ?", "Pour trois personnes ?"),
    "shortened": ("Je voudrais annuler", "je veux annuler"),
}
ALL = {**rules._DIFFERENT, **rules._SAME}


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return list(load_questions("train"))


@pytest.fixture(scope="module")
def pairs(questions: list[Question]) -> list[Pair]:
    return list(contrasts(questions, SEED, num_different=3, num_same=3))


def test_examples_are_of_all_rules() -> None:
    assert set(ENGLISH) == set(FRENCH) == set(ALL)


@pytest.mark.parametrize("language", ["en", "fr"])
@pytest.mark.parametrize("name", sorted(ALL))
def test_each_rule_changes_its_text(name: str, language: str) -> None:
    text, expected = (ENGLISH if language == "en" else FRENCH)[name]
    found = {ALL[name](text, language, random.Random(seed)) for seed in range(20)}
    assert None not in found
    assert found - {text}
    if expected is not None:
        assert found == {expected}


def test_the_same_seed_makes_the_same_pairs(questions: list[Question]) -> None:
    some = questions[::10]
    once = list(contrasts(some, SEED))
    assert once == list(contrasts(some, SEED))
    assert once != list(contrasts(some, SEED + 1))


def test_no_pair_has_equal_texts_and_the_first_is_the_questions_own(
    questions: list[Question], pairs: list[Pair]
) -> None:
    texts = {question.id: {question.text, *question.rewordings} for question in questions}
    languages = {question.id: question.language for question in questions}
    assert not [pair for pair in pairs if pair.a == pair.b]
    assert all(pair.a in texts[pair.group] and pair.language == languages[pair.group] for pair in pairs)
    assert all(pair.b.strip() for pair in pairs)


def test_no_more_of_each_label_than_asked_for(questions: list[Question], pairs: list[Pair]) -> None:
    counts = Counter((pair.group, pair.same) for pair in pairs)
    assert max(counts.values()) == 3
    assert len({group for group, _ in counts}) == len(questions)
    assert not [pair for pair in contrasts(questions[:50], SEED, num_different=0) if not pair.same]


def test_every_rule_is_at_work_in_both_languages(pairs: list[Pair]) -> None:
    expected = {(f"rule {name}", language) for name in ("name", *ALL) for language in ("en", "fr")}
    assert {(pair.kind, pair.language) for pair in pairs} == expected
    assert all((pair.kind.removeprefix("rule ") in rules._SAME) is pair.same for pair in pairs)


def test_what_is_the_same_has_the_same_digits_or_one_written_out(pairs: list[Pair]) -> None:
    for pair in pairs:
        if not pair.same:
            continue
        before, after = ("".join(c for c in text if c.isdigit()) for text in (pair.a, pair.b))
        if pair.kind != "rule written":
            assert before == after, pair
            continue
        table = rules._WRITTEN[pair.language].split()
        spelt = [(digit, word) for digit, word in zip(table[::2], table[1::2], strict=True)]
        assert any(
            pair.a.replace(digit, word, pair.a.count(digit)).count(word) and word in pair.b for digit, word in spelt
        )
        assert len(before) - len(after) in (1, 2), pair


def test_another_number_is_another_number(pairs: list[Pair]) -> None:
    for pair in pairs:
        if pair.kind == "rule number" and not pair.same:
            before, after = ("".join(c for c in text if c.isdigit()) for text in (pair.a, pair.b))
            assert before != after, pair


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What differs between debit and credit?", "en"),
        ("Can I get a letter from Leeds and York?", "en"),
        ("Une lettre de papa et maman ?", "fr"),
        ("Quelle différence entre débit et crédit ?", "fr"),
        ("From Leeds to leeds", "en"),
    ],
)
def test_what_stands_side_by_side_is_not_swapped(text: str, language: str) -> None:
    """One and the other, or the other and one: that is the same question."""
    assert rules._swap(text, language, random.Random(0)) is None


def test_a_single_name_has_no_other() -> None:
    question = Question(
        id="bank-0001",
        domain="bank",
        language="en",
        style="plain",
        text="Is there a bank in Leeds?",
        rewordings=(),
        near_misses=(),
    )
    for seed in range(20):
        assert all(pair.a != pair.b for pair in contrasts([question], seed, num_different=9, num_same=9))
