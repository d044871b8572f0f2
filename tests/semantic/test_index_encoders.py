"""Another encoder under the same store: never mixed, never a crash; brought back by encoding anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cachestack.entries import Entry
from cachestack.errors import EncoderError
from cachestack.keys import Partition, digest
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.index import FaissIndex
from cachestack.semantic.reembed import is_foreign, reembed
from cachestack.stores.disk import DiskStore

ACME = Partition("acme")
CONTRACT = digest(b"contract")
OLD = "0" * 64
QUESTIONS = ["How do I reset my password?", "Where is my parcel?", "How do I close my account?", "When do you open?"]


class LetterEncoder:
    """An Encoder in a few lines: counts letters. Refuses what it is told to refuse."""

    name = "letters"
    languages = frozenset({"en"})
    window_tokens = 40

    def __init__(self, fingerprint: str, dimension: int = 26, *, broken: bool = False) -> None:
        self.fingerprint = fingerprint
        self.dimension = dimension
        self.broken = broken
        self.num_encoded = 0

    def fits_window(self, text):
        return len(text) <= self.window_tokens

    def encode(self, texts):
        if self.broken:
            raise EncoderError("not today")
        self.num_encoded += len(texts)
        counts = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(counts, texts, strict=True):
            for letter in text.lower():
                row[ord(letter) % self.dimension] += 1
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


def vector_of(encoder, text) -> bytes:
    return encoder.encode([text])[0].astype("<f4").tobytes()


def entry_of(question: str, vector: bytes | None, encoder: str | None, number: int = 0) -> Entry:
    return Entry(
        entry_id=f"{number} {question}",
        partition=ACME,
        contract=CONTRACT,
        exact=digest(f"{number} {question}".encode()),
        question=question,
        answer="answer",
        finish_reason="stop",
        prompt_tokens=1,
        completion_tokens=1,
        model="m",
        created_at_s=0.0,
        expires_at_s=1e12,
        stale_until_s=1e12,
        vector=vector,
        encoder=encoder,
    )


@pytest.fixture
def store(tmp_path: Path):
    made = DiskStore(tmp_path / "entries")
    yield made
    made.close()


def fill(store, encoder, questions=QUESTIONS):
    entries = [entry_of(q, vector_of(encoder, q), encoder.fingerprint, i) for i, q in enumerate(questions)]
    for entry in entries:
        store.put(entry)
    return entries


def found(index, encoder, text, num=10):
    return [c.entry.question for c in index.search(ACME, CONTRACT, vector_of(encoder, text), encoder.fingerprint, num)]


@pytest.mark.parametrize("dimension", [26, 31], ids=["same-dimension", "other-dimension"])
def test_entries_of_another_encoder_are_exact_only(store, dimension):
    old, new = LetterEncoder(OLD), LetterEncoder("1" * 64, dimension)
    entries = fill(store, old)
    index = FaissIndex(store)
    assert found(index, new, QUESTIONS[0]) == []
    assert store.find_exact(ACME, entries[0].exact) == entries[0]
    assert found(index, old, QUESTIONS[0], num=1) == [QUESTIONS[0]], "the old encoder still finds its own"


@pytest.mark.parametrize("dimension", [26, 31], ids=["same-dimension", "other-dimension"])
def test_an_index_that_knows_the_encoder_encodes_them_anew(store, dimension, tmp_path):
    old, new = LetterEncoder(OLD), LetterEncoder("1" * 64, dimension)
    entries = fill(store, old)
    exact_only = entry_of("for the exact question only", None, None)
    store.put(exact_only)
    index = FaissIndex(store, encoder=new)
    assert sorted(found(index, new, QUESTIONS[1])) == sorted(QUESTIONS)
    assert found(index, new, QUESTIONS[1], num=1) == [QUESTIONS[1]]
    assert index.counts().num_reembedded == 4
    for before in entries:
        after = store.get(ACME, before.entry_id)
        assert after.encoder == new.fingerprint
        assert after.vector == vector_of(new, before.question)
        assert (after.answer, after.exact, after.expires_at_s) == (before.answer, before.exact, before.expires_at_s)
    assert store.get(ACME, exact_only.entry_id) == exact_only
    assert found(index, old, QUESTIONS[1]) == []
    assert store.problems() == []
    again = FaissIndex(store, encoder=new)
    num_before = new.num_encoded
    assert len(found(again, new, QUESTIONS[1])) == 4
    assert new.num_encoded == num_before + 1, "only the query"


def test_only_so_many_are_encoded_in_one_search(store):
    old, new = LetterEncoder(OLD), LetterEncoder("1" * 64)
    fill(store, old, [f"question {i}" for i in range(20)])
    index = FaissIndex(store, encoder=new, max_reembedded=8)
    assert len(found(index, new, "question", num=50)) == 8
    assert new.num_encoded == 8 + 1
    assert len(found(index, new, "question", num=50)) == 8, "the others stay exact-only until the next load"
    index.close()
    assert len(found(index, new, "question", num=50)) == 16


def test_texts_that_the_new_encoder_cannot_take_are_left_as_they_are(store):
    old, new = LetterEncoder(OLD), LetterEncoder("1" * 64)
    entries = fill(store, old, ["short", "long " * 20, "  ", "en francais", "in English"])
    entries[3:] = [replace(entries[3], language="fr"), replace(entries[4], language="en")]
    result = reembed(store, new, entries)
    assert (result.num_done, result.num_left) == (2, 3)
    assert store.get(ACME, entries[1].entry_id) == entries[1]
    assert is_foreign(entries[1], new.fingerprint)


def test_an_encoder_that_fails_leaves_everything_as_it_is(store):
    entries = fill(store, LetterEncoder(OLD))
    new = LetterEncoder("1" * 64, broken=True)
    index = FaissIndex(store, encoder=new)
    assert index.search(ACME, CONTRACT, vector_of(LetterEncoder(OLD), "hello"), new.fingerprint, 5) == []
    assert store.get(ACME, entries[0].entry_id) == entries[0]


def test_an_entry_that_was_removed_meanwhile_does_not_come_back(store):
    entries = fill(store, LetterEncoder(OLD))

    class Removing(LetterEncoder):
        def encode(self, texts):
            from cachestack.entries import Selector

            store.invalidate(Selector(entry_id=entries[0].entry_id))
            return super().encode(texts)

    result = reembed(store, Removing("1" * 64), entries)
    assert (result.num_done, result.num_left) == (3, 1)
    assert store.get(ACME, entries[0].entry_id) is None


def test_with_the_real_encoder(store, encoder_path):
    """Entries of an encoder that is gone are found by a paraphrase again."""
    encoder = SentenceEncoder(str(encoder_path))
    fill(store, LetterEncoder(OLD))
    index = FaissIndex(store, encoder=encoder)
    assert found(index, encoder, "How can I change my password?", num=1) == [QUESTIONS[0]]
    best = index.search(ACME, CONTRACT, vector_of(encoder, QUESTIONS[1]), encoder.fingerprint, 1)[0]
    assert best.entry.question == QUESTIONS[1]
    assert best.similarity == pytest.approx(1.0, abs=1e-5)
