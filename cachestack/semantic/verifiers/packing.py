"""Which encoder's token states are kept, and which languages that makes servable by meaning."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from cachestack.errors import ModelError
from cachestack.semantic.verifiers import artefact

if TYPE_CHECKING:
    from cachestack.semantic.base import Encoder, TokenStates
    from cachestack.semantic.states import Basis


class StatesOf:
    """A StatesPacker for one encoder: the local verifier's, where that was trained on the encoder's very weights."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def pack(self, text: str, tokens: TokenStates) -> bytes:
        """Empty where there is no basis for this encoder."""
        return b"" if self._basis is None else self._basis.pack(text, tokens)

    @cached_property
    def _basis(self) -> Basis | None:
        weights = getattr(self._encoder, "weights_sha256", None)
        try:
            made = artefact.shipped()
        except (OSError, ModelError):
            return None
        return made.basis if weights == made.encoder_sha256 else None


def languages_served(encoder: Encoder | None) -> frozenset[str]:
    """ISO 639-1 codes: those that the encoder was trained for, and those that the local verifier was measured in with
    this encoder. Empty means unknown."""
    if encoder is None or not encoder.languages:
        return frozenset()
    return encoder.languages | (frozenset(artefact.LANGUAGES) if encoder.name == artefact.ENCODER else frozenset())
