"""From an encoder's arrays to the bytes that entries keep: the one way in which questions become embeddings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

from cachestack.effects import Embedding
from cachestack.errors import EncoderError
from cachestack.semantic.base import Encoded, Encoder, StatesPacker, TokenEncoder
from cachestack.semantic.vectors import to_bytes, to_vector

log = logging.getLogger("cachestack")


def embed_texts(encoder: Encoder, texts: Sequence[str], packer: StatesPacker | None = None) -> list[Embedding]:
    """Embeddings in the order of the texts, in one pass, with packed token states where there is a packer for them.

    Raises EncoderError for a vector that is not finite, not of length 1, or not of the encoder's dimension. A packer
    that fails costs the states, not the vector.
    """
    if not texts:
        return []
    encoded: list[Encoded]
    if packer is not None and hasattr(encoder, "encode_with_tokens"):
        encoded = cast(TokenEncoder, encoder).encode_with_tokens(texts)
    else:
        encoded = [Encoded(vector) for vector in encoder.encode(texts)]
    fingerprint, dimension = encoder.fingerprint, encoder.dimension
    found = []
    for text, one in zip(texts, encoded, strict=True):
        vector = to_bytes(one.vector)
        if to_vector(vector, dimension) is None:
            raise EncoderError(f"not a finite vector of length 1 with {dimension} dimensions")
        found.append(Embedding(vector, fingerprint, _packed(packer, text, one)))
    return found


def _packed(packer: StatesPacker | None, text: str, encoded: Encoded) -> bytes:
    if packer is None or encoded.tokens is None:
        return b""
    try:
        return packer.pack(text, encoded.tokens)
    except Exception:
        log.debug("the token states of a question could not be packed", exc_info=True)
        return b""
