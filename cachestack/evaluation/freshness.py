"""How well questions are told apart by how soon their answers change, on labelled questions."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cachestack.errors import InputFileError
from cachestack.evaluation.intervals import wilson
from cachestack.policy import Policy
from cachestack.requests import Message, Request
from cachestack.semantic.freshness.life import life_of

Label = Literal["never", "slow", "fast", "moving"]
LABELS: tuple[Label, ...] = ("never", "slow", "fast", "moving")
CLASSES = ("never", "slow", "fast")
SHARES = (0.05, 0.10, 0.15, 0.20, 0.30)
"""Of never-changing questions: where the curve is read."""


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """`label`: what the file says; `moving` where it does not say how fast. `split` and `language` or "" if unsaid."""

    question: str
    label: Label
    language: str = ""
    split: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """`changes`, `ttl_s`, `bound`: what the policy makes of it. `score`: how likely it moves, from 0 to 1."""

    labelled: LabelledQuestion
    changes: str
    ttl_s: float
    bound: str
    score: float
    evidence: tuple[str, ...]


def read_questions(path: str | Path) -> tuple[LabelledQuestion, ...]:
    """The questions of a JSONL file. Raises InputFileError with file and line."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            found = tuple(_parsed(line, f"{path}:{number}") for number, line in enumerate(file, 1) if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from error
    if not found:
        raise InputFileError(f"{path} holds no questions; each line needs the keys question and changes")
    return found


def in_half(one: LabelledQuestion, half: Literal["a", "b"]) -> bool:
    """Whether a question is in one half of all, always the same."""
    digest = hashlib.sha256(one.question.lower().encode("utf-8", "surrogatepass")).digest()
    return digest[-1] % 2 == "ab".index(half)


def judge_all(questions: Iterable[LabelledQuestion], policy: Policy, now_s: float) -> list[Judged]:
    judged = []
    for one in questions:
        life = life_of(Request((Message("user", one.question),)), policy, now_s)
        score, evidence = (0.0, ()) if life.freshness is None else (life.freshness.score, life.freshness.evidence)
        judged.append(Judged(one, life.changes or "never", life.end_s(now_s) - now_s, life.bound, score, evidence))
    return judged


def summarise(judged: Sequence[Judged]) -> dict[str, Any]:
    """JSON-able. `cached_long`: of moving questions, those taken for `never`; `refused` and `shortened`: of those that
    never change, those taken for `fast`, and for anything but `never`. Shares have 95% Wilson intervals."""
    return {
        **_errors(judged),
        "by_label": {label: _classes([j for j in judged if j.labelled.label == label]) for label in _labels(judged)},
        "by_language": {
            language or "unknown": _errors([j for j in judged if j.labelled.language == language])
            for language in sorted({j.labelled.language for j in judged})
        },
        "by_evidence": _by_evidence(judged),
        "curve": _curve(judged),
    }


def _parsed(line: str, place: str) -> LabelledQuestion:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{place}: not JSON: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get("question"), str) or not row["question"].strip():
        raise InputFileError(f"{place}: a line must be an object with the key question, a text")
    return LabelledQuestion(
        row["question"], _label(row, place), str(row.get("language") or ""), str(row.get("split") or "")
    )


def _label(row: Mapping[str, Any], place: str) -> Label:
    moving, changes = row.get("time_dependent"), row.get("changes")
    if isinstance(moving, bool):
        return "moving" if moving else "never"
    if isinstance(changes, str):
        label = changes.removesuffix("-changing")
        if label in LABELS:
            return label
    raise InputFileError(f"{place}: needs changes (never, slow or fast) or time_dependent (true or false)")


def _labels(judged: Sequence[Judged]) -> list[Label]:
    there = {j.labelled.label for j in judged}
    return [label for label in LABELS if label in there]


def _errors(judged: Sequence[Judged]) -> dict[str, Any]:
    of = {label: [j for j in judged if j.labelled.label == label] for label in LABELS}
    long = {
        label: _share(sum(j.changes == "never" for j in of[label]), len(of[label]))
        for label in ("fast", "slow", "moving")
        if of[label]
    }
    refused, shortened = (sum(j.changes in named for j in of["never"]) for named in (("fast",), ("fast", "slow")))
    of_never = {"refused": _share(refused, len(of["never"])), "shortened": _share(shortened, len(of["never"]))}
    return {"cached_long": long, "never": of_never if of["never"] else {}}


def _classes(judged: Sequence[Judged]) -> dict[str, Any]:
    counts = Counter(j.changes for j in judged)
    return {"n": len(judged)} | {name: _share(counts[name], len(judged)) for name in CLASSES}


def _share(count: int, n: int) -> dict[str, Any]:
    return {"count": count, "n": n, "rate": count / n if n else 0.0, "interval": list(wilson(count, n))}


def _by_evidence(judged: Sequence[Judged]) -> dict[str, Any]:
    """Each cue: of how many questions of each label it was seen in, and how many of those were judged wrongly."""
    seen: dict[str, Counter[str]] = {}
    for j in judged:
        wrong = (j.changes == "never") != (j.labelled.label == "never")
        for name in j.evidence or ("none",):
            counts = seen.setdefault(name, Counter())
            counts[j.labelled.label] += 1
            counts["wrong"] += wrong
    return {name: dict(counts) for name, counts in sorted(seen.items(), key=lambda item: -item[1].total())}


def _curve(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """With other thresholds on the score: moving questions cached long, where so many of the others are shortened."""
    still = sorted((j.score for j in judged if j.labelled.label == "never"), reverse=True)
    moving = [j.score for j in judged if j.labelled.label != "never"]
    if not still or not moving:
        return []
    points = []
    for share in SHARES:
        threshold = still[min(int(share * len(still)), len(still) - 1)]
        missed = sum(score <= threshold for score in moving)
        shortened = sum(score > threshold for score in still)
        points.append(
            {
                "threshold": threshold,
                "never_shortened": shortened / len(still),
                "moving_cached_long": _share(missed, len(moving)),
            }
        )
    return points
