"""An entry as bytes: a fixed head, the fields as JSON, the vector as it is. Never pickle.

::

    magic (4) │ length of the JSON (4, little-endian) │ BLAKE2b-128 of all that follows (16) │ JSON │ vector

The checksum finds damage, not forgery: whoever can write the state folder can write entries.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import replace

from cachestack.entries import Entry

MAGIC = b"CSE1"
_HEAD = struct.Struct("<4sI16s")
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

ROW_BYTES = 1500
"""What an entry takes on disk beside its own bytes, about: keys (each also in an index), change record, page slack."""


class CorruptEntry(Exception):
    """The bytes are not an entry, or not one of this version."""


def encode_entry(entry: Entry) -> bytes:
    """Raises TypeError for field values that JSON cannot say. Lone surrogates are kept."""
    fields = entry.as_dict()
    vector: bytes | None = fields["vector"]
    fields["vector"] = None if vector is None else len(vector)
    text = _JSON(fields).encode("utf-8", "surrogatepass")
    body = text + (vector or b"")
    return _HEAD.pack(MAGIC, len(text), _checksum(body)) + body


def decode_entry(data: bytes) -> Entry:
    """Raises CorruptEntry."""
    try:
        magic, text_bytes, checksum = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if magic != MAGIC or checksum != _checksum(body):
            raise CorruptEntry("checksum does not match")
        fields = json.loads(body[:text_bytes].decode("utf-8", "surrogatepass"))
        if fields["vector"] is not None:
            fields["vector"] = body[text_bytes:]
        return Entry.from_dict(fields)
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise CorruptEntry(str(error)) from error


def charged_bytes(encoded: bytes) -> int:
    """What an entry counts against its tenant's byte budget: about what it takes on disk."""
    return len(encoded) + ROW_BYTES


def gone_at_s(entry: Entry) -> float:
    """From this moment the entry can serve nobody, not even as a stale answer."""
    return max(entry.expires_at_s, entry.stale_until_s)


def with_vector(entry: Entry, vector: bytes, encoder: str) -> Entry:
    return replace(entry, vector=vector, encoder=encoder)


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
