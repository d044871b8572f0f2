"""Entries that another encoder made: give them vectors of the one in use, from their questions' texts.

An encoder is what its fingerprint says, whatever its name. Entries of another one are still served for the exact same
question, never by meaning; old and new vectors are never compared. This brings them back, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cachestack.entries import Entry
from cachestack.errors import EncoderError
from cachestack.keys import Partition
from cachestack.semantic.base import Encoder, StatesPacker
from cachestack.semantic.embedding import embed_texts


class VectorStore(Protocol):
    """A store that can change an entry's vector and states and nothing else of it."""

    def set_vector(
        self, partition: Partition, entry_id: str, vector: bytes, encoder: str, states: bytes = b""
    ) -> bool: ...


@dataclass(frozen=True, slots=True)
class Reembedding:
    """`num_left`: entries that stay as they were: gone, too long for the window, in a language the encoder lacks."""

    num_done: int
    num_left: int


def is_foreign(entry: Entry, encoder: str) -> bool:
    """Whether it has a vector, but of another encoder. Entries without one are meant to be served exactly only."""
    return entry.vector is not None and entry.encoder != encoder


def reembed(
    store: VectorStore, encoder: Encoder, entries: Sequence[Entry], packer: StatesPacker | None = None
) -> Reembedding:
    """As `encode_anew`; an encoder that fails leaves all as they are."""
    try:
        return encode_anew(store, encoder, entries, packer)
    except EncoderError:
        return Reembedding(0, len(entries))


def encode_anew(
    store: VectorStore, encoder: Encoder, entries: Sequence[Entry], packer: StatesPacker | None = None
) -> Reembedding:
    """Encode the questions of `entries` in one call and store the vectors. An entry that has gone stays gone.

    Raises EncoderError: then nothing has changed.
    """
    fitting = [e for e in entries if _can_encode(encoder, e)]
    embeddings = embed_texts(encoder, [e.question for e in fitting], packer)
    num_done = sum(
        store.set_vector(entry.partition, entry.entry_id, made.vector, made.encoder, made.states)
        for entry, made in zip(fitting, embeddings, strict=True)
    )
    return Reembedding(num_done, len(entries) - num_done)


def _can_encode(encoder: Encoder, entry: Entry) -> bool:
    known = not encoder.languages or entry.language is None or entry.language in encoder.languages
    return known and bool(entry.question.strip()) and encoder.fits_window(entry.question)
