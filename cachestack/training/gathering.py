"""All pairs that verifiers are trained on or measured on while they are made: never the corpus's test part."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cachestack.corpus import load_questions
from cachestack.corpus.schema import Question
from cachestack.training.contrasts import contrasts
from cachestack.training.pairs import Pair, pairs_of_question

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUM_DIFFERENT, NUM_SAME = 3, 2
"""Rule-made pairs for each question."""
NUM_STRANGERS = 2
"""Pairs of each question with questions of other groups that an encoder finds close."""
TOO_CLOSE = 0.9
"""From this cosine a question of another group may be the same one written twice."""


def training_pairs(seed: int) -> list[Pair]:
    """Written and rule-made pairs of the training part."""
    questions = load_questions("train")
    return [p for q in questions for p in pairs_of_question(q)] + list(
        contrasts(questions, seed, NUM_DIFFERENT, NUM_SAME)
    )


def validation_pairs() -> list[Pair]:
    """Each base with its rewordings and near misses, as `cachestack eval corpus` pairs them, and two of its rewordings
    with its near misses."""
    return [p for q in load_questions("validation") for p in pairs_of_question(q) if p.kind != "two near misses"]


def strangers(
    questions: Sequence[Question], vectors: Mapping[str, NDArray[np.float32]], seed: int, num_each: int = NUM_STRANGERS
) -> list[Pair]:
    """Different questions that an encoder finds close: what a look-up meets first in a full cache."""
    rng = random.Random(seed)
    found = []
    for language in ("en", "fr"):
        own = [q for q in questions if q.language == language and q.text in vectors]
        if len(own) < 2:
            continue
        rows = np.stack([vectors[q.text] for q in own])
        close = rows @ rows.T
        close[close > TOO_CLOSE] = -1
        nearest = np.argpartition(-close, min(8, len(own) - 1), axis=1)[:, :8]
        for i, question in enumerate(own):
            for j in rng.sample([int(j) for j in nearest[i] if close[i, j] > 0], k=num_each):
                texts = (own[j].text, *own[j].rewordings)
                a = rng.choice((question.text, *question.rewordings))
                found.append(Pair(a, rng.choice(texts), False, language, question.id, "another question"))
    return found
