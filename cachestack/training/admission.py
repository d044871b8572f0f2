"""Trains the model of what is kept: on the corpus's labelled answers, its pairs' answers, and practice from patterns.

Which writer a labelled answer is by is known. Each is left out once: what the model says of the one whom it has not
read makes the probabilities, and is what the card tells. Nothing of the test part is read.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from cachestack.corpus import load_admission, load_answers, load_questions
from cachestack.semantic.admission import find_by_rules, names_of
from cachestack.semantic.admission.features import NUM_BUCKETS, features
from cachestack.semantic.admission.model import KINDS, AdmissionModel
from cachestack.semantic.admission.plain import is_plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

PATTERNS = "admission_patterns.txt"
NUM_EACH = 6
"""Practice drawn from a pattern, at most."""
PAIRS_WEIGHT, PRACTICE_WEIGHT = 0.5, 0.3
STRENGTH = 2.0
"""The inverse of how much large weights are held back."""
ORDINARY = (1, 2)
"""Writers whose answers are ordinary; the others wrote half of theirs to mislead."""
GOOD_SHARE = 0.03
"""Of the good answers of ordinary writers: which share may be refused."""
KIND_OF = {"refusal": "refusal", "apology": "refusal", "error": "error", "cut": "cut_off", "ask_back": "asks_back"}

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Example:
    """`writer`: 0 for what no writer is left out with."""

    question: str
    answer: str
    kind: str
    writer: int = 0
    weight: float = 1.0


def train_admission(*, seed: int, say: Say) -> AdmissionModel:
    """The same model for the same corpus, patterns, seed and library versions."""
    labelled = [Example(one.question, one.answer, one.kind, one.writer) for one in load_admission("dev")]
    training = labelled + good_answers() + practice(seed)
    say(f"{len(training):,} answers, {len(labelled):,} of them labelled by hand")
    rows, sure = _rows(training)
    weights = np.array([one.weight for one in training])
    writers = np.array([one.writer for one in training])
    is_bad = np.array([one.kind != "good" for one in training])
    held = np.full(len(training), np.nan)
    for writer in sorted(set(writers.tolist()) - {0}):
        rest = writers != writer
        coefficients, bias = _fit(rows[rest], is_bad[rest], weights[rest])
        held[~rest] = rows[~rest] @ coefficients + bias
    scored = ~np.isnan(held)
    slope, offset = _calibrated(held[scored & ~sure], is_bad[scored & ~sure])
    ordinary = scored & ~sure & ~is_bad & np.isin(writers, ORDINARY)
    cut = np.sort(held[ordinary])[::-1][int(GOOD_SHARE * int((scored & ~is_bad & np.isin(writers, ORDINARY)).sum()))]
    refuse_from = round(float(1 / (1 + np.exp(-(slope * cut + offset)))), 4)
    plain = np.array([is_plain(one.question, one.answer) for one in training])
    refused = sure | ((held > cut) & ~plain)
    kinds = np.array([one.kind for one in training])
    card = {
        "seed": seed,
        "num_labelled": len(labelled),
        "num_examples": len(training),
        "left_out": {str(n): _metrics(refused[writers == n], kinds[writers == n]) for n in sorted(set(writers) - {0})},
    }
    say(str(card["left_out"]))
    stacked, biases = _whole(rows, training, is_bad, weights)
    return AdmissionModel(stacked, biases, slope, offset, refuse_from, card)


def good_answers() -> list[Example]:
    """Those of the pairs, which were written to be compared."""
    pairs = [pair for pair in load_answers() if pair.kind != "refusal"]
    found = dict.fromkeys((pair.question, answer) for pair in pairs for answer in (pair.x, pair.y))
    return [Example(question, answer, "good", weight=PAIRS_WEIGHT) for question, answer in found]


def practice(seed: int) -> list[Example]:
    """Answers drawn from the patterns; where a pattern has no question, one of the corpus is asked."""
    patterns, lists = read_patterns(files("cachestack.training").joinpath(PATTERNS).read_text("utf-8"))
    asked = {language: [q.text for q in load_questions("train") if q.language == language] for language in ("en", "fr")}
    rng, drawn = random.Random(seed), []
    for kind, language, pattern in patterns:
        texts = dict.fromkeys(
            re.sub(r"\{(\w+)\}", lambda name: rng.choice(lists.get(name[1], [name[0]])), pattern)
            for _ in range(NUM_EACH)
        )
        for text in texts:
            question, arrow, answer = text.partition(" => ")
            if not arrow:
                question, answer = rng.choice(asked[language]), text
            upper = answer if kind == "error" else answer[0].upper() + answer[1:]
            drawn.append(Example(question, upper, kind, weight=PRACTICE_WEIGHT))
    return drawn


def read_patterns(text: str) -> tuple[list[tuple[str, str, str]], dict[str, Sequence[str]]]:
    """Kind, language and pattern of each, and the lists that names in braces stand for. Raises ValueError for a bad
    line."""
    patterns: list[tuple[str, str, str]] = []
    lists: dict[str, Sequence[str]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("#"):
            continue
        if named := re.match(r"(\w+): (.+)", line):
            lists[named[1]] = named[2].split(" | ")
        elif found := re.match(r"(good|refusal|apology|error|cut|ask_back) (en|fr) (.+)", line):
            patterns.append((found[1], found[2], found[3]))
        else:
            raise ValueError(f"neither a pattern nor a list: {line}")
    return patterns, lists


def _rows(examples: Sequence[Example]) -> tuple[Any, NDArray[np.bool_]]:
    """Features of each, and for which of them the rules are certain."""
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

    places: list[int] = []
    values: list[float] = []
    ends, sure = [0], []
    for one in examples:
        found, is_sure = find_by_rules(one.question, one.answer)
        row = features(one.question, one.answer, names_of(found))
        places += row.keys()
        values += row.values()
        ends.append(len(places))
        sure.append(is_sure)
    return csr_matrix((values, places, ends), shape=(len(examples), NUM_BUCKETS)), np.array(sure)


def _fit(rows: Any, labels: NDArray[np.bool_], weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=STRENGTH, max_iter=3000, solver="liblinear").fit(rows, labels, weights)
    return model.coef_[0], float(model.intercept_[0])


def _whole(
    rows: Any, training: Sequence[Example], is_bad: NDArray[np.bool_], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    fitted = [_fit(rows, is_bad, weights)]
    kinds = np.array([KIND_OF.get(one.kind, "") for one in training])
    for kind in KINDS:
        fitted.append(_fit(rows[is_bad], kinds[is_bad] == kind, weights[is_bad]))
    stacked = np.stack([found for found, _ in fitted]).astype(np.float16).astype(np.float32)
    return stacked, np.array([round(bias, 4) for _, bias in fitted], dtype=np.float32)


def _calibrated(scores: NDArray[np.float64], is_bad: NDArray[np.bool_]) -> tuple[float, float]:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1e6).fit(scores[:, None], is_bad)
    return round(float(model.coef_[0, 0]), 4), round(float(model.intercept_[0]), 4)


def _metrics(refused: NDArray[np.bool_], kinds: NDArray[np.str_]) -> dict[str, Any]:
    return {
        kind: [int(refused[kinds == kind].sum()), int((kinds == kind).sum())]
        for kind in ("good", "refusal", "apology", "error", "cut", "ask_back")
    }
