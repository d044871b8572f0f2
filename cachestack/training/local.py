"""Trains the local verifier: a basis for word states, the head over them, and two sets of trees."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cachestack.corpus import load_questions
from cachestack.semantic.guards import features
from cachestack.semantic.states import Basis, word_states
from cachestack.semantic.text import Text, analyse
from cachestack.semantic.verifiers import alignment
from cachestack.semantic.verifiers.alignment import Words, equal_words, words_of
from cachestack.semantic.verifiers.artefact import Artefact, feature_names
from cachestack.semantic.verifiers.head import Head, mean_score
from cachestack.training.gathering import strangers, training_pairs, validation_pairs
from cachestack.training.growing import grow
from cachestack.training.head_training import Example, train_head
from cachestack.training.measuring import calibrate, language_shifts, metrics
from cachestack.training.pairs import Pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cachestack.semantic.base import TokenEncoder

NUM_DIMS = 96
NUM_FITTED = 3000
"""Texts that the basis is fitted on."""
HEAD_EPOCHS = 4
ENCODE_AT_ONCE = 64
MAX_HEAD_WORDS = 90

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Of every distinct text that fits the encoder: its vector and its packed word states."""

    basis: Basis
    vectors: Mapping[str, NDArray[np.float32]]
    states: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """What trees are grown on, and checked on: `[pairs, features]`, with the pairs that the rows are of."""

    encoded: Encoded
    heads: tuple[Head, Head]
    training: Sequence[Pair]
    rows: NDArray[np.float32]
    validation: Sequence[Pair]
    checks: NDArray[np.float32]


def train_local(encoder: TokenEncoder, encoder_sha256: str, *, seed: int, say: Say) -> Artefact:
    """The same artefact for the same corpus, seed, library versions and number of threads."""
    return grown(material(encoder, seed, say), encoder_sha256, seed, say)


def material(encoder: TokenEncoder, seed: int, say: Say) -> Material:
    """Two heads, each trained on half of the groups. The trees see of each pair the score of the head that did not
    learn from its group: as good as it will be in use, and no better."""
    training, validation = training_pairs(seed), validation_pairs()
    encoded = encode(encoder, [text for pair in (*training, *validation) for text in (pair.a, pair.b)], seed, say)
    training += strangers(load_questions("train"), encoded.vectors, seed)
    validation += strangers(load_questions("validation"), encoded.vectors, seed, num_each=1)
    reader = PairReader(encoded)
    say(f"{len(training):,} training pairs, {len(validation):,} validation pairs")
    half = _half(training, seed)
    heads = []
    for is_first in (True, False):
        own = [p for i, p in enumerate(training) if (p.group in half) is is_first and _for_head(i, p)]
        heads.append(train_head([e for _, e in reader.examples(own)], epochs=HEAD_EPOCHS, seed=seed))
        say(f"head {len(heads)} of 2, on {len(own):,} pairs")
    first, second = heads
    rows = reader.rows(training, lambda pair: (second,) if pair.group in half else (first,), say)
    checks = reader.rows(validation, lambda _: (first, second), say)
    return Material(encoded, (first, second), training, rows, validation, checks)


def grown(material: Material, encoder_sha256: str, seed: int, say: Say) -> Artefact:
    """Both sets of trees, calibrated and measured on the validation part."""
    trees, scales, shifts, card = {}, {}, {}, {}
    same = np.array([pair.same for pair in material.training])
    weights = np.array([pair.weight for pair in material.training])
    held_same = np.array([pair.same for pair in material.validation])
    kinds = [pair.kind for pair in material.validation]
    languages = [pair.language for pair in material.validation]
    for name in ("with_states", "words_only"):
        width = len(feature_names(name == "with_states"))
        rows, checks = material.rows[:, :width], material.checks[:, :width]
        whole, known = _finite(rows), _finite(checks)
        trees[name] = grow(rows[whole], same[whole], weights[whole], seed)
        scores = np.array([trees[name].score(row) if ok else -30.0 for row, ok in zip(checks, known, strict=True)])
        slope, intercept = calibrate(scores, held_same)
        scales[name] = (slope, intercept)
        calibrated = slope * scores + intercept
        shifts[name] = language_shifts(calibrated, held_same, languages)
        calibrated += np.array([shifts[name].get(language, 0.0) for language in languages])
        card[name] = metrics(calibrated, held_same, kinds)
        say(f"{name}: {card[name]}")
    about: dict[str, Any] = {"seed": seed, "num_pairs": len(material.training), "validation": card}
    parts = trees["with_states"], trees["words_only"]
    return Artefact(material.encoded.basis, material.heads, *parts, scales, shifts, encoder_sha256, about)


