"""Trains the cross-encoder's upper layers and head: between one and two hours on two cores."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from cachestack.corpus import load_questions
from cachestack.semantic.embed import SentenceEncoder
from cachestack.semantic.text import analyse
from cachestack.semantic.verifiers.base import Side
from cachestack.semantic.verifiers.cross_encoder import Reader, read_upper, write_upper
from cachestack.semantic.verifiers.joint import Piece, Upper, upper_from
from cachestack.semantic.verifiers.local import LocalVerifier
from cachestack.training.contrasts import contrasts
from cachestack.training.gathering import strangers, validation_pairs
from cachestack.training.measuring import calibrate, metrics
from cachestack.training.pairs import Pair, pairs_of_question

BATCH = 32
WINDOW = 16
"""Batches are cut from so many batches' pairs in order of length, so that little is padded."""
LEARNING_RATE, HEAD_RATE = 2e-4, 1e-3
WARM_UP = 60
SMOOTHING = 0.02
ENCODE_AT_ONCE = 64
MAX_CHARACTERS = 260
"""Of both texts of a pair to train on: long ones take most of the time."""
NUM_PAIRS = 26_000
REWORDED_SHARE = 0.5
"""How many of the pairs of a rewording and a near miss are used."""

Report = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""


def train_cross(
    *,
    seed: int,
    epochs: int,
    report: Report,
    models: Path | None = None,
    num_pairs: int = NUM_PAIRS,
    threads: int = 2,
) -> tuple[bytes, dict[str, Any]]:
    """The file's bytes and the card. Its score is joined with that of the local verifier that ships."""
    torch.set_num_threads(threads)
    reader, encoder = Reader(models), SentenceEncoder("all-minilm-l6-v2", models=models)
    upper = train(reader, chosen_pairs(encoder, seed, num_pairs), epochs=epochs, seed=seed, report=report)
    upper, _ = read_upper(write_upper(upper, {}))  # measured as it ships: int8
    checks = [pair for pair in validation_pairs() if reader.fits(pair.a) and reader.fits(pair.b)]
    texts = sorted({q.text for q in load_questions("validation")})
    checks += strangers(load_questions("validation"), _vectors(encoder, texts), seed, num_each=1)
    own = scores_of(reader, upper, [(pair.a, pair.b) for pair in checks]).astype(np.float64)
    first = local_log_odds(LocalVerifier(), encoder, checks)
    same, kinds = np.array([pair.same for pair in checks]), [pair.kind for pair in checks]
    joined = calibrate(own, same, first)
    card = {
        "seed": seed,
        "epochs": epochs,
        "validation": {
            "cross_encoder": metrics(own, same, kinds),
            "local": metrics(first, same, kinds),
            "joined": metrics(joined[0] * own + joined[1] * first + joined[2], same, kinds),
        },
    }
    return write_upper(upper, {"joined": joined, "card": card}), card


def chosen_pairs(encoder: SentenceEncoder, seed: int, num_pairs: int = NUM_PAIRS) -> list[Pair]:
    """So many short pairs of all kinds."""
    rng = random.Random(seed)
    questions = load_questions("train")
    written = [p for q in questions for p in pairs_of_question(q) if p.kind != "two near misses"]
    some = [p for p in written if not p.kind.endswith(" reworded") or rng.random() < REWORDED_SHARE]
    made = list(contrasts(questions, seed, num_different=2, num_same=1))
    others = strangers(questions, _vectors(encoder, sorted({q.text for q in questions})), seed, num_each=1)
    short = [p for p in (*some, *made, *others) if len(p.a) + len(p.b) <= MAX_CHARACTERS]
    return rng.sample(short, k=min(num_pairs, len(short)))


def local_log_odds(verifier: LocalVerifier, encoder: SentenceEncoder, pairs: Sequence[Pair]) -> NDArray[np.float64]:
    texts = sorted({(text, pair.language) for pair in pairs for text in (pair.a, pair.b)})
    sides, vectors = {}, {}
    for start in range(0, len(texts), ENCODE_AT_ONCE):
        some = texts[start : start + ENCODE_AT_ONCE]
        for key, one in zip(some, encoder.encode_with_tokens([text for text, _ in some]), strict=True):
            packed = b"" if one.tokens is None else verifier.made.basis.pack(key[0], one.tokens)
            sides[key], vectors[key] = Side(analyse(*key), packed), one.vector
    found = []
    for pair in pairs:
        cached, asked = (pair.a, pair.language), (pair.b, pair.language)
        score, _ = verifier.score(sides[cached], sides[asked], float(vectors[cached] @ vectors[asked]))
        found.append(math.log(max(score, 1e-6) / max(1 - score, 1e-6)))
    return np.array(found)


