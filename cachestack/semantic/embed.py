"""Texts to unit vectors, with any sentence-transformers model. One of two files that run a model here.

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
from cachestack.semantic.encoder_files import EncoderFiles

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
    from several threads: tokenising is serialised (tokenizers keep state), the model runs in all of them.
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
        self._loaded: Any = None  # these two are set once, under `_loading`
        self._read: EncoderFiles | None = None

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
        return int(dimension) if dimension is not None else int(self._forward(["dimension"]).shape[1])

    def fits_window(self, text: str) -> bool:
        """Counted with the model's tokenizer; ASCII text with fewer characters than the window has tokens just fits.

        False, too, for text that cannot be tokenised, such as a lone surrogate.
        """
        window = self.window_tokens
        if window == NO_WINDOW:
            return True
        text = self._files.prompt + text
        if text.isascii() and len(text) + _SPARE_TOKENS <= window:
            return True
        try:
            return self._count_tokens(text) <= window
        except (TypeError, ValueError):
            return False

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """`[len(texts), dimension]`, float32, rows of length 1, in the order of the texts.

        Raises EncoderError for a text that is empty or longer than the window, and for values that are not finite.
        """
        import numpy as np

        for number, text in enumerate(texts):
            if not text.strip():
                raise EncoderError(f"text {number} is empty; there is nothing to embed")
            if not self.fits_window(text):
                raise EncoderError(
                    f"text {number} ({len(text)} characters) is longer than the encoder's window of "
                    f"{self.window_tokens} tokens, or cannot be tokenised; it is not cut off silently"
                )
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(texts), self._batch_size):
            rows = by_length[start : start + self._batch_size]
            vectors[rows] = self._forward([texts[i] for i in rows])
        norms = np.linalg.norm(vectors, axis=1)
        if not bool(np.all(np.abs(norms - 1.0) <= _NORM_TOLERANCE)):  # also false for what is not finite
            bad = int(np.argmin(np.abs(norms - 1.0) <= _NORM_TOLERANCE))
            raise EncoderError(f"the embedding of text {bad} is not a finite vector of length 1; the model is damaged")
        return vectors

    def _forward(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors of one batch, unchecked."""
        import torch

        model = self._model
        try:
            with self._tokenising:
                features = model.preprocess(texts, prompt=self._files.prompt or None)
            with torch.inference_mode():
                on_device = {k: v.to(model.device) if isinstance(v, torch.Tensor) else v for k, v in features.items()}
                embedded = model(on_device)["sentence_embedding"].float()
                unit = torch.nn.functional.normalize(embedded, p=2, dim=1)
            vectors: NDArray[np.float32] = unit.cpu().numpy()
        except (RuntimeError, TypeError, ValueError) as error:
            raise EncoderError(f"encoder {self.name} failed: {error}") from error
        return vectors

    def _count_tokens(self, text: str) -> int:
        """Special tokens included."""
        tokenizer = self._tokenizer
        if tokenizer is not None:
            return len(tokenizer.encode(text).ids)
        with self._tokenising:
            return len(self._model.tokenizer(text, truncation=False, verbose=False)["input_ids"])

    @cached_property
    def _tokenizer(self) -> Any:
        """The model's tokenizer by itself, without the cutting and padding that its file asks for."""
        path = self._files.tokenizer
        if path is None:
            return None
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtra("tokenizers", "local") from error
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

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
