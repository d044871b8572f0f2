"""Packed token states: what is kept of an encoder's states, and what is read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cachestack.corpus import load_questions
from cachestack.semantic.base import Encoded, TokenStates
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.states import MAX_WORDS, Basis, word_spans, word_states

HIDDEN, DIMS = 384, 128
TEXTS = [
    "How do I reset my password?",
    "Où est passée ma commande n° 4711, s'il vous plaît ?",
    "Transfer £250.50 from my current account to ISA-2291 on Friday at 5pm, not 6pm.",
    "no",
    "  Réglez\tles 12,50 €!!  ",
]


@pytest.fixture(scope="module")
def encoder(encoder_path: Path) -> SentenceEncoder:
    return SentenceEncoder(str(encoder_path))


@pytest.fixture(scope="module")
def basis(encoder: SentenceEncoder) -> Basis:
    """The principal directions of the corpus's own words."""
    texts = [question.text for question in load_questions("train")[::40]]
    found = [word_states(text, one.tokens) for text, one in zip(texts, _encoded(encoder, texts), strict=True)]
    rows = np.concatenate([states for states in found if states is not None])
    mean = rows.mean(axis=0)
    _, directions = np.linalg.eigh((rows - mean).T @ (rows - mean))  # ascending
    return Basis(mean, np.ascontiguousarray(directions[:, ::-1][:, :DIMS], dtype=np.float32))


def _encoded(encoder: SentenceEncoder, texts: list[str]) -> list[Encoded]:
    return encoder.encode_with_tokens(texts)


def tokens_of(encoder: SentenceEncoder, text: str) -> TokenStates:
    tokens = encoder.encode_with_tokens([text])[0].tokens
    assert tokens is not None
    return tokens


def small_basis(num_dims: int = 4, hidden: int = 6, seed: int = 0) -> Basis:
    rng = np.random.default_rng(seed)
    directions, _ = np.linalg.qr(rng.normal(size=(hidden, num_dims)))
    return Basis(rng.normal(size=hidden).astype(np.float32), directions.astype(np.float32))


def one_piece_a_word(text: str, hidden: int = 6, seed: int = 0) -> TokenStates:
    spans = np.array(word_spans(text), dtype=np.int32).reshape(-1, 2)
    return TokenStates(np.random.default_rng((seed, 1)).normal(size=(len(spans), hidden)).astype(np.float32), spans)


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_read_is_what_was_kept(encoder: SentenceEncoder, basis: Basis, text: str) -> None:
    tokens = tokens_of(encoder, text)
    packed = basis.pack(text, tokens)
    assert len(packed) == 1 + len(word_spans(text)) * DIMS
    read = basis.unpack(text, packed)
    assert read is not None
    assert read.shape == (len(word_spans(text)), DIMS)
    assert read.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(read, axis=1), 1, atol=1e-6)
    exact = word_states(text, tokens)
    assert exact is not None
    projected = (exact - basis.mean) @ basis.directions
    assert (unit(projected) * read).sum(axis=1).min() > 0.999  # int8 costs next to nothing


def test_similarities_survive_the_projection(encoder: SentenceEncoder, basis: Basis) -> None:
    """What a verifier reads is the similarity of words across two texts."""
    others = ["How can I change my password?", "Où en est ma commande 4711 ?", "Move £250 to my ISA"]
    for one, other in zip(TEXTS[:3], others, strict=True):
        exact, read = [], []
        for text in (one, other):
            tokens = tokens_of(encoder, text)
            states = word_states(text, tokens)
            assert states is not None
            exact.append(unit(states - basis.mean))
            kept = basis.unpack(text, basis.pack(text, tokens))
            assert kept is not None
            read.append(kept)
        before, after = (exact[0] @ exact[1].T).ravel(), (read[0] @ read[1].T).ravel()
        assert np.corrcoef(before, after)[0, 1] > 0.95


def test_a_words_state_is_the_mean_of_its_pieces(encoder: SentenceEncoder) -> None:
    text = "unbelievably cheap flights"
    tokens = tokens_of(encoder, text)
    states = word_states(text, tokens)
    assert states is not None
    for row, (start, end) in zip(states, word_spans(text), strict=True):
        inside = (tokens.spans[:, 0] >= start) & (tokens.spans[:, 0] < end)
        np.testing.assert_allclose(row, tokens.states[inside].mean(axis=0), rtol=1e-5, atol=1e-6)
    assert len(tokens.spans) > len(states)


def test_another_text_another_basis_another_version_and_a_part_of_it_are_not_read() -> None:
    basis, text = small_basis(), "one two three"
    packed = basis.pack(text, one_piece_a_word(text))
    assert basis.unpack(text, packed) is not None
    assert basis.unpack("one two", packed) is None
    assert basis.unpack("one two three four", packed) is None
    assert basis.unpack("...", packed) is None
    for length in range(len(packed)):
        assert basis.unpack(text, packed[:length]) is None
    assert basis.unpack(text, packed + b"\x01") is None
    assert basis.unpack(text, b"\x02" + packed[1:]) is None
    for num_dims in (1, 2, 3, 5, 6):
        assert small_basis(num_dims).unpack(text, packed) is None


def test_an_encoder_of_another_width_has_nothing_to_keep() -> None:
    assert small_basis(hidden=6).pack("one two", one_piece_a_word("one two", hidden=7)) == b""


