"""The corpus that comes with CacheStack: sound as installed, and its checker finds what would be wrong."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.corpus import NearMiss, Question, load_conversations, load_questions, pairs_of
from cachestack.corpus.check import check, masked, shared_words
from cachestack.corpus.load import SPLITS
from cachestack.evaluation.pairs import read_pairs

QUESTION = Question(
    id="bank-0001",
    domain="bank",
    language="en",
    style="plain",
    text="How do I block my card?",
    rewordings=("my card must be stopped, how", "What do I do to have my card blocked?"),
    near_misses=(
        NearMiss(kind="complementary", text="How do I unblock my card?"),
        NearMiss(kind="other_product", text="How do I block my account?"),
    ),
)


@pytest.fixture(scope="module")
def splits() -> dict[str, tuple[Question, ...]]:
    return {name: load_questions(name) for name in SPLITS}


def test_the_corpus_is_what_its_datasheet_says(splits: dict[str, tuple[Question, ...]]) -> None:
    found = check(splits)
    assert found.problems == ()
    assert found.num_questions >= 5000
    assert 0.3 <= found.french_share <= 0.37
    assert found.far_share >= 0.3
    assert found.masked_share <= 0.02
    assert len(found.by_domain) == 16
    assert min(found.by_domain.values()) >= 140
    assert len(found.by_kind) == 15
    assert min(found.by_kind.values()) >= 200


def test_the_splits_are_drawn_by_question_and_hold_every_domain_and_language(
    splits: dict[str, tuple[Question, ...]],
) -> None:
    sizes = {name: len(questions) for name, questions in splits.items()}
    assert sizes["train"] > sizes["test"] > sizes["validation"] / 2 > 100
    for questions in splits.values():
        groups = Counter((question.domain, question.language) for question in questions)
        assert len(groups) == 32
        assert min(groups.values()) >= 6
    ids = [question.id for questions in splits.values() for question in questions]
    assert len(ids) == len(set(ids))


def test_conversations_are_of_both_kinds_and_both_languages() -> None:
    conversations = load_conversations()
    assert len(conversations) == 300
    assert Counter(c.language for c in conversations) == {"en": 200, "fr": 100}
    assert 80 <= sum(c.standalone for c in conversations) <= 120
    for conversation in conversations:
        for messages in (conversation.messages, *conversation.same, *(o.messages for o in conversation.different)):
            assert messages[-1].role == "user"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"text": "How do I  block my CARD?", "id": "bank-0002"}, "is there 2 times"),
        ({"id": "bank-0001", "text": "Another one?"}, "id 'bank-0001' is there 2 times"),
        ({"id": "bank-0002", "text": "Another?", "rewordings": ("Another?",)}, "a text is there twice"),
        ({"id": "bank-0002", "text": "Another?", "near_misses": ()}, "needs two rewordings and two near misses"),
    ],
)
def test_the_checker_finds_what_is_wrong_with_a_question(change: dict[str, object], says: str) -> None:
    other = QUESTION.model_copy(update=change)
    assert any(says in problem for problem in check({"train": [QUESTION, other]}).problems)


def test_the_checker_finds_a_question_in_two_splits_also_under_another_name_or_number() -> None:
    one = QUESTION.model_copy(update={"text": "How do I pay Ana 20 euros in March?"})
    other = QUESTION.model_copy(update={"id": "bank-0002", "text": "How do I pay Bo 35 euros in June?"})
    problems = check({"train": [one], "test": [other]}).problems
    assert "bank-0002: the same question is in train and in test" in problems


def test_the_checker_finds_templates_and_too_few_questions() -> None:
    made = [
        QUESTION.model_copy(
            update={
                "id": f"bank-{i:04d}",
                "text": f"Pay {i} euros?",
                "rewordings": (f"Paying {i} euros?",),
                "near_misses": (NearMiss(kind="number", text=f"Pay {i + 1} euros?"),),
            }
        )
        for i in range(100)
    ]
    problems = " ".join(check({"train": made}).problems)
    assert "100 questions; at least 3000" in problems
    assert "equal after masking" in problems
    assert "0% of the questions are French" in problems


def test_masks_and_shared_words() -> None:
    assert masked("Pay Ana 20,50 euros on Monday") == masked("Pay Bo 3 euros on friday") == "pay @ # euros on %"
    assert shared_words("Où est ma carte ?", "ma carte, où est-elle ?") == pytest.approx(4 / 5)
    assert shared_words("one", "two") == 0


def test_pairs_are_what_eval_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", "pairs", "--split", "validation"]) == 0
    text = capsys.readouterr().out
    path = tmp_path / "pairs.jsonl"
    path.write_text(text, "utf-8")
    pairs = list(read_pairs(path))
    expected = list(pairs_of(load_questions("validation")))
    assert len(pairs) == len(expected) == len(text.splitlines())
    assert {pair.same_answer for pair in pairs} == {True, False}
    assert json.loads(text.splitlines()[0])["source"] == "cachestack-pairs"


def test_the_command_counts_and_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["corpus", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conversations"] == 300
    found = check({"train": [QUESTION]})
    monkeypatch.setattr("cachestack.corpus.check.check", lambda splits: replace(found))
    assert main(["corpus", "check"]) == 1
    assert "1 questions; at least 3000 were meant" in capsys.readouterr().err
