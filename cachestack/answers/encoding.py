"""The stack's encoder as `compare` asks it: some sentences at a time, each call with a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cachestack.semantic.base import Encoder
from cachestack.semantic.language import identify
from cachestack.semantic.shared_passes import SharedPasses

DEADLINE_S = 5.0
MAX_TEXTS = 96


class SentenceVectors:
    """An `Embed`. None where the encoder does not know the language or a sentence is beyond its window.

    Raises EncoderTimeout after `deadline_s` (the first call may take as long as loading the model) and what the
    encoder raises.
    """

    def __init__(self, encoder: Encoder, *, deadline_s: float = DEADLINE_S) -> None:
        self._encoder = encoder
        self._deadline_s = deadline_s
        self._passes: SharedPasses[tuple[str, ...], Any] = SharedPasses(self._encode, max_members=4)

    def __call__(self, texts: Sequence[str]) -> Any:
        if not texts or len(texts) > MAX_TEXTS or not all(text.strip() for text in texts):
            return None
        language = identify(" ".join(texts))
        if language is not None and self._encoder.languages and language not in self._encoder.languages:
            return None
        return self._passes.submit(tuple(texts), self._deadline_s)

    def close(self) -> None:
        self._passes.close()

    def _encode(self, members: Sequence[tuple[str, ...]]) -> list[Any]:
        return [
            self._encoder.encode(texts) if all(map(self._encoder.fits_window, texts)) else None for texts in members
        ]
