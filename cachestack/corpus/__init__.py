"""cachestack-pairs: questions with rewordings that keep the answer and near misses that do not (CC BY 4.0).

Written for this project, see docs/corpus.md. Nothing is read before it is asked for.
"""

from __future__ import annotations

from cachestack.corpus.load import Split, load_conversations, load_questions, pairs_of
from cachestack.corpus.schema import Conversation, Kind, NearMiss, Question

__all__ = ["Conversation", "Kind", "NearMiss", "Question", "Split", "load_conversations", "load_questions", "pairs_of"]
