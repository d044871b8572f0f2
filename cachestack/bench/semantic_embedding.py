"""What a request pays for its embedding, against the encoder's bare forward, in pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from cachestack.bench.ratios import Ratio, paired_ratio
from cachestack.build import DEFAULT_ENCODER
from cachestack.effects import Embedding
from cachestack.errors import EncoderError
from cachestack.models.catalogue import ModelKind
from cachestack.models.manifest import Report
from cachestack.models.resolve import resolve
from cachestack.performer import Performer


def embedding_ratio(
    performer: Performer, texts: Sequence[str], num_pairs: int, report: Report, timer: Callable[[], float]
) -> tuple[Ratio, float]:
    """The ratio, and the median seconds of an embedding. Each pair is of one text; the other one begins each time.

    Bare: tokens and one forward pass of the same weights, as Transformers alone does it, without pooling.
    """
    bare = _bare_forward(resolve(DEFAULT_ENCODER, ModelKind.ENCODER))
    ours: list[float] = []
    theirs: list[float] = []

    def embed(text: str) -> None:
        made = performer.embed(text)
        if not isinstance(made, Embedding):
            raise EncoderError(f"{text!r} could not be embedded: {made.value}")

    for number in range(-5, num_pairs):
        report("embedding against the bare forward", max(0, number), num_pairs)
        text = texts[number % len(texts)]
        pair = [(ours, embed), (theirs, bare)]
        for series, action in pair if number % 2 else reversed(pair):
            began = timer()
            action(text)
            seconds = timer() - began
            if number >= 0:
                series.append(seconds)
    report("embedding against the bare forward", num_pairs, num_pairs)
    return paired_ratio(ours, theirs), median(ours)


def _bare_forward(path: str | Path) -> Callable[[str], None]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    model: Any = AutoModel.from_pretrained(path).float().eval()

    def forward(text: str) -> None:
        with torch.inference_mode():
            model(**tokenizer(text, return_tensors="pt"))

    return forward
