"""Texts to unit vectors and token states, with any sentence-transformers model.

Nothing is imported or read before it is needed: the window and the fingerprint come from the model's files, whether a
text fits from its tokenizer alone, and only `encode` and `dimension` load the model.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachestack.errors import EncoderError, MissingExtra
from cachestack.models.catalogue import CATALOGUE, ModelKind, find_known
from cachestack.models.resolve import resolve
from cachestack.semantic.base import Encoded, TokenStates
from cachestack.semantic.encoder_files import EncoderFiles
from cachestack.semantic.model_inputs import ModelInputs
from cachestack.semantic.tokenising import FastTokenizer, Tokenised

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_WINDOW = 2**31 - 1
"""The window of a model that reads texts of any length."""

_SPARE_TOKENS = 8
_NORM_TOLERANCE = 1e-3


class SentenceEncoder:
    """An Encoder. `ref` is a known model's name, a folder, or a Hugging Face id; `models` is the models folder.

    `device` is torch's name for it; None leaves the choice to sentence-transformers. Computes in float32. May be used
    from several threads; the model runs in all of them.
    Finding the model raises ModelError, loading it EncoderError.
    """

    def __init__(
        self, ref: str, device: str | None = None, *, models: Path | None = None, batch_size: int = 32
    ) -> None:
        self._ref = ref
        self._device = device
        self._models = models
        self._batch_size = batch_size
        self._loading = threading.RLock()
        self._tokenising = threading.Lock()
        self._loaded: Any = None  # these three are set once, under `_loading`
        self._read: EncoderFiles | None = None
        self._read_by: ModelInputs | None = None

    @property
    def name(self) -> str:
        known = find_known(self._ref)
        return self._ref if known is None else known.name

    @cached_property
    def languages(self) -> frozenset[str]:
        """Of a known model, known by its name or by its weights; else empty."""
        known = find_known(self._ref)
        if known is not None:
            return frozenset(known.languages)
        if not Path(self._ref).is_dir():
            return frozenset()
        return _languages_of(self._files)

    @property
    def weights_sha256(self) -> str:
        """Of the model's weight file; of several files, their digests joined by `+`."""
        return "+".join(sorted(self._files.weights.values()))

    @cached_property
    def window_tokens(self) -> int:
        stated = self._files.window_tokens
        if stated is None:
            stated = self._model.max_seq_length
        return NO_WINDOW if stated is None else int(stated)

    @property
    def fingerprint(self) -> str:
        return self._files.fingerprint

    @cached_property
    def dimension(self) -> int:
        dimension = self._model.get_embedding_dimension()
        return (
            int(dimension) if dimension is not None else len(self._forward(["dimension"], with_tokens=False)[0].vector)
        )

    def fits_window(self, text: str) -> bool:
        """Counted with the model's tokenizer; ASCII text with fewer characters than the window has tokens just fits.

        False, too, for text that cannot be tokenised, such as a lone surrogate.
        """
        window = self.window_tokens
        if window == NO_WINDOW:
            return True
        if text.isascii() and len(self._files.prompt) + len(text) + _SPARE_TOKENS <= window:
            return True
        try:
            return self.count_tokens(text) <= window
        except (TypeError, ValueError):
            return False

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """`[len(texts), dimension]`, float32, rows of length 1, in the order of the texts.

        Raises EncoderError for a text that is empty or longer than the window, and for values that are not finite.
        """
        import numpy as np

        encoded = self._encode(texts, with_tokens=False)
        return np.stack([one.vector for one in encoded]) if encoded else np.empty((0, self.dimension), np.float32)

    def encode_with_tokens(self, texts: Sequence[str]) -> list[Encoded]:
        """As `encode`, with the token states of the same pass.

        No token states for a text that the model reads with other tokens than its `tokenizer.json` gives, or where it
        keeps none.
        """
        return self._encode(texts, with_tokens=True)

    def _encode(self, texts: Sequence[str], *, with_tokens: bool) -> list[Encoded]:
        for number, text in enumerate(texts):
            if not text.strip():
                raise EncoderError(f"text {number} is empty; there is nothing to embed")
            if not self.fits_window(text):
                raise EncoderError(
                    f"text {number} ({len(text)} characters) is longer than the encoder's window of "
                    f"{self.window_tokens} tokens, or cannot be tokenised; it is not cut off silently"
                )
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found: dict[int, Encoded] = {}
        for start in range(0, len(texts), self._batch_size):
            rows = by_length[start : start + self._batch_size]
            made = self._forward([texts[i] for i in rows], with_tokens=with_tokens)
            for i, one in zip(rows, made, strict=True):
                _check_unit(one.vector, i)
                found[i] = one
        return [found[i] for i in range(len(texts))]

    def _forward(self, texts: list[str], *, with_tokens: bool) -> list[Encoded]:
        """One batch, unchecked."""
        import torch

        model, inputs = self._model, self._inputs
        try:
            given = inputs.of(texts, with_tokens=with_tokens)
            features = {name: _on_device(value, model.device) for name, value in given.features.items()}
            ids = features.get("input_ids")
            with torch.inference_mode():
                made = model(features)
                unit = torch.nn.functional.normalize(made["sentence_embedding"].float(), p=2, dim=1)
                vectors = unit.cpu().numpy()
                hidden = made.get("token_embeddings") if with_tokens else None
                states = None if hidden is None or ids is None else hidden.float().cpu().numpy()
        except (RuntimeError, TypeError, ValueError) as error:
            raise EncoderError(f"encoder {self.name} failed: {error}") from error
        if states is None or ids is None or given.tokenised is None or states.shape[:2] != tuple(ids.shape):
            return [Encoded(vector) for vector in vectors]
        rows = zip(vectors, given.tokenised, ids.tolist(), states, strict=True)
        return [Encoded(vector, _states_of(tokens, its, of)) for vector, tokens, its, of in rows]

    @property
    def _inputs(self) -> ModelInputs:
        inputs = self._read_by
        if inputs is None:
            model = self._model
            with self._loading:
                if self._read_by is None:
                    self._read_by = ModelInputs(model, self._tokenizer, self._files.prompt)
                inputs = self._read_by
        return inputs

    def count_tokens(self, text: str) -> int:
        """Prompt and special tokens included."""
        tokenizer = self._tokenizer
        if tokenizer is not None:
            return tokenizer.count(text)
        text = self._files.prompt + text
        with self._tokenising:
            return len(self._model.tokenizer(text, truncation=False, verbose=False)["input_ids"])

    @cached_property
    def _tokenizer(self) -> FastTokenizer | None:
        path = self._files.tokenizer
        return None if path is None else FastTokenizer(path, self._files.prompt)

    @cached_property
    def _path(self) -> str:
        """A local folder, or a Hugging Face id."""
        return resolve(self._ref, ModelKind.ENCODER, folder=self._models)

    @property
    def _files(self) -> EncoderFiles:
        files = self._read
        if files is not None:
            return files
        with self._loading:
            if self._read is None:
                self._read = EncoderFiles(self._folder())
            return self._read

    def _folder(self) -> Path:
        if Path(self._path).is_dir():
            return Path(self._path)
        self._load(self._path)  # from the hub: its files are on disk only once it is loaded
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(self._path, local_files_only=True))

    @property
    def _model(self) -> Any:
        model = self._loaded
        return model if model is not None else self._load(self._path)

    def _load(self, path: str) -> Any:
        with self._loading:
            if self._loaded is None:
                if Path(path).is_dir():
                    _ = self._files.fingerprint  # of the files that are about to be loaded
                self._loaded = _load_model(path, self._device)
            return self._loaded


