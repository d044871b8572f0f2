"""From an encoder's name to the encoder: which class runs it."""

from __future__ import annotations

from pathlib import Path

from cachestack.models.catalogue import USE_MULTILINGUAL_V3, find_known
from cachestack.semantic.base import Encoder


def open_encoder(ref: str, *, models: Path | None = None, batch_size: int = 32) -> Encoder:
    """`ref`: a known model's name, the folder of a sentence-transformers model, or a Hugging Face id.

    `models` is the models folder; `batch_size` is how many texts go into one pass. Nothing is loaded or looked for yet.
    """
    if find_known(ref) is USE_MULTILINGUAL_V3:
        from cachestack.semantic.use_encoder import UniversalSentenceEncoder

        return UniversalSentenceEncoder(models=models)
    from cachestack.semantic.embed import SentenceEncoder

    return SentenceEncoder(ref, models=models, batch_size=batch_size)


def lasting_ref(ref: str) -> str:
    """The same encoder, named so that another process finds it from another folder."""
    path = Path(ref).expanduser()
    return str(path.absolute()) if find_known(ref) is None and path.is_dir() else ref