def _vectors(encoder: SentenceEncoder, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    fitting = [text for text in texts if encoder.fits_window(text)]
    return dict(zip(fitting, encoder.encode(fitting), strict=True))


class LowerStates:
    """Each text's lower states, worked out once and kept in half precision."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._kept: dict[str, Piece] = {}

    def add(self, texts: Sequence[str], report: Report = lambda *_: None) -> None:
        new = sorted({text for text in texts if text not in self._kept}, key=lambda text: (len(text), text))
        for start in range(0, len(new), ENCODE_AT_ONCE):
            some = new[start : start + ENCODE_AT_ONCE]
            for text, piece in zip(some, self._reader.lower(some), strict=True):
                self._kept[text] = Piece(piece.ids.clone(), piece.states.half())
            report("read", start + len(some), len(new))

    def of(self, texts: Sequence[str]) -> list[Piece]:
        return [self._kept[text] for text in texts]


def train(reader: Reader, pairs: Sequence[Pair], *, epochs: int, seed: int, report: Report) -> Upper:
    """The same weights for the same pairs, seed, library versions and number of threads."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    upper = upper_from(reader.weights).train()
    states = LowerStates(reader)
    pairs = [pair for pair in pairs if reader.fits(pair.a) and reader.fits(pair.b)]
    states.add([text for pair in pairs for text in (pair.a, pair.b)], report)
    head = [*upper.piece.parameters(), *upper.compare.parameters(), *upper.decide.parameters()]
    rest = [upper.side, upper.mark, *upper.layers.parameters()]
    optimiser = torch.optim.AdamW(
        [{"params": rest, "lr": LEARNING_RATE}, {"params": head, "lr": HEAD_RATE}], weight_decay=0.01
    )
    num_steps = sum(1 for _ in range(epochs) for _ in range(0, len(pairs), BATCH))
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / WARM_UP) * max(0.02, 1 - step / num_steps)
    )
    step = 0
    for _ in range(epochs):
        for batch in _batches(pairs, rng):
            loss = _loss(upper, states, batch, rng)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(upper.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            rates.step()
            step += 1
            report("train", step, num_steps)
    return upper.eval()


def _batches(pairs: Sequence[Pair], rng: random.Random) -> Iterator[list[Pair]]:
    order = rng.sample(pairs, k=len(pairs))
    batches: list[list[Pair]] = []
    for start in range(0, len(order), BATCH * WINDOW):
        some = sorted(order[start : start + BATCH * WINDOW], key=lambda pair: len(pair.a) + len(pair.b))
        cut = [some[i : i + BATCH] for i in range(0, len(some), BATCH)]
        rng.shuffle(cut)
        batches += cut
    yield from batches


def _loss(upper: Upper, states: LowerStates, batch: Sequence[Pair], rng: random.Random) -> torch.Tensor:
    """Either side may come first."""
    ordered = [(pair.a, pair.b) if rng.random() < 0.5 else (pair.b, pair.a) for pair in batch]
    scores = upper(states.of([a for a, _ in ordered]), states.of([b for _, b in ordered]))
    wanted = torch.tensor([1 - SMOOTHING if pair.same else SMOOTHING for pair in batch])
    weights = torch.tensor([pair.weight for pair in batch])
    return functional.binary_cross_entropy_with_logits(scores, wanted, weight=weights)


@torch.no_grad()
def scores_of(reader: Reader, upper: Upper, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
    """Log-odds, the mean of both orders; not a number where a text is too long."""
    found = np.full(len(pairs), np.nan, dtype=np.float32)
    fitting = [i for i, (a, b) in enumerate(pairs) if reader.fits(a) and reader.fits(b)]
    fitting.sort(key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
    states = LowerStates(reader)
    for start in range(0, len(fitting), ENCODE_AT_ONCE):
        rows = fitting[start : start + ENCODE_AT_ONCE]
        states.add([text for i in rows for text in pairs[i]])
        first, second = (states.of([pairs[i][side] for i in rows]) for side in (0, 1))
        found[rows] = ((upper(first, second) + upper(second, first)) / 2).numpy()
    return found
