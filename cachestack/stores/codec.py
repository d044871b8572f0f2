"""An entry as bytes: a fixed head, the fields as JSON, the vector and the states as they are. Never pickle.

::

    magic (4) │ length of the JSON (4, little-endian) │ BLAKE2b-128 of all that follows (16) │ JSON │ vector │ states

In the JSON stand the lengths of the last two; an entry without states names none. The checksum finds damage, not
forgery: whoever can write the state folder can write entries.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import replace
from functools import lru_cache

from cachestack.entries import Entry

MAGIC = b"CSE1"
_HEAD = struct.Struct("<4sI16s")
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

ROW_BYTES = 1500
"""What an entry takes on disk beside its own bytes, about: keys (each also in an index), change record, page slack."""


_MAX_REMEMBERED_BYTES = 16 * 1024


class CorruptEntry(Exception):
    """The bytes are not an entry, or not one of this version."""


def encode_entry(entry: Entry) -> bytes:
    """Raises TypeError for field values that JSON cannot say. Lone surrogates are kept."""
    fields = entry.as_dict()
    vector: bytes | None = fields["vector"]
    fields["vector"] = None if vector is None else len(vector)
    states: bytes = fields.pop("states")
    if states:
        fields["states"] = len(states)
    text = _JSON(fields).encode("utf-8", "surrogatepass")
    body = text + (vector or b"") + states
    return _HEAD.pack(MAGIC, len(text), _checksum(body)) + body


def decode_entry(data: bytes) -> Entry:
    """Raises CorruptEntry. Small entries that were read before are not decoded again: at most 32 MB are remembered."""
    return _remembered(data) if len(data) <= _MAX_REMEMBERED_BYTES else _decoded(data)


@lru_cache(maxsize=1024)
def _remembered(data: bytes) -> Entry:
    return _decoded(data)


def _decoded(data: bytes) -> Entry:
    try:
        magic, text_bytes, checksum = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if magic != MAGIC or checksum != _checksum(body):
            raise CorruptEntry("checksum does not match")
        fields = json.loads(body[:text_bytes].decode("utf-8", "surrogatepass"))
        states_from = len(body) - fields.get("states", 0)
        fields["states"] = body[states_from:]
        if fields["vector"] is not None:
            fields["vector"] = body[text_bytes:states_from]
        return Entry.from_dict(fields)
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(str(error)) from error


def charged_bytes(encoded: bytes) -> int:
    """What an entry counts against its tenant's byte budget: about what it takes on disk."""
    return len(encoded) + ROW_BYTES


def gone_at_s(entry: Entry) -> float:
    """From this moment the entry can serve nobody, not even as a stale answer."""
    return max(entry.expires_at_s, entry.stale_until_s)


def with_vector(entry: Entry, vector: bytes, encoder: str, states: bytes) -> Entry:
    return replace(entry, vector=vector, encoder=encoder, states=states)


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
