"""A group of vectors on disk, so that a restart need not read every entry again, nor build its graphs.

::

    magic (4) │ length of the header (4) │ header (JSON) │ names (JSON) │ codes (int32) │ vectors (float32)
        │ for each graph: removed rows (int32) │ the graph (FAISS)

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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cachestack.keys import digest
from cachestack.semantic.vectors import are_unit
from cachestack.semantic.vectors_graph import FrozenGraph
from cachestack.semantic.vectors_group import Frozen

MAGIC = b"CSV2"
SUFFIX = ".vectors"
INDEX_FOLDER = "indexes"
"""Where in the state folder they are."""
_HEAD = struct.Struct("<4sI")
_MAX_HEADER_BYTES = 2**20
Part = bytes | memoryview


class UnusableSnapshot(Exception):
    """There is a file, but not one that can be used here; the text says why."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose group it is: digests of partition and encoder."""

    partition: str
    encoder: str
    dimension: int

    @property
    def stem(self) -> str:
        return digest(b"snapshot", self.partition.encode(), self.encoder.encode())[:40]

    @property
    def file_name(self) -> str:
        return self.stem + SUFFIX


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`latest` is the number of the last change that is in it, `last_id` the entry which that change was of ("" where
    it is not known): a store that has lost its last writes counts on from an earlier number."""

    latest: int
    group: Frozen
    last_id: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """What the header of a file says: vectors outside graphs and in them, removed ones that still take room there, and
    how often graphs were built."""

    num_flat: int
    num_in_graphs: int
    num_dead: int
    num_builds: int
    num_bytes: int

    @property
    def num_vectors(self) -> int:
        return self.num_flat + self.num_in_graphs


def write_snapshot(folder: Path, owner: Owner, snapshot: Snapshot) -> int:
    """How many bytes it takes. Raises OSError."""
    group = snapshot.group
    graphs = list(group.graphs.items())
    indexes = [graph.read() for _, graph in graphs]
    names = _json([group.ids, group.contracts, [graph.ids for _, graph in graphs]])
    parts: list[Part] = [names, _bytes(group.codes, "<i4"), _bytes(group.vectors, "<f4")]
    for (_, graph), index in zip(graphs, indexes, strict=True):
        parts += [_bytes(graph.dead, "<i4"), index.data]
    head = {
        **asdict(owner),
        "latest": snapshot.latest,
        "last_id": snapshot.last_id,
        "num_vectors": len(group.ids),
        "names_bytes": len(names),
        "num_builds": group.num_builds,
        "graphs": [
            {"contract": contract, "num_rows": len(g.ids), "num_dead": len(g.dead), "index_bytes": len(index)}
            for (contract, g), index in zip(graphs, indexes, strict=True)
        ],
        "digest": _digest(parts),
    }
    header = _json(head)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / owner.file_name
    aside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with aside.open("wb") as file:
            file.writelines([_HEAD.pack(MAGIC, len(header)), header, *parts])
            num_bytes = file.tell()
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return num_bytes


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


def snapshot_files(folder: Path) -> list[SnapshotFile]:
    """What is in a folder, by the headers alone; files that cannot be read are left out."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with suppress(OSError, struct.error, ValueError, KeyError, TypeError), path.open("rb") as file:
            head = _header(file)
            graphs = head["graphs"]
            num_dead = sum(int(graph["num_dead"]) for graph in graphs)
            num_rows = sum(int(graph["num_rows"]) for graph in graphs)
            num_flat, num_builds, num_bytes = int(head["num_vectors"]), int(head["num_builds"]), path.stat().st_size
            found.append(SnapshotFile(num_flat, num_rows - num_dead, num_dead, num_builds, num_bytes))
    return found


def owner_of(path: Path) -> Owner:
    """Whose group a file says it has. Raises UnusableSnapshot, or OSError."""
    try:
        with path.open("rb") as file:
            head = _header(file)
        return Owner(str(head["partition"]), str(head["encoder"]), int(head["dimension"]))
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise UnusableSnapshot(f"it cannot be read: {error}") from error


def _header(file: BinaryIO) -> dict[str, Any]:
    magic, header_bytes = _HEAD.unpack(file.read(_HEAD.size))
    if magic != MAGIC or header_bytes > _MAX_HEADER_BYTES:
        raise ValueError("it has another format")
    head: dict[str, Any] = json.loads(file.read(header_bytes))
    return head


def _parse(data: bytes, owner: Owner) -> Snapshot:
    magic, header_bytes = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise UnusableSnapshot("it has another format")
    start = _HEAD.size + header_bytes
    header = json.loads(data[_HEAD.size : start])
    for field, value in asdict(owner).items():
        if header[field] != value:
            raise UnusableSnapshot(f"it has another {field}")
    num_vectors = int(header["num_vectors"])
    sizes = [int(header["names_bytes"]), 4 * num_vectors, 4 * num_vectors * owner.dimension]
    for graph in header["graphs"]:
        sizes += [4 * int(graph["num_dead"]), int(graph["index_bytes"])]
    names, codes_part, vectors_part, *graph_parts = _cut(memoryview(data)[start:], sizes)
    if header["digest"] != _digest([names, codes_part, vectors_part, *graph_parts]):
        raise UnusableSnapshot("its digest does not match")
    ids, contracts, graph_ids = json.loads(bytes(names))
    codes = np.frombuffer(codes_part, dtype="<i4").astype(np.int32)
    vectors = np.frombuffer(vectors_part, dtype="<f4").reshape(num_vectors, owner.dimension).astype(np.float32)
    graphs = {
        graph["contract"]: FrozenGraph(
            ids_of_graph,
            np.frombuffer(graph_parts[2 * number], dtype="<i4").astype(np.int32),
            partial(_as_uint8, graph_parts[2 * number + 1]),
        )
        for number, (graph, ids_of_graph) in enumerate(zip(header["graphs"], graph_ids, strict=True))
    }
    if len(set(ids)) != num_vectors or not bool(are_unit(vectors).all()):
        raise UnusableSnapshot("its content makes no sense")
    frozen = Frozen(ids, contracts, codes, vectors, graphs, int(header["num_builds"]))
    return Snapshot(int(header["latest"]), frozen, str(header["last_id"]))


def _cut(body: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    if min(sizes) < 0 or sum(sizes) != len(body):
        raise ValueError("its length is not what its header says")
    ends = np.cumsum(sizes).tolist()
    return [body[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _as_uint8(part: memoryview) -> NDArray[np.uint8]:
    return np.frombuffer(part, dtype=np.uint8)


def _bytes(values: np.ndarray[Any, Any], kind: str) -> bytes:
    return np.ascontiguousarray(values, dtype=kind).tobytes()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _digest(parts: Sequence[Part]) -> str:
    h = hashlib.blake2b(digest_size=16)
    for part in parts:
        h.update(part)
    return h.hexdigest()
