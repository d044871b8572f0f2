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
from cachestack.semantic.base import Encoder


class VectorStore(Protocol):
    """A store that can change an entry's vector and nothing else of it."""

    def set_vector(self, partition: Partition, entry_id: str, vector: bytes, encoder: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Reembedding:
    """`num_left`: entries that stay as they were: gone, too long for the window, in a language the encoder lacks."""

    num_done: int
    num_left: int


def is_foreign(entry: Entry, encoder: str) -> bool:
    """Whether it has a vector, but of another encoder. Entries without one are meant to be served exactly only."""
    return entry.vector is not None and entry.encoder != encoder


def reembed(store: VectorStore, encoder: Encoder, entries: Sequence[Entry]) -> Reembedding:
    """Encode the questions of `entries` in one call and store the vectors. An entry that has gone stays gone."""
    fitting = [e for e in entries if _can_encode(encoder, e)]
    try:
        vectors = encoder.encode([e.question for e in fitting])
    except EncoderError:
        return Reembedding(0, len(entries))
    fingerprint = encoder.fingerprint
    num_done = sum(
        store.set_vector(entry.partition, entry.entry_id, vector.astype("<f4").tobytes(), fingerprint)
        for entry, vector in zip(fitting, vectors, strict=True)
    )
    return Reembedding(num_done, len(entries) - num_done)


def _can_encode(encoder: Encoder, entry: Entry) -> bool:
    known = not encoder.languages or entry.language is None or entry.language in encoder.languages
    return known and bool(entry.question.strip()) and encoder.fits_window(entry.question)
