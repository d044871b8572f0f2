"""Trains the freshness model: on the corpus's labelled questions, and on practice drawn from patterns.

Thresholds are chosen on the validation part. Nothing else is read.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from cachestack.corpus import Split, load_freshness, load_questions
from cachestack.semantic.freshness.cues import cues, folded
from cachestack.semantic.freshness.model import NUM_BUCKETS, FreshnessModel, buckets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

HELD_BACK: tuple[Split, ...] = ("validation", "test")
PATTERNS, LABELS = "freshness_patterns.txt", "freshness_labels.txt"
NUM_EACH = 12
"""Practice questions drawn from a pattern, at most."""
PRACTICE_WEIGHT = 0.4
STRENGTH = 1.0
"""The inverse of how much large weights are held back."""
UNSURE_SHARE, SURE_SHARE, FAST_SHARE = 0.105, 0.05, 0.12
"""Of the validation part: which share of `never` may be taken to move, which for sure, and which share of what is not
`fast` may be taken to be."""

ASKS_HOW = re.compile(r"(?:how (?:do|can|should|would|could) (?:i|you|we|one)|how to|comment (?:puis|faire|\w+er\b))\b")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Labelled:
    question: str
    changes: str
    weight: float = 1.0


def train_freshness(*, seed: int, say: Say) -> FreshnessModel:
    """The same model for the same corpus, patterns, seed and library versions."""
    labelled = [Labelled(one.question, one.changes) for one in load_freshness("train")] + judged()
    training = labelled + practice(seed) + instructions()
    checks = [Labelled(one.question, one.changes) for one in load_freshness("validation")]
    say(f"{len(training):,} questions, {len(labelled):,} of them labelled by hand")
    rows, weights = _rows(training), np.array([one.weight for one in training])
    moves = np.array([one.changes != "never" for one in training])
    fast = np.array([one.changes == "fast" for one in training])
    fitted = [_fit(rows, labels, weights) for labels in (moves, fast)]
    stacked = np.stack([found for found, _ in fitted]).astype(np.float16).astype(np.float32)
    first, second = (bias for _, bias in fitted)
    draft = FreshnessModel(stacked, (first, second), 0.0, 0.0, 0.0, {})
    scores = np.array([draft.log_odds(text, cues().found(text)) for text in (folded(one.question) for one in checks)])
    held = np.array([one.changes for one in checks])
    unsure, sure = (_above(scores[held == "never", 0], share) for share in (UNSURE_SHARE, SURE_SHARE))
    quick = _above(scores[held != "fast", 1], FAST_SHARE)
    card = {"seed": seed, "num_labelled": len(training), "validation": _metrics(scores, held, unsure, quick)}
    say(str(card["validation"]))
    return FreshnessModel(stacked, (first, second), unsure, sure, quick, card)


def practice(seed: int) -> list[Labelled]:
    """Questions drawn from the patterns, none of which is in a part that is held back."""
    held = {folded(one.question) for split in HELD_BACK for one in load_freshness(split)}
    patterns, lists = read_patterns(files("cachestack.training").joinpath(PATTERNS).read_text("utf-8"))
    rng, drawn = random.Random(seed), []
    for changes, pattern in patterns:
        found = {_filled(pattern, lists, rng): None for _ in range(NUM_EACH)}
        drawn += [Labelled(q, changes, PRACTICE_WEIGHT) for q in found if folded(q) not in held]
    return drawn


def judged() -> list[Labelled]:
    """Questions of the corpus that were labelled for this."""
    by_id = {question.id: question.text for question in load_questions("train")}
    lines = files("cachestack.training").joinpath(LABELS).read_text("utf-8").splitlines()
    pairs = (line.split() for line in lines if not line.startswith("#"))
    return [Labelled(by_id[name], changes) for name, changes in pairs]


def instructions() -> list[Labelled]:
    """The corpus's questions after how something is done, which is what it was: labelled by their opening."""
    questions = (question.text for question in load_questions("train"))
    return [Labelled(text, "never", PRACTICE_WEIGHT) for text in questions if ASKS_HOW.match(folded(text))]


def read_patterns(text: str) -> tuple[list[tuple[str, str]], dict[str, Sequence[str]]]:
    """Class and pattern of each, and the lists that names in braces stand for. Raises ValueError for a bad line."""
    patterns: list[tuple[str, str]] = []
    lists: dict[str, Sequence[str]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("#"):
            continue
        if named := re.match(r"(\w+): (.+)", line):
            lists[named[1]] = named[2].split(" | ")
        elif found := re.match(r"(never|slow|fast) (?:en|fr) (.+)", line):
            patterns.append((found[1], found[2]))
        else:
            raise ValueError(f"neither a pattern nor a list: {line}")
    return patterns, lists


def _filled(pattern: str, lists: Mapping[str, Sequence[str]], rng: random.Random) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: rng.choice(lists[name[1]]), pattern)


def _rows(labelled: Sequence[Labelled]) -> Any:
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

    places: list[int] = []
    ends = [0]
    for one in labelled:
        text = folded(one.question)
        places += sorted(buckets_of(text, cues().found(text)))
        ends.append(len(places))
    return csr_matrix((np.ones(len(places)), places, ends), shape=(len(labelled), NUM_BUCKETS))


def _fit(rows: Any, labels: NDArray[np.bool_], weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=STRENGTH, max_iter=5000).fit(rows, labels, weights)
    return model.coef_[0], round(float(model.intercept_[0]), 4)


def _above(scores: NDArray[np.float64], share: float) -> float:
    """The score that at most this share lies above."""
    ordered = np.sort(scores)[::-1]
    return round(float(ordered[int(share * len(ordered))]), 4)


def _metrics(scores: NDArray[np.float64], held: NDArray[np.str_], unsure: float, quick: float) -> dict[str, Any]:
    return {
        "n": len(held),
        "never_taken_to_move": round(float((scores[held == "never", 0] > unsure).mean()), 4),
        "slow_taken_to_move": round(float((scores[held == "slow", 0] > unsure).mean()), 4),
        "fast_taken_to_move": round(float((scores[held == "fast", 0] > unsure).mean()), 4),
        "fast_taken_to_be_fast": round(float((scores[held == "fast", 1] > quick).mean()), 4),
    }
