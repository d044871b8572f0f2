"""The keys of a tenant's rows.

::

    E partition id       → the entry, encoded                      partition, id, exact: SHA-256, 32 bytes each
    X partition exact    → the key of the E row that answers it
    J partition number   → a change: kind and entry id             number: 8 bytes, big-endian
    N partition          → the number of the latest change
    I time random        → an invalidation                         microseconds and 8 random bytes: 8 bytes each
    T                    → the tenant's name and the number that counting starts from
"""

from __future__ import annotations

import hashlib

from cachestack.keys import Partition

ENTRY, EXACT, CHANGE, LATEST, FENCE, TENANT = b"E", b"X", b"J", b"N", b"I", b"T"
DIGEST_BYTES = 32
ID_OFFSET = 1 + DIGEST_BYTES
MAX_NUMBER = 2**62


def wall(partition: Partition) -> bytes:
    """The part of every key that keeps partitions apart."""
    return bytes.fromhex(partition.digest)


def wall_of(key: bytes) -> bytes:
    return key[1 : 1 + DIGEST_BYTES]


def text_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def entry_key(partition: Partition, entry_id: str) -> bytes:
    return ENTRY + wall(partition) + text_digest(entry_id)


def exact_key(partition: Partition, exact: str) -> bytes:
    return EXACT + wall(partition) + text_digest(exact)


def change_key(where: bytes, number: int) -> bytes:
    return CHANGE + where + number.to_bytes(8, "big")


def fence_key(at_s: float, unique: bytes = b"") -> bytes:
    """In order of time; without `unique`, the place before all fences of that time."""
    return FENCE + min(max(0, int(at_s * 1e6)), MAX_NUMBER).to_bytes(8, "big") + unique


def pack_number(number: int) -> bytes:
    return number.to_bytes(8, "big")


def unpack_number(data: bytes) -> int | None:
    """None for what cannot be a change number."""
    number = int.from_bytes(data, "big")
    return number if len(data) == 8 and number < MAX_NUMBER else None
