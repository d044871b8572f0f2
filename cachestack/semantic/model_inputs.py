"""What a sentence-transformers model is given for a text: the library's own way, or the short one where both agree.

The library's `preprocess` looks at what kind of thing it was handed, at chat templates, prompts and modalities, for
each call. For nearly all text encoders the outcome is the fast tokenizer's tokens, padded. Whether it is so for this
model is tried once, on texts with all that a model may treat in its own way; if so, that is done directly.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cachestack.semantic.tokenising import FastTokenizer, Tokenised

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TRIALS = (
    "Which of the two, and why?",
    "  Leading space, TAB\tand\nlines ",
    "Où est ma commande n° 4711 ?  Ça coûte 12,50 €…",
    "数量 ｆｕｌｌ ﬁ 🙂",
    "x",
    "a_b-c/d::e <mask> [MASK] </s> <s> https://example.com/?q=1",
    "word " * 20,
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """`features`: what the model takes; arrays are NumPy's or torch's. `tokenised`: of each text, where it is known."""

    features: dict[str, Any]
    tokenised: Sequence[Tokenised] | None


class ModelInputs:
    """`model` is a SentenceTransformer, `tokenizer` its fast tokenizer by itself. May be used from several threads."""

    def __init__(self, model: Any, tokenizer: FastTokenizer | None, prompt: str) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._prompt = prompt or None
        self._preprocessing = threading.Lock()  # the library's tokenizer keeps its padding as state
        self._short_way = self._tried()

    @property
    def is_direct(self) -> bool:
        return self._short_way is not None

    def of(self, texts: Sequence[str], *, with_tokens: bool) -> Inputs:
        tokenizer, way = self._tokenizer, self._short_way
        if tokenizer is not None and way is not None:
            tokenised = tokenizer.tokenise(texts)
            arrays = padded(tokenised, way.pad_id)
            return Inputs({name: arrays[name] for name in way.names} | way.others, tokenised)
        known = tokenizer.tokenise(texts) if tokenizer is not None and with_tokens else None
        return Inputs(self._preprocessed(texts), known)

    def _preprocessed(self, texts: Sequence[str]) -> dict[str, Any]:
        with self._preprocessing:
            return dict(self._model.preprocess(list(texts), prompt=self._prompt))

    def _tried(self) -> _ShortWay | None:
        pad_id = getattr(getattr(self._model, "tokenizer", None), "pad_token_id", None)
        if self._tokenizer is None or pad_id is None:
            return None
        for texts in (_TRIALS, _TRIALS[:1]):
            theirs = self._preprocessed(texts)
            ours = padded(self._tokenizer.tokenise(texts), pad_id)
            arrays = {name: value for name, value in theirs.items() if hasattr(value, "shape")}
            if any(name not in ours or value.tolist() != ours[name].tolist() for name, value in arrays.items()):
                return None
        return _ShortWay(pad_id, tuple(arrays), {n: value for n, value in theirs.items() if n not in arrays})


@dataclass(frozen=True, slots=True)
class _ShortWay:
    pad_id: int
    names: tuple[str, ...]
    others: dict[str, Any]


def padded(tokenised: Sequence[Tokenised], pad_id: int) -> dict[str, NDArray[np.int64]]:
    """`[texts, longest]` each; padded behind."""
    import numpy as np

    shape = (len(tokenised), max(len(one.ids) for one in tokenised))
    ids = np.full(shape, pad_id, dtype=np.int64)
    types, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, one in enumerate(tokenised):
        num_tokens = len(one.ids)
        ids[row, :num_tokens], types[row, :num_tokens], mask[row, :num_tokens] = one.ids, one.type_ids, 1
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
