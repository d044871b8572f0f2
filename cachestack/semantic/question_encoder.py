"""An encoder as requests ask it: one question at a time, from many threads, each with the time it may take."""

from __future__ import annotations

from collections.abc import Sequence

from cachestack.decisions import Reason
from cachestack.effects import Embedding
from cachestack.errors import EncoderTimeout
from cachestack.semantic.base import Encoder, StatesPacker
from cachestack.semantic.embedding import embed_texts
from cachestack.semantic.shared_passes import SharedPasses


class QuestionEncoder:
    """Questions that come together are encoded in one pass; see `SharedPasses`."""

    def __init__(self, encoder: Encoder, packer: StatesPacker | None = None) -> None:
        self.encoder = encoder
        self._packer = packer
        self._passes: SharedPasses[str, Embedding | Reason] = SharedPasses(self._embed)

    def embed(self, text: str, wait_s: float | None = None) -> Embedding | Reason:
        """The embedding, BEYOND_WINDOW, or ENCODER_TIMEOUT. Raises what the encoder raises."""
        try:
            return self._passes.submit(text, wait_s)
        except EncoderTimeout:
            return Reason.ENCODER_TIMEOUT

    def close(self) -> None:
        self._passes.close()

    def _embed(self, texts: Sequence[str]) -> list[Embedding | Reason]:
        fits = [self.encoder.fits_window(text) for text in texts]
        fitting = [text for text, its in zip(texts, fits, strict=True) if its]
        made = iter(embed_texts(self.encoder, fitting, self._packer))
        return [next(made) if its else Reason.BEYOND_WINDOW for its in fits]
