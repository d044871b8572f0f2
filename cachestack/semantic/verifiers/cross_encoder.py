"""CacheStack's own cross-encoder: the default encoder's layers, trained further to tell near misses from rewordings.

It holds each word of one text against the other text and so sees what comparing vectors cannot: roles under another
wording, scope, technical twins. It costs tens of milliseconds, and is asked in doubt only. Needs two things in the
models folder, whatever encoder is in use: `cachestack models pull all-minilm-l6-v2`, and `cachestack models build
cross-encoder`.
"""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cachestack.errors import ModelError, ModelNotFound
from cachestack.folders import models_folder
from cachestack.models.catalogue import DEFAULT_ENCODER, ModelKind
from cachestack.models.resolve import resolve
from cachestack.semantic.verifiers.base import Agreement, probability

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from cachestack.semantic.verifiers.joint import PairNetwork, Texts

FORMAT = 2
FILE = "cross.npz"
FOLDER = "cachestack-cross-encoder"
"""In the models folder."""


def file_in(models: Path) -> Path:
    """Where the trained weights are kept."""
    return models / FOLDER / FILE


class Reader:
    """The default encoder's weights and tokenizer. Raises ModelError."""

    def __init__(self, models: Path | None = None) -> None:
        self._folder = Path(resolve(DEFAULT_ENCODER, ModelKind.ENCODER, folder=models))

    @cached_property
    def weights(self) -> Mapping[str, Tensor]:
        from safetensors.torch import load_file

        loaded: Mapping[str, Tensor] = load_file(self._folder / "model.safetensors")
        return loaded

    def fits(self, text: str) -> bool:
        from cachestack.semantic.verifiers.joint import MAX_TOKENS

        return len(self.ids(text)) <= MAX_TOKENS

    def ids(self, text: str) -> list[int]:
        """Special tokens included."""
        found: list[int] = self._tokenizer.encode(text).ids
        return found

    def embedded(self, texts: Sequence[str]) -> Texts:
        """The texts' ids and word embeddings: what a network starts from."""
        found: Texts = self._embeddings([self.ids(text) for text in texts])
        return found

    @cached_property
    def _embeddings(self) -> Any:
        from cachestack.semantic.verifiers.joint import Embeddings

        return Embeddings(self.weights)

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


class CrossEncoder:
    """A TextVerifier. Its score joins its own opinion and the first verifier's. Loads at once. Raises ModelError."""

    def __init__(self, models: Path | None = None) -> None:
        self._reader = Reader(models)
        path = file_in(models or models_folder())
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise ModelNotFound(
                f"the cross-encoder is not in {path.parent}: `cachestack models build cross-encoder` trains it from "
                "the corpus that comes with the package; any other one can be named as cross_encoder:NAME"
            ) from None
        self._network, self.meta = read_network(data)
        self._reader.embedded(["ready"])

    def verify_texts(self, cached: str, asked: str, score: float) -> Agreement:
        if not (self._reader.fits(cached) and self._reader.fits(asked)):
            return Agreement(False, 0.0, {"error": "a text is too long for the cross-encoder"})
        own = self.log_odds(cached, asked)
        weight, first_weight, shift = self.meta["joined"]
        first = math.log(max(score, 1e-6) / max(1 - score, 1e-6))
        if not math.isfinite(own):
            return Agreement(False, 0.0, {"error": "the cross-encoder gave a value that is not finite"})
        joined = weight * own + first_weight * first + shift
        return Agreement(None, probability(joined), {"log_odds": round(own, 3)})

    def log_odds(self, cached: str, asked: str) -> float:
        """The mean of both orders: the same whichever text comes first."""
        import torch

        from cachestack.semantic.verifiers.joint import Texts

        with torch.inference_mode():
            read = self._network.read(self._reader.embedded([cached, asked]))
            other = Texts(read.ids.flip(0), read.states.flip(0), read.words.flip(0))
            return float(self._network(read, other).mean())


def read_network(data: bytes) -> tuple[PairNetwork, dict[str, Any]]:
    """From the file's bytes: int8 rows with a scale each, small tensors as they are."""
    import io

    import torch

    from cachestack.semantic.verifiers.joint import PairNetwork

    network = PairNetwork()
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        meta: dict[str, Any] = json.loads(str(arrays["meta"]))
        if meta["format"] != FORMAT:
            raise ModelError(f"the cross-encoder's file has format {meta['format']}; this version reads {FORMAT}")
        state = {}
        for name in network.state_dict():
            values = arrays[name].astype(np.float32)
            state[name] = torch.from_numpy(values * arrays[f"{name}:scale"] if f"{name}:scale" in arrays else values)
    network.load_state_dict(state)
    return network.requires_grad_(False).eval(), meta


def write_network(network: PairNetwork, meta: Mapping[str, Any]) -> bytes:
    """Each matrix as int8 with one scale a row; the rest in float32."""
    import io

    arrays: dict[str, Any] = {}
    for name, tensor in network.state_dict().items():
        values = tensor.detach().numpy()
        if values.ndim == 2 and values.size > 4096:
            scale = np.abs(values).max(axis=1, keepdims=True) / 127
            arrays[name] = np.rint(values / scale).astype(np.int8)
            arrays[f"{name}:scale"] = scale.astype(np.float32)
        else:
            arrays[name] = values.astype(np.float32)
    file = io.BytesIO()
    document = json.dumps({**meta, "format": FORMAT}, sort_keys=True)
    np.savez_compressed(file, meta=np.array(document), **dict(sorted(arrays.items())))
    return file.getvalue()