def _on_device(value: Any, device: Any) -> Any:
    import numpy as np
    import torch

    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _states_of(tokenised: Tokenised, ids: list[int], states: NDArray[np.float32]) -> TokenStates | None:
    """None unless the model read, padding apart, the tokens that the spans belong to."""
    num_tokens = len(tokenised.ids)
    for first in (0, len(ids) - num_tokens):  # padded behind, or in front
        if ids[first : first + num_tokens] == tokenised.ids:
            return TokenStates(states[first + tokenised.own], tokenised.spans)
    return None


def _check_unit(vector: NDArray[np.float32], number: int) -> None:
    squares = float(vector @ vector)
    if not abs(squares - 1.0) <= 2 * _NORM_TOLERANCE:  # also for what is not finite
        raise EncoderError(f"the embedding of text {number} is not a finite vector of length 1; the model is damaged")


def _load_model(path: str, device: str | None) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging
    except ImportError as error:
        raise MissingExtra("sentence-transformers", "local") from error
    shows_progress = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return SentenceTransformer(path, device=device).float().eval()
    except Exception as error:  # three libraries with many error classes, which change from version to version
        raise EncoderError(f"the encoder in {path} cannot be loaded: {error}") from error
    finally:
        if shows_progress:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _languages_of(files: EncoderFiles) -> frozenset[str]:
    """Of the known model that has these very weights."""
    ours = set(files.weights.values())
    for known in CATALOGUE:
        if known.kind is ModelKind.ENCODER and any(f.sha256 in ours for f in known.files):
            return frozenset(known.languages)
    return frozenset()
