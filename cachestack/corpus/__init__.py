"""cachestack-pairs: questions with rewordings that keep the answer and near misses that do not (CC BY 4.0).

Written for this project, see docs/corpus.md. Nothing is read before it is asked for.
"""

from __future__ import annotations

from cachestack.corpus.load import (
    AnswerPart,
    Split,
    load_admission,
    load_answers,
    load_conversations,
    load_freshness,
    load_questions,
    pairs_of,
)
from cachestack.corpus.schema import AnswerExample, AnswerPair, Conversation, Dated, Kind, NearMiss, Question

__all__ = [
    "AnswerExample",
    "AnswerPair",
    "AnswerPart",
    "Conversation",
    "Dated",
    "Kind",
    "NearMiss",
    "Question",
    "Split",
    "load_admission",
    "load_answers",
    "load_conversations",
    "load_freshness",
    "load_questions",
    "pairs_of",
]