@pytest.mark.parametrize("text", ["", "   ", "?!…", "___", "🙂🙂", "— · —"])
def test_a_text_without_words_keeps_nothing(encoder: SentenceEncoder, basis: Basis, text: str) -> None:
    assert word_spans(text) == []
    if text.strip():
        assert basis.pack(text, tokens_of(encoder, text)) == b""
    empty = TokenStates(np.empty((0, HIDDEN), np.float32), np.empty((0, 2), np.int32))
    assert basis.pack(text, empty) == b""
    assert basis.unpack(text, b"") is None
    assert basis.unpack(text, b"\x01") is None


def test_too_many_words_keep_nothing() -> None:
    basis = small_basis()
    text = "a " * MAX_WORDS
    packed = basis.pack(text, one_piece_a_word(text))
    assert len(packed) == 1 + MAX_WORDS * 4
    assert basis.pack(text + "a", one_piece_a_word(text + "a")) == b""


def test_a_word_that_no_piece_covers_keeps_nothing() -> None:
    tokens = one_piece_a_word("one two three")
    some = TokenStates(tokens.states[:2], tokens.spans[:2])
    assert word_states("one two three", some) is None
    assert small_basis().pack("one two three", some) == b""
    assert word_states("one two", some) is not None


def test_pieces_between_words_count_for_none() -> None:
    text = "one, two"
    spans = np.array([[0, 3], [3, 4], [5, 8]], np.int32)
    states = np.array([[1.0], [100.0], [3.0]], np.float32)
    found = word_states(text, TokenStates(states, spans))
    assert found is not None
    assert found.tolist() == [[1.0], [3.0]]


def test_rows_that_cannot_be_scaled_keep_nothing() -> None:
    basis = small_basis()
    tokens = one_piece_a_word("one two")
    for wrong in (basis.mean, np.full(6, np.nan, np.float32), np.full(6, np.inf, np.float32)):
        states = tokens.states.copy()
        states[1] = wrong  # the mean itself: nothing is left of it
        assert basis.pack("one two", TokenStates(states, tokens.spans)) == b""
    zeros = b"\x01" + b"\x07" * 4 + b"\x00" * 4
    assert basis.unpack("one two", zeros) is None


def test_the_smallest_rows_are_scaled_like_the_largest() -> None:
    basis = Basis(np.zeros(2, np.float32), np.eye(2, dtype=np.float32))
    for size in (1e-40, 1e-20, 1.0, 1e20, 1e38):
        tokens = TokenStates(np.array([[size, -size / 2]], np.float32), np.array([[0, 3]], np.int32))
        read = basis.unpack("one", basis.pack("one", tokens))
        assert read is not None, size
        np.testing.assert_allclose(read, [[0.8944, -0.4472]], atol=0.01)


@pytest.mark.parametrize(
    ("composed", "taken_apart"), [("réglé où", "re\u0301gle\u0301 ou\u0300"), ("naïve?", "nai\u0308ve?")]
)
def test_both_unicode_forms_are_the_same_words(
    encoder: SentenceEncoder, basis: Basis, composed: str, taken_apart: str
) -> None:
    kept = [basis.pack(text, tokens_of(encoder, text)) for text in (composed, taken_apart)]
    assert kept[0]
    assert len(word_spans(composed)) == len(word_spans(taken_apart))
    ours, theirs = (basis.unpack(text, some) for text, some in zip((composed, taken_apart), kept, strict=True))
    np.testing.assert_allclose(ours, theirs, atol=0.02)


WORDS = st.text(
    alphabet=st.one_of(
        st.sampled_from("abcXYZ 0129éœß'-_.\t\n"), st.characters(), st.sampled_from(["\ud800", "\udfff", "\u0301"])
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(WORDS, st.integers(0, 2**32 - 1))
@example("\ud800 lone", 0)
@example("é\u0301\u0301x", 0)
def test_any_text_is_kept_whole_or_not_at_all(text: str, seed: int) -> None:
    basis = small_basis()
    spans = word_spans(text)
    assert all(text[start:end] and text[start].isalnum() for start, end in spans)
    assert "".join(c for c in text if c.isalnum()) == "".join(
        c for start, end in spans for c in text[start:end] if c.isalnum()
    )
    packed = basis.pack(text, one_piece_a_word(text, seed=seed))
    read = basis.unpack(text, packed)
    assert (read is None) is (not spans)
    if read is not None:
        assert read.shape == (len(spans), 4)
        np.testing.assert_allclose(np.linalg.norm(read, axis=1), 1, atol=1e-6)
        assert basis.unpack(text + " x", packed) is None


@settings(max_examples=100, deadline=None)
@given(WORDS, st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(text: str, packed: bytes) -> None:
    read = small_basis().unpack(text, packed)
    assert read is None or (np.isfinite(read).all() and len(read) == len(word_spans(text)))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.text(st.sampled_from("abc déœ'-_.,€🙂数12\u0301"), min_size=1, max_size=30).filter(str.strip))
def test_the_real_encoders_states_of_any_text(encoder: SentenceEncoder, basis: Basis, text: str) -> None:
    packed = basis.pack(text, tokens_of(encoder, text))
    read = basis.unpack(text, packed)
    assert (read is None) is (packed == b"")
    assert packed == b"" or len(packed) == 1 + DIMS * len(word_spans(text))
