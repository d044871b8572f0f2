"""Reading the corpus, and pairs made of it in the form that `cachestack eval pairs` takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from cachestack.corpus.schema import AnswerExample, AnswerPair, Conversation, Dated, Part, Question
from cachestack.errors import InputFileError

AnswerPart = Literal["dev", "test"]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SOURCE = "cachestack-pairs"
P = TypeVar("P", bound=Part)


def load_questions(split: Split) -> tuple[Question, ...]:
    """Base questions of one split. Raises InputFileError where the installed file is damaged."""
    return _read(f"questions-{split}.jsonl", Question)


def load_conversations() -> tuple[Conversation, ...]:
    """All short conversations."""
    return _read("conversations.jsonl", Conversation)


def load_admission(part: AnswerPart) -> tuple[AnswerExample, ...]:
    """Labelled answers of one part. `dev` is trained on; `test` is by a writer of its own."""
    return tuple(one for one in _read("admission.jsonl", AnswerExample) if one.part == part)


def load_answers(part: AnswerPart | None = None) -> tuple[AnswerPair, ...]:
    """Pairs of answers of one part, or all."""
    return tuple(pair for pair in _read("answers.jsonl", AnswerPair) if part in (None, pair.part))


def load_freshness(split: Split) -> tuple[Dated, ...]:
    """Questions labelled by how soon their answers change, of one split."""
    return tuple(one for one in _read("freshness.jsonl", Dated) if one.split == split)


def pairs_of(questions: Iterable[Question]) -> Iterator[dict[str, Any]]:
    """The base first, answered; then each of its rewordings and near misses, asked.

    Rewordings have the category `reworded`, or `far_reworded` where they share fewer than three words in ten.
    """
    from cachestack.corpus.check import shared_words

    for question in questions:
        for number, text in enumerate(question.rewordings):
            category = "far_reworded" if shared_words(question.text, text) < 0.3 else "reworded"
            yield _pair(question, f"r{number}", text, True, category)
        for number, miss in enumerate(question.near_misses):
            yield _pair(question, f"n{number}", miss.text, False, miss.kind)


def _pair(question: Question, suffix: str, text: str, same: bool, category: str) -> dict[str, Any]:
    return {
        "id": f"{question.id}-{suffix}",
        "a": question.text,
        "b": text,
        "same_answer": same,
        "category": category,
        "source": SOURCE,
        "language": question.language,
        "domain": question.domain,
    }


def _read(name: str, kind: type[P]) -> tuple[P, ...]:
    text = files("cachestack.corpus").joinpath("data", name).read_text("utf-8")
    found: list[P] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            found.append(kind.model_validate_json(line))
        except ValidationError as error:
            raise InputFileError(f"{name}, line {number}: {error}") from None
    return tuple(found)