def encode(encoder: TokenEncoder, texts: Sequence[str], seed: int, say: Say) -> Encoded:
    """Fit the basis on some of the texts, then keep all of them."""
    fitting = sorted({text for text in texts if encoder.fits_window(text)}, key=lambda text: (len(text), text))
    some = sorted(random.Random(seed).sample(fitting, k=min(NUM_FITTED, len(fitting))), key=len)
    found = [word_states(t, e.tokens) for t, e in _in_batches(encoder, some) if e.tokens is not None]
    basis = fit_basis(np.concatenate([states for states in found if states is not None]))
    vectors, states = {}, {}
    for done, (text, one) in enumerate(_in_batches(encoder, fitting), start=1):
        vectors[text] = one.vector
        states[text] = basis.pack(text, one.tokens) if one.tokens is not None else b""
        if done % 4096 == 0:
            say(f"encoded {done:,} of {len(fitting):,} texts")
    return Encoded(basis, vectors, states)


def fit_basis(states: NDArray[np.float32]) -> Basis:
    """The directions of most variance of `[words, hidden]`; signs are fixed, so that it is the same every time."""
    mean = states.mean(axis=0, dtype=np.float64)
    centred = states.astype(np.float64) - mean
    _, vectors = np.linalg.eigh(centred.T @ centred)
    directions = vectors[:, ::-1][:, :NUM_DIMS]
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(NUM_DIMS)])
    return Basis(mean.astype(np.float32), np.ascontiguousarray(directions * signs, dtype=np.float32))


def _in_batches(encoder: TokenEncoder, texts: Sequence[str]) -> Any:
    for start in range(0, len(texts), ENCODE_AT_ONCE):
        batch = texts[start : start + ENCODE_AT_ONCE]
        yield from zip(batch, encoder.encode_with_tokens(batch), strict=True)


class PairReader:
    """From pairs to what the verifier is trained on, with each text read once."""

    def __init__(self, encoded: Encoded) -> None:
        self._encoded = encoded
        self._text = lru_cache(maxsize=None)(analyse)
        self._words = lru_cache(maxsize=None)(self._read_words)

    def examples(self, pairs: Sequence[Pair]) -> list[tuple[int, Example]]:
        """Of the pairs whose words' states are known and that are short enough for the head."""
        found = []
        for i, pair in enumerate(pairs):
            one, other = self._words(pair.a, pair.language), self._words(pair.b, pair.language)
            if one is not None and other is not None and max(len(one.weights), len(other.weights)) <= MAX_HEAD_WORDS:
                found.append((i, Example.of(one, other, pair.same, pair.weight)))
        return found

    def rows(
        self, pairs: Sequence[Pair], heads_for: Callable[[Pair], tuple[Head, ...]], say: Say
    ) -> NDArray[np.float32]:
        """`[pairs, features]`; not a number where the encoder had nothing to say."""
        rows = np.full((len(pairs), len(feature_names(True))), np.nan, dtype=np.float32)
        for i, pair in enumerate(pairs):
            cached, asked = self._text(pair.a, pair.language), self._text(pair.b, pair.language)
            row = list(features(cached, asked).values())
            rows[i, : len(row)] = row
            one, other = self._words(pair.a, pair.language), self._words(pair.b, pair.language)
            if one is not None and other is not None:
                equal = equal_words(one, other)
                rows[i, len(row) : -2] = alignment.features(one, other, equal)
                rows[i, -2] = self._encoded.vectors[pair.a] @ self._encoded.vectors[pair.b]
                rows[i, -1] = mean_score(heads_for(pair), one, other, equal)
            if (i + 1) % 8192 == 0:
                say(f"read {i + 1:,} of {len(pairs):,} pairs")
        return rows

    def _read_words(self, text: str, language: str) -> Words | None:
        packed = self._encoded.states.get(text, b"")
        states = self._encoded.basis.unpack(text, packed)
        read: Text = self._text(text, language)
        return None if states is None else words_of(read, states)


def _for_head(number: int, pair: Pair) -> bool:
    """All written pairs with the base, and half of the many others: it takes most of the time."""
    is_plenty = pair.kind.endswith(" reworded") or pair.kind.startswith("rule ")
    return pair.kind != "two near misses" and (not is_plenty or number % 2 == 0)


def _finite(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    return np.array([bool(np.isfinite(row).all()) for row in rows], dtype=np.bool_)


def _half(pairs: Sequence[Pair], seed: int) -> set[str]:
    groups = sorted({pair.group for pair in pairs})
    random.Random(seed).shuffle(groups)
    return set(groups[: len(groups) // 2])
