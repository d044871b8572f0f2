"""A group of vectors on disk, so that a restart need not read every entry again.

::

    magic (4) │ length of the header (4) │ header (JSON) │ names (JSON) │ codes (int32) │ vectors (float32)

All numbers are little-endian. The header says whose group it is (partition, encoder, dimension), up to which change of
the store it goes, and the digest of all that follows it. Nothing depends on a snapshot: one that does not fit in any
point is not read. Written beside and renamed, so that it is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cachestack.keys import digest
from cachestack.semantic.vectors import Frozen, are_unit

MAGIC = b"CSV1"
_HEAD = struct.Struct("<4sI")


class UnusableSnapshot(Exception):
    """There is a file, but not one that can be used here; the text says why."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose group it is: digests of partition and encoder."""

    partition: str
    encoder: str
    dimension: int

    @property
    def file_name(self) -> str:
        return digest(b"snapshot", self.partition.encode(), self.encoder.encode())[:40] + ".vectors"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`latest` is the number of the last change that is in it."""

    latest: int
    group: Frozen


def write_snapshot(folder: Path, owner: Owner, snapshot: Snapshot) -> None:
    """Raises OSError."""
    group = snapshot.group
    names = _json([group.ids, group.contracts])
    parts = [
        names,
        np.ascontiguousarray(group.codes, dtype="<i4").tobytes(),
        np.ascontiguousarray(group.vectors, dtype="<f4").tobytes(),
    ]
    head = {
        **asdict(owner),
        "latest": snapshot.latest,
        "num_vectors": len(group.ids),
        "names_bytes": len(names),
        "digest": _digest(parts),
    }
    header = _json(head)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / owner.file_name
    aside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with aside.open("wb") as file:
            file.writelines([_HEAD.pack(MAGIC, len(header)), header, *parts])
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def read_snapshot(folder: Path, owner: Owner) -> Snapshot | None:
    """None where there is no file. Raises UnusableSnapshot, or OSError."""
    try:
        data = (folder / owner.file_name).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return _parse(data, owner)
    except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise UnusableSnapshot(f"it cannot be read: {error}") from error


def _parse(data: bytes, owner: Owner) -> Snapshot:
    magic, header_bytes = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise UnusableSnapshot("it has another format")
    start = _HEAD.size + header_bytes
    header = json.loads(data[_HEAD.size : start])
    for field, value in asdict(owner).items():
        if header[field] != value:
            raise UnusableSnapshot(f"it has another {field}")
    num_vectors, names_end = int(header["num_vectors"]), start + int(header["names_bytes"])
    codes_end = names_end + 4 * num_vectors
    body = memoryview(data)
    if header["digest"] != _digest([body[start:names_end], body[names_end:codes_end], body[codes_end:]]):
        raise UnusableSnapshot("its digest does not match")
    ids, contracts = json.loads(data[start:names_end])
    codes = np.frombuffer(body[names_end:codes_end], dtype="<i4")
    vectors = np.frombuffer(body[codes_end:], dtype="<f4").reshape(num_vectors, owner.dimension)
    if len(set(ids)) != num_vectors or not bool(are_unit(vectors).all()):
        raise UnusableSnapshot("its content makes no sense")
    return Snapshot(int(header["latest"]), Frozen(ids, contracts, codes.astype(np.int32), vectors.astype(np.float32)))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _digest(parts: list[bytes] | list[memoryview]) -> str:
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        h.update(part)
    return h.hexdigest()
