"""What an index has taken in since its last snapshot, so that a restart need not read it from the store again.

::

    file: magic (4) │ record │ record │ …        record: length (4) │ CRC-32 (4) │ header (JSON) \\n │ vectors (float32)

All numbers are little-endian. The first record says whose journal it is; each further one is a step: the ids that
changed between two change numbers of the store, and what those that live were then. Steps of several processes lie in
files of their own and fit together by these numbers. A file ends at its first record that is not whole: a process that
was killed while it wrote leaves such a tail, and a new process begins a new file. Nothing depends on a journal.
"""

from __future__ import annotations

import json
import secrets
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cachestack.semantic.snapshots import Owner
from cachestack.semantic.vectors import Floats, are_unit

MAGIC = b"CSJ1"
_HEAD = struct.Struct("<II")
_MAX_RECORD_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Step:
    """From change number `since` to `latest`, whose entry is `last_id`: `removed` went, and `vectors[i]` belongs to
    `ids[i]` and `contracts[i]` now."""

    since: int
    latest: int
    last_id: str
    removed: Sequence[str]
    ids: Sequence[str]
    contracts: Sequence[str]
    vectors: Floats


class Journal:
    """A file that this process alone writes. Raises OSError."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / f"{owner.stem}.{secrets.token_hex(8)}.journal"
        self._file: BinaryIO = self.path.open("xb")
        self.num_bytes = self._file.write(MAGIC)
        self._write(_json(asdict(owner)) + b"\n")

    def append(self, step: Step) -> None:
        """In the system's hands when this returns: a kill loses nothing, a power cut the last steps."""
        contracts = list(dict.fromkeys(step.contracts))
        numbers = {contract: number for number, contract in enumerate(contracts)}
        head = {
            "since": step.since,
            "latest": step.latest,
            "last_id": step.last_id,
            "removed": list(step.removed),
            "ids": list(step.ids),
            "contracts": contracts,
            "codes": [numbers[contract] for contract in step.contracts],
        }
        self._write(_json(head) + b"\n" + np.ascontiguousarray(step.vectors, dtype="<f4").tobytes())

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()

    def _write(self, payload: bytes) -> None:
        self._file.write(_HEAD.pack(len(payload), zlib.crc32(payload)) + payload)
        self._file.flush()
        self.num_bytes += _HEAD.size + len(payload)


@dataclass(frozen=True, slots=True)
class Found:
    """The steps of one file; `is_torn` where there is more in it than whole records."""

    path: Path
    steps: tuple[Step, ...]
    is_torn: bool

    @property
    def num_bytes(self) -> int:
        """Of vectors alone."""
        return sum(step.vectors.nbytes for step in self.steps)


def read_journals(folder: Path, owner: Owner) -> list[Found]:
    """Those of this owner. Raises OSError; a file that goes while it is looked for is left out."""
    found = []
    for path in sorted(folder.glob(f"{owner.stem}.*.journal")):
        with suppress(FileNotFoundError):
            found.append(_read(path, owner))
    return found


def steps_from(found: Sequence[Found], since: int) -> Iterator[Step]:
    """Steps in an order in which they lead on from `since`; those that lead nowhere are left out.

    A step that began earlier and reaches further will do: it has all that changed in between, as it was later.
    """
    steps = sorted((step for journal in found for step in journal.steps), key=lambda step: step.since, reverse=True)
    best: Step | None = None
    while True:
        while steps and steps[-1].since <= since:
            step = steps.pop()
            best = step if best is None or step.latest > best.latest else best
        if best is None or best.latest <= since:
            return
        yield best
        since = best.latest


def remove_journals(folder: Path, owner: Owner, upto: int | None, but: Path | None = None) -> None:
    """Drop those that say nothing beyond change number `upto`; None drops all. `but` is one that is being written."""
    with suppress(OSError):
        for journal in read_journals(folder, owner):
            begun = journal.steps or journal.is_torn  # one without steps is just being made
            is_old = upto is None or (begun and all(step.latest <= upto for step in journal.steps))
            if is_old and journal.path != but:
                journal.path.unlink(missing_ok=True)


def _read(path: Path, owner: Owner) -> Found:
    steps: list[Step] = []
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return Found(path, (), is_torn=True)
        records = _records(file)
        try:
            if json.loads(next(records)) != asdict(owner):
                return Found(path, (), is_torn=True)
            steps.extend(_step(record, owner.dimension) for record in records)
        except (StopIteration, _Torn, ValueError, KeyError, TypeError, IndexError):
            return Found(path, tuple(steps), is_torn=True)
    return Found(path, tuple(steps), is_torn=False)


class _Torn(Exception):
    """What follows is not a whole record."""


def _records(file: BinaryIO) -> Iterator[bytes]:
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size:
            raise _Torn
        length, checksum = _HEAD.unpack(head)
        payload = file.read(min(length, _MAX_RECORD_BYTES))
        if len(payload) < length or zlib.crc32(payload) != checksum:
            raise _Torn
        yield payload


def _step(record: bytes, dimension: int) -> Step:
    text, _, data = record.partition(b"\n")
    head: dict[str, Any] = json.loads(text)
    ids, codes, contracts = head["ids"], head["codes"], head["contracts"]
    vectors = np.frombuffer(data, dtype="<f4").reshape(len(ids), dimension)
    if len(codes) != len(ids) or not bool(are_unit(vectors).all()):
        raise ValueError("it makes no sense")
    of_each = [contracts[code] for code in codes]
    since, latest = int(head["since"]), int(head["latest"])
    return Step(since, latest, str(head["last_id"]), head["removed"], ids, of_each, vectors.astype(np.float32))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
