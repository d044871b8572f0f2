"""`compare` with a stack's encoder and engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cachestack.answers.encoding import SentenceVectors
    from cachestack.answers.judging import AnswerJudge
    from cachestack.answers.sameness import Sameness
    from cachestack.engines.base import Engine
    from cachestack.semantic.base import Encoder

MAX_JUDGES = 8


class AnswerComparer:
    """Thread-safe. Nothing is imported or loaded before the first comparison. `encoder`: the one of the moment."""

    def __init__(self, encoder: Callable[[], Encoder | None]) -> None:
        self._encoder = encoder
        self._lock = threading.Lock()
        self._vectors: tuple[Encoder, SentenceVectors] | None = None
        self._judges: list[tuple[Engine, AnswerJudge]] = []

    def compare(self, x: str, y: str, question: str | None, judge: Engine | None) -> Sameness:
        from cachestack.answers.comparing import compare

        return compare(x, y, question, embed=self._embed(), judge=None if judge is None else self._judge(judge))

    def is_same(self, x: str, y: str, question: str | None) -> bool | None:
        """None where it can't be told."""
        return self.compare(x, y, question, None).same

    def _embed(self) -> SentenceVectors | None:
        from cachestack.answers.encoding import SentenceVectors

        encoder = self._encoder()
        if encoder is None:
            return None
        with self._lock:
            if self._vectors is None or self._vectors[0] is not encoder:
                self._vectors = encoder, SentenceVectors(encoder)
            return self._vectors[1]

    def _judge(self, engine: Engine) -> AnswerJudge:
        """The same for the same engine: what hangs must not be asked again and again."""
        from cachestack.answers.judging import AnswerJudge

        with self._lock:
            found = next((judge for of, judge in self._judges if of is engine), None)
            if found is None:
                found = AnswerJudge(engine)
                self._judges = [*self._judges[-MAX_JUDGES + 1 :], (engine, found)]
            return found
