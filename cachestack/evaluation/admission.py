"""What is kept of answers whose kind is known: how many bad ones are admitted, how many good ones refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import ValidationError

from cachestack.corpus.schema import AnswerExample
from cachestack.errors import InputFileError
from cachestack.evaluation.intervals import wilson
from cachestack.items import read_text
from cachestack.semantic.admission import examine

GOOD = "good"
UNUSABLE = frozenset({"refusal", "apology", "error"})
"""Kinds that must never be admitted; `cut` and `ask_back` are told with less certainty."""


@dataclass(frozen=True, slots=True)
class Judged:
    example: AnswerExample
    found: str | None
    """The kind that it was taken for, or None: it is kept."""
    evidence: Mapping[str, Any]
    seconds: float


def read_examples(path: Path) -> tuple[AnswerExample, ...]:
    """Lines of `{"question", "answer", "kind", "language", "domain"}`. Raises InputFileError with the place."""
    found: list[AnswerExample] = []
    for number, line in enumerate(read_text(str(path), what="labelled answers").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(AnswerExample.model_validate_json(line))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise InputFileError(f"{path} line {number}: {where}: {first['msg']}") from None
    if not found:
        raise InputFileError(f"{path} holds no answers")
    return tuple(found)


def judge_examples(examples: Iterable[AnswerExample], kinds: frozenset[str]) -> Iterable[Judged]:
    for example in examples:
        began = time.perf_counter()
        found = examine(example.question, (), example.answer, kinds)
        seconds = time.perf_counter() - began
        if found is None:
            yield Judged(example, None, {}, seconds)
        else:
            yield Judged(example, found.kind, found.evidence, seconds)


def summarise_admission(judged: Sequence[Judged]) -> dict[str, Any]:
    """JSON-able. Each share is `{n, refused, rate, interval}`, the interval a 95% Wilson one."""
    bad = [one for one in judged if one.example.kind in UNUSABLE]
    good = [one for one in judged if one.example.kind == GOOD]
    languages = sorted({one.example.language for one in judged})
    kinds = sorted({one.example.kind for one in judged})
    milliseconds = sorted(1000 * one.seconds for one in judged)
    return {
        "refusals_and_errors": _share(bad),
        "good": _share(good),
        "by_kind": {
            kind: _share([one for one in judged if one.example.kind == kind])
            | {
                "taken_for": dict(
                    sorted(Counter(one.found for one in judged if one.example.kind == kind and one.found).items())
                )
            }
            for kind in kinds
        },
        "by_language": {
            language: {
                kind: _share([one for one in judged if one.example.language == language and one.example.kind == kind])
                for kind in kinds
            }
            for language in languages
        },
        "ms_per_answer": {
            "median": round(median(milliseconds), 3),
            "p95": round(milliseconds[int(0.95 * (len(milliseconds) - 1))], 3),
        },
    }


def mistakes_of(judged: Iterable[Judged]) -> list[dict[str, Any]]:
    """Bad answers that are kept, and good ones that are not, with the evidence."""
    return [
        one.example.model_dump() | {"taken_for": one.found, "evidence": dict(one.evidence)}
        for one in judged
        if (one.found is None) != (one.example.kind == GOOD)
    ]


def _share(judged: Sequence[Judged]) -> dict[str, Any]:
    n, refused = len(judged), sum(one.found is not None for one in judged)
    low, high = wilson(refused, n)
    return {"n": n, "refused": refused, "rate": refused / n if n else 0.0, "interval": [low, high]}
