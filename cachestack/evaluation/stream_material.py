"""The distinct questions of a stream: embedded once, their neighbours found once, each pair scored at most once.

A score is what `decide` says of a pair on its own; which pair is served is then what `decide` does with several: the
first, in the order of the cosine, whose score reaches the threshold. A test replays a stream through the pipeline
itself and demands the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from cachestack.decisions import Hit
from cachestack.effects import Embedding
from cachestack.entries import Candidate, Entry
from cachestack.evaluation.judging import Embeddings, Report
from cachestack.keys import Partition
from cachestack.policy import Policy
from cachestack.semantic.budget.terms import score_of
from cachestack.semantic.decide import Query, decide
from cachestack.semantic.language import by_meaning_refusal, identify

REFUSED = -1.0
_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a stream: the text that is matched, what else must be equal, and which answer is right."""

    text: str
    label: str
    contract: str = ""


@dataclass(slots=True)
class Question:
    """A distinct text under a contract. `neighbours` come best first, with their cosine, down to the policy's least."""

    text: str
    contract: str
    language: str | None
    vector: bytes | None = None
    states: bytes = b""
    neighbours: list[tuple[int, float]] = field(default_factory=list)


class Material:
    """`questions`, and what a pair of them scores."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        opened = policy.semantic.model_copy(
            update={"accept_score": 1.0, "doubt_score": 0.0, "verifiers": policy.semantic.verifiers[:1]}
        )
        self._opened = opened
        self._fallback = policy.fallback.model_copy(update={"semantic_doubt": "miss"})
        self.questions: list[Question] = []
        self._numbers: dict[tuple[str, str], int] = {}
        self._scores: dict[tuple[int, int], float] = {}

    def number(self, asked: Asked) -> int:
        """The question's place among the distinct ones; added where it is new."""
        key = (asked.contract, asked.text.strip())
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.questions)
            self.questions.append(Question(asked.text, asked.contract, identify(asked.text)))
        return found

    def prepare(self, embeddings: Embeddings, languages: frozenset[str], report: Report = lambda *_: None) -> None:
        """Vectors, and the neighbours of all."""
        for question in self.questions:
            refused = by_meaning_refusal(question.language, languages, self._policy.semantic)
            found = embeddings.get(question.text)
            if refused is None and isinstance(found, Embedding):
                question.vector, question.states = found.vector, found.states
        by_contract: dict[str, list[int]] = {}
        for number, question in enumerate(self.questions):
            if question.vector is not None:
                by_contract.setdefault(question.contract, []).append(number)
        done = 0
        for numbers in by_contract.values():
            self._find_neighbours(numbers)
            done += len(numbers)
            report("neighbours", done, len(self.questions))

    def candidates(self, asked: int, stored: Collection[int]) -> list[tuple[int, float]]:
        """The nearest of those that are stored, as many as the policy looks at."""
        found: list[tuple[int, float]] = []
        for neighbour in self.questions[asked].neighbours:
            if neighbour[0] in stored:
                found.append(neighbour)
                if len(found) == self._policy.semantic.num_candidates:
                    break
        return found

    def score(self, asked: int, cached: int, similarity: float) -> float:
        """REFUSED where a guard is certain, or nothing can be said."""
        known = self._scores.get((asked, cached))
        if known is None:
            known = self._scores[asked, cached] = self._scored(asked, cached, similarity)
        return known

    def entry(self, number: int) -> Entry:
        question = self.questions[number]
        return Entry(
            entry_id=str(number),
            partition=Partition("stream"),
            contract=question.contract,
            exact=str(number),
            question=question.text,
            answer="",
            finish_reason="stop",
            prompt_tokens=0,
            completion_tokens=0,
            model="",
            created_at_s=0.0,
            expires_at_s=1e12,
            stale_until_s=1e12,
            language=question.language,
            states=question.states,
        )

    def _scored(self, asked: int, cached: int, similarity: float) -> float:
        question = self.questions[asked]
        query = Query(question.text, question.language, question.states)
        candidate = Candidate(self.entry(cached), similarity)
        deciding = decide(query, [candidate], self._opened, self._fallback, 0.0)
        try:
            next(deciding)
        except StopIteration as stop:
            found = stop.value
            if isinstance(found, Hit):
                return score_of(found.detail)
            return REFUSED if found.best is None else found.best.score
        raise AssertionError("the first verifier is asked in place")

    def _find_neighbours(self, numbers: Sequence[int]) -> None:
        vectors = np.stack([np.frombuffer(self.questions[n].vector or b"", dtype="<f4") for n in numbers])
        least = self._policy.semantic.reject_below
        for start in range(0, len(numbers), _ROWS):
            rows = vectors[start : start + _ROWS] @ vectors.T
            for row in range(rows.shape[0]):
                (near,) = np.nonzero(rows[row] >= least)
                near = near[near != start + row]
                order = near[np.argsort(-rows[row, near], kind="stable")]
                cosines = rows[row, order]
                self.questions[numbers[start + row]].neighbours = [
                    (numbers[int(other)], float(cosine)) for other, cosine in zip(order, cosines, strict=True)
                ]


def texts_of(material: Material) -> list[str]:
    return [question.text for question in material.questions]
