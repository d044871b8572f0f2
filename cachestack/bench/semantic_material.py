"""What `cachestack bench semantic` fills a cache with: real questions, embedded, and variations around them.

The first entries are questions of the package's own corpus with their real embeddings. The others are the same
questions with a reference number, at the question's vector plus noise of uniform length (cosine with it 0.82 to 0.98):
embedding a hundred thousand texts would take an hour and change no time that is measured. Questions asked are real:
rewordings of the corpus, and questions with another reference number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cachestack.corpus import load_questions
from cachestack.entries import Entry
from cachestack.keys import Contract, Partition, contract_of, exact_key
from cachestack.requests import Message, Request
from cachestack.semantic.base import Encoder, StatesPacker
from cachestack.semantic.embedding import embed_texts
from cachestack.semantic.language import identify
from cachestack.semantic.vectors import Floats, to_bytes

TENANT = "default"
MODEL = "bench"
RARE_EVERY = 100
"""One entry in so many belongs to another contract."""
_NOISE = (0.2, 0.7)
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    vector: bytes
    encoder: str
    states: bytes


@dataclass(frozen=True, slots=True)
class Texts:
    kept: tuple[str, ...]
    asked: tuple[str, ...]


def texts_for(num_kept: int, num_asked: int) -> Texts:
    """English questions of the corpus, and what is asked about them: rewordings and references by turns."""
    questions = [q for q in load_questions("train") if q.language == "en"][:num_kept]
    pairs = [
        (reworded, referring(q.text, 900_000 + number))
        for number, q in enumerate(questions)
        for reworded in q.rewordings[:1]
        if _is_english(reworded) and _is_english(q.text)
    ]
    some = pairs[:: max(1, len(pairs) // num_asked)][:num_asked]
    asked = tuple(pair[number % 2] for number, pair in enumerate(some))
    return Texts(tuple(q.text for q in questions), asked)


def _is_english(text: str) -> bool:
    """What is typed in haste may be taken for another language, and is then not matched by meaning."""
    return identify(text) in (None, "en") and identify(referring(text, 900_000)) in (None, "en")


def embedded(texts: tuple[str, ...], encoder: Encoder, packer: StatesPacker | None) -> Iterator[Question]:
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        for text, made in zip(batch, embed_texts(encoder, batch, packer), strict=True):
            yield Question(text, made.vector, made.encoder, made.states)


class Population:
    """`num_entries` entries around `kept`; which, follows from their number alone."""

    def __init__(self, kept: list[Question], num_entries: int) -> None:
        self.kept = kept
        self.num_entries = num_entries
        self.partition = Partition(TENANT)
        self.common = contract_of(request_of("x"), MODEL)
        self.rare = contract_of(request_of("x", version="rare"), MODEL)
        self.vectors = self._spread()

    def contract_for(self, number: int) -> Contract:
        return self.rare if number % RARE_EVERY == RARE_EVERY - 1 else self.common

    def entry(self, number: int) -> Entry:
        question, contract = self.kept[number % len(self.kept)], self.contract_for(number)
        text = question.text if number < len(self.kept) else referring(question.text, number)
        return Entry(
            entry_id=f"{number:024x}",
            partition=self.partition,
            contract=contract.digest,
            exact=exact_key(self.partition, contract, text),
            question=text,
            answer=f"The answer to question {number}. " * 8,
            finish_reason="stop",
            prompt_tokens=20,
            completion_tokens=60,
            model=MODEL,
            created_at_s=1.0,
            expires_at_s=1e12,
            stale_until_s=1e12,
            vector=to_bytes(self.vectors[number]),
            encoder=question.encoder,
            language="en",
            states=question.states,
        )

    def common_rows(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.flatnonzero(np.arange(self.num_entries) % RARE_EVERY != RARE_EVERY - 1)

    def _spread(self) -> Floats:
        """`[num_entries, dimension]`."""
        base = np.stack([np.frombuffer(question.vector, dtype="<f4") for question in self.kept])
        draw = np.random.default_rng(0)
        found = np.empty((self.num_entries, base.shape[1]), dtype=np.float32)
        for start in range(0, self.num_entries, 10_000):
            rows = np.arange(start, min(start + 10_000, self.num_entries))
            noise = draw.standard_normal((len(rows), base.shape[1]), dtype=np.float32)
            noise /= np.linalg.norm(noise, axis=1, keepdims=True)
            length = draw.uniform(*_NOISE, (len(rows), 1)).astype(np.float32) * (rows >= len(base))[:, None]
            made = base[rows % len(base)] + length * noise
            found[rows] = made / np.linalg.norm(made, axis=1, keepdims=True)
        return found


def referring(text: str, number: int) -> str:
    return f"{text} Reference {number}."


def request_of(text: str, version: str | None = None) -> Request:
    return Request((Message("user", text),), tenant=TENANT, model=MODEL, version=version)
