"""Pairs of answers with a judgement, compared and counted: what passes for the same, for different, for unknown."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cachestack.answers.sameness import Sameness
from cachestack.errors import InputFileError
from cachestack.evaluation.intervals import wilson
from cachestack.semantic.language import identify

Compare = Callable[[str, str, str | None], Sameness]
OUTCOMES: tuple[tuple[str, bool | None], ...] = (("same", True), ("different", False), ("unknown", None))


@dataclass(frozen=True, slots=True)
class LabelledAnswers:
    """`same`: the label. `place` says where it was read, as `file:line`."""

    question: str | None
    x: str
    y: str
    same: bool
    kind: str
    language: str
    place: str


@dataclass(frozen=True, slots=True)
class Compared:
    pair: LabelledAnswers
    found: Sameness
    ms: float


def read_answers(path: Path, limit: int | None = None) -> tuple[LabelledAnswers, ...]:
    """The pairs of a JSONL file. Raises InputFileError with file and line."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            found: list[LabelledAnswers] = []
            for number, line in enumerate(file, 1):
                if line.strip() and (limit is None or len(found) < limit):
                    found.append(_pair(line, f"{path}:{number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path} cannot be read: {error}") from error
    if not found:
        raise InputFileError(f"{path} holds no pairs; each line needs the keys x, y and same")
    return tuple(found)


def _pair(line: str, place: str) -> LabelledAnswers:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{place}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InputFileError(f"{place}: a line must be an object with the keys x, y and same")
    for key, kind in (("x", str), ("y", str), ("same", bool)):
        if not isinstance(row.get(key), kind):
            raise InputFileError(f"{place}: {key} must be {'true or false' if kind is bool else 'a text'}")
    question = row.get("question")
    if question is not None and not isinstance(question, str):
        raise InputFileError(f"{place}: question must be a text")
    language = row.get("language") or identify(row["x"]) or identify(row["y"]) or "unknown"
    return LabelledAnswers(
        question, row["x"], row["y"], row["same"], str(row.get("kind") or "none"), str(language), place
    )


def compare_all(
    pairs: Sequence[LabelledAnswers], compare: Compare, report: Callable[[str, int, int], None] | None = None
) -> Iterator[Compared]:
    """Each pair with what was found and how long it took. The first is compared twice: it loads the word lists."""
    if pairs:
        compare(pairs[0].x, pairs[0].y, pairs[0].question)
    for number, pair in enumerate(pairs, 1):
        start = time.perf_counter()
        found = compare(pair.x, pair.y, pair.question)
        yield Compared(pair, found, (time.perf_counter() - start) * 1000)
        if report is not None:
            report("answers", number, len(pairs))


def summarise_answers(compared: Sequence[Compared]) -> dict[str, Any]:
    """JSON-able: shares of the pairs that say the same and of those that differ, by kind, language and what settled it.

    `wrong_same`: differ and pass for the same (a wrong hit stays hidden); `wrong_different`: the other way.
    """
    times = sorted(c.ms for c in compared)
    return {
        **_shares(compared),
        "by_kind": _grouped(compared, lambda c: f"{c.pair.kind} ({'same' if c.pair.same else 'different'})"),
        "by_language": _grouped(compared, lambda c: c.pair.language),
        "by": _by(compared),
        "ms": {
            "median": round(median(times), 3) if times else None,
            "p95": round(times[math.ceil(0.95 * len(times)) - 1], 3) if times else None,
            "max": round(times[-1], 3) if times else None,
        },
    }


def _shares(compared: Sequence[Compared]) -> dict[str, Any]:
    alike = [c for c in compared if c.pair.same]
    apart = [c for c in compared if not c.pair.same]
    settled = [c for c in compared if c.found.same is True]
    return {
        "labelled_same": _outcomes(alike),
        "labelled_different": _outcomes(apart),
        "wrong_same": _share(sum(c.found.same is True for c in apart), len(apart)),
        "wrong_different": _share(sum(c.found.same is False for c in alike), len(alike)),
        "unknown": _share(sum(c.found.same is None for c in compared), len(compared)),
        "wrong_of_called_same": _share(sum(not c.pair.same for c in settled), len(settled)),
    }


def _outcomes(compared: Sequence[Compared]) -> dict[str, Any]:
    return {name: _share(sum(c.found.same is same for c in compared), len(compared)) for name, same in OUTCOMES}


def _share(count: int, n: int) -> dict[str, Any]:
    low, high = wilson(count, n)
    return {"n": n, "count": count, "rate": count / n if n else 0.0, "interval": [low, high]}


def _grouped(compared: Iterable[Compared], key: Callable[[Compared], str]) -> dict[str, Any]:
    groups: dict[str, list[Compared]] = {}
    for c in compared:
        groups.setdefault(key(c), []).append(c)
    return {name: _shares(groups[name]) for name in sorted(groups)}


def _by(compared: Iterable[Compared]) -> dict[str, dict[str, int]]:
    """For each way of settling it: how often right, wrong, and left open."""
    found: dict[str, dict[str, int]] = {}
    for c in compared:
        counts = found.setdefault(c.found.by, {"right": 0, "wrong_same": 0, "wrong_different": 0, "unknown": 0})
        if c.found.same is None:
            counts["unknown"] += 1
        elif c.found.same is c.pair.same:
            counts["right"] += 1
        else:
            counts["wrong_same" if c.found.same else "wrong_different"] += 1
    return dict(sorted(found.items()))


def mistaken_rows(compared: Iterable[Compared]) -> Iterator[Mapping[str, Any]]:
    """The pairs on which the finding is not the label, with the evidence."""
    for c in compared:
        if c.found.same is not c.pair.same:
            yield {
                "question": c.pair.question,
                "x": c.pair.x,
                "y": c.pair.y,
                "same": c.pair.same,
                "kind": c.pair.kind,
                "language": c.pair.language,
                "found": c.found.same,
                "by": c.found.by,
                "score": round(c.found.score, 4),
                "evidence": c.found.evidence,
                "place": c.pair.place,
            }
