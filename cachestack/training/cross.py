"""Trains the cross-encoder: between half an hour and three hours on two cores."""

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
from cachestack.semantic.verifiers.cross_encoder import Reader, read_network, write_network
from cachestack.semantic.verifiers.joint import PairNetwork, Texts, network_from
from cachestack.semantic.verifiers.local import LocalVerifier
from cachestack.training.contrasts import contrasts
from cachestack.training.gathering import strangers, validation_pairs
from cachestack.training.measuring import calibrate, metrics
from cachestack.training.pairs import Pair, pairs_of_question

BATCH = 32
WINDOW = 16
"""Batches are cut from so many batches' pairs in order of length, so that little is padded."""
LEARNING_RATE, HEAD_RATE = 1e-4, 5e-4
WARM_UP = 100
SMOOTHING = 0.02
ENCODE_AT_ONCE = 64
MAX_CHARACTERS = 300
"""Of both texts of a pair to train on: long ones take most of the time."""
NUM_PAIRS = 60_000
EPOCHS = 2

Report = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""


def train_cross(
    *,
    seed: int,
    report: Report,
    epochs: int = EPOCHS,
    models: Path | None = None,
    num_pairs: int = NUM_PAIRS,
    threads: int = 2,
) -> tuple[bytes, dict[str, Any]]:
    """The file's bytes and the card. Its score is joined with that of the local verifier that ships."""
    torch.set_num_threads(threads)
    reader, encoder = Reader(models), SentenceEncoder("all-minilm-l6-v2", models=models)
    network = train(reader, chosen_pairs(encoder, seed, num_pairs), epochs=epochs, seed=seed, report=report)
    network, _ = read_network(write_network(network, {}))  # measured as it is kept: int8
    questions = load_questions("validation")
    vectors = _vectors(encoder, sorted({q.text for q in questions}))
    checks = [*validation_pairs(), *strangers(questions, vectors, seed, num_each=1)]
    checks = [pair for pair in checks if reader.fits(pair.a) and reader.fits(pair.b)]
    own = scores_of(reader, network, [(pair.a, pair.b) for pair in checks], report).astype(np.float64)
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
    return write_network(network, {"joined": joined, "card": card}), card


def chosen_pairs(encoder: SentenceEncoder, seed: int, num_pairs: int = NUM_PAIRS) -> list[Pair]:
    """So many short pairs of all kinds."""
    rng = random.Random(seed)
    questions = load_questions("train")
    written = [p for q in questions for p in pairs_of_question(q) if p.kind != "two near misses"]
    made = list(contrasts(questions, seed, num_different=2, num_same=1))
    others = strangers(questions, _vectors(encoder, sorted({q.text for q in questions})), seed, num_each=1)
    short = [p for p in (*written, *made, *others) if len(p.a) + len(p.b) <= MAX_CHARACTERS]
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


def train(reader: Reader, pairs: Sequence[Pair], *, epochs: int, seed: int, report: Report) -> PairNetwork:
    """The same weights for the same pairs, seed, library versions, kind of processor and number of threads."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    network = network_from(reader.weights).train()
    pairs = [pair for pair in pairs if reader.fits(pair.a) and reader.fits(pair.b)]
    fresh = [p for name, p in network.named_parameters() if not name.startswith("layers.")]
    optimiser = torch.optim.AdamW(
        [{"params": list(network.layers.parameters()), "lr": LEARNING_RATE}, {"params": fresh, "lr": HEAD_RATE}],
        weight_decay=0.01,
        fused=True,
    )
    num_steps = epochs * (len(pairs) // BATCH + len(pairs) // (BATCH * WINDOW) + 1)
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / WARM_UP) * max(0.02, 1 - step / num_steps)
    )
    step = 0
    for _ in range(epochs):
        for batch in _batches(pairs, rng):
            with torch.autocast("cpu", torch.bfloat16, enabled=has_fast_bfloat16()):
                loss = _loss(network, reader, batch, rng)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            rates.step()
            step += 1
            report("train", step, max(num_steps, step))
    return network.eval()


def has_fast_bfloat16() -> bool:
    """Whether this processor multiplies matrices of bfloat16 in hardware: then training takes half the time."""
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(ask and ask())


def _batches(pairs: Sequence[Pair], rng: random.Random) -> Iterator[list[Pair]]:
    order = rng.sample(pairs, k=len(pairs))
    batches: list[list[Pair]] = []
    for start in range(0, len(order), BATCH * WINDOW):
        some = sorted(order[start : start + BATCH * WINDOW], key=lambda pair: len(pair.a) + len(pair.b))
        cut = [some[i : i + BATCH] for i in range(0, len(some), BATCH)]
        rng.shuffle(cut)
        batches += cut
    yield from batches


def _loss(network: PairNetwork, reader: Reader, batch: Sequence[Pair], rng: random.Random) -> torch.Tensor:
    """Either side may come first."""
    ordered = [(pair.a, pair.b) if rng.random() < 0.5 else (pair.b, pair.a) for pair in batch]
    scores = network(*_read(network, reader, ordered))
    wanted = torch.tensor([1 - SMOOTHING if pair.same else SMOOTHING for pair in batch])
    weights = torch.tensor([pair.weight for pair in batch])
    return functional.binary_cross_entropy_with_logits(scores, wanted, weight=weights)


def _read(network: PairNetwork, reader: Reader, pairs: Sequence[tuple[str, str]]) -> tuple[Texts, Texts]:
    """The first texts and the second ones, read in one pass."""
    both = network.read(reader.embedded([a for a, _ in pairs] + [b for _, b in pairs]))
    num = len(pairs)
    return (
        Texts(both.ids[:num], both.states[:num], both.words[:num]),
        Texts(both.ids[num:], both.states[num:], both.words[num:]),
    )


@torch.no_grad()
def scores_of(
    reader: Reader, network: PairNetwork, pairs: Sequence[tuple[str, str]], report: Report = lambda *_: None
) -> NDArray[np.float32]:
    """Log-odds, the mean of both orders; not a number where a text is too long."""
    found = np.full(len(pairs), np.nan, dtype=np.float32)
    fitting = [i for i, (a, b) in enumerate(pairs) if reader.fits(a) and reader.fits(b)]
    fitting.sort(key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
    for start in range(0, len(fitting), ENCODE_AT_ONCE):
        rows = fitting[start : start + ENCODE_AT_ONCE]
        first, second = _read(network, reader, [pairs[i] for i in rows])
        found[rows] = ((network(first, second) + network(second, first)) / 2).numpy()
        report("measure", start + len(rows), len(fitting))
    return found
