"""Entries as a file, to move them from one state folder to another.

::

    {"format": "cachestack-entries", "v": 1, "entry_v": 1, "key_v": "2"}
    {...every field of an entry; `vector` and `states` in base64...}
    {"end": true, "num_entries": 1, "encoders": {FINGERPRINT: {"shape": [8, 384], "vectors": BASE64}}}

One JSON object a line. The last line says that nothing was cut off, and what each encoder gave for a few fixed texts:
a fingerprint alone does not say that the encoder of another machine gives the same vectors (see `known_encoders.py`).
The file has questions and answers in it: only its owner may read it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from cachestack.entries import ENTRY_VERSION, Entry, brought_forward, can_read
from cachestack.errors import EntryTooLarge, InputFileError, UsageError
from cachestack.keys import KEY_VERSION, moved_exact_key
from cachestack.semantic.known_encoders import KnownEncoders
from cachestack.stores.base import EntryStore
from cachestack.stores.codec import gone_at_s

FORMAT = "cachestack-entries"
VERSION = 1
_HEADER = {"format": FORMAT, "v": VERSION, "entry_v": ENTRY_VERSION, "key_v": KEY_VERSION}
_ENTRIES = TypeAdapter(Entry)
_REPORT_EVERY = 256
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of the entries of a file. `exact_only` of the imported ones lost a vector that nothing here may be
    compared with. `skipped`: how many, by why (`newer`, `invalidated`, `expired`, `too_large`)."""

    num_entries: int
    imported: int
    exact_only: int
    skipped: Mapping[str, int] = field(default_factory=dict)


def export_entries(
    entries: Iterable[Entry],
    path: Path,
    known: KnownEncoders,
    *,
    overwrite: bool = False,
    advance: Advance = lambda done: None,
) -> int:
    """Write a file of entries, whole or not at all; returns how many. Raises UsageError where there is a file already
    and `overwrite` is not set."""
    if path.exists() and not overwrite:
        raise UsageError(f"{path} is there already; take another name, or --force to replace it")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is no folder")
    num_entries, encoders = 0, dict[str, Any]()
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(json.dumps(_HEADER) + "\n")
            for entry in entries:
                file.write(json.dumps(_shown(entry)) + "\n")
                num_entries += 1
                if entry.encoder is not None and entry.encoder not in encoders:
                    encoders[entry.encoder] = _canaries(known, entry.encoder)
                if num_entries % _REPORT_EVERY == 0:
                    advance(num_entries)
            found = {name: canaries for name, canaries in encoders.items() if canaries is not None}
            file.write(json.dumps({"end": True, "num_entries": num_entries, "encoders": found}) + "\n")
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(file.name)
            raise
    advance(num_entries)
    return num_entries


def import_entries(
    path: Path,
    store: EntryStore,
    known: KnownEncoders,
    *,
    max_bytes_of: Callable[[str], int | None],
    now_s: float,
    tenant: str | None = None,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Imported:
    """Put a file's entries into the store, all of them for `tenant` where it is given.

    The whole file is checked first: of one that is damaged nothing is imported (InputFileError). An entry does not
    replace one of the same question that is as new or newer. `max_bytes_of` gives a tenant's byte budget, and raises
    what a tenant without a policy deserves.
    """
    num_entries, tenants, encoders = _check(path)
    for name in tenants if tenant is None else {tenant}:
        max_bytes_of(name)
    usable = {name for name, vectors in encoders.items() if _is_usable(known, name, vectors)}
    skipped: Counter[str] = Counter()
    imported = exact_only = 0
    for done, (_, entry) in enumerate(_entries(path), start=1):
        moved = _moved(entry, tenant)
        if moved.encoder is not None and moved.encoder not in usable:
            moved = replace(moved, vector=None, encoder=None, states=b"")
        why = "expired" if gone_at_s(moved) <= now_s else _put(store, moved, max_bytes_of(moved.partition.tenant))
        if why is None:
            imported += 1
            exact_only += entry.encoder is not None and moved.encoder is None
        else:
            skipped[why] += 1
        if done % _REPORT_EVERY == 0 or done == num_entries:
            advance(done, num_entries)
    return Imported(num_entries, imported, exact_only, dict(sorted(skipped.items())))


def _put(store: EntryStore, entry: Entry, max_bytes: int | None) -> str | None:
    """Why it was not kept, or None."""
    try:
        if store.put(entry, max_bytes, keep_newer=True):
            return None
    except EntryTooLarge:
        return "too_large"
    there = (store.find_exact(entry.partition, entry.exact), store.get(entry.partition, entry.entry_id))
    return "newer" if any(e is not None and e.created_at_s >= entry.created_at_s for e in there) else "invalidated"


def _moved(entry: Entry, tenant: str | None) -> Entry:
    if tenant is None or tenant == entry.partition.tenant:
        return entry
    partition = replace(entry.partition, tenant=tenant)
    exact = moved_exact_key(entry.exact, entry.contract, entry.question, entry.partition, partition)
    assert exact is not None, "a key that was checked"
    return replace(entry, partition=partition, exact=exact)


def _check(path: Path) -> tuple[int, set[str], dict[str, np.ndarray[Any, Any]]]:
    """How many entries, whose, and the encoders' vectors. Raises InputFileError for whatever is wrong."""
    num_entries, tenants, last = 0, set[str](), dict[str, Any]()
    for number, line in _lines(path):
        if last:
            raise InputFileError(f"{path} line {number}: something follows the last line of an export")
        if line.get("end") is True:
            last = line
            continue
        entry = _entry(line, f"{path} line {number}")
        num_entries += 1
        tenants.add(entry.partition.tenant)
    if last.get("num_entries") != num_entries:
        raise InputFileError(f"{path} is cut off: it has {num_entries} entries, and no last line that says so")
    try:
        encoders = {str(name): _vectors(said) for name, said in last.get("encoders", {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputFileError(f"{path}: what its last line says of encoders can't be read: {error}") from None
    return num_entries, tenants, encoders


def _entries(path: Path) -> Iterator[tuple[int, Entry]]:
    for number, line in _lines(path):
        if line.get("end") is not True:
            yield number, _entry(line, f"{path} line {number}")


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines after the first, which is checked."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, start=1):
                try:
                    line = json.loads(text)
                except (ValueError, RecursionError):
                    raise InputFileError(f"{path} line {number} is not JSON") from None
                if not isinstance(line, dict):
                    raise InputFileError(f"{path} line {number} is no JSON object")
                if number > 1:
                    yield number, line
                elif line.get("format") != FORMAT:
                    raise InputFileError(f"{path} is not a file that `cachestack entries export` wrote")
                elif line | {"entry_v": ENTRY_VERSION} != _HEADER or not can_read(line.get("entry_v")):
                    theirs = ", ".join(f"{key} {line.get(key)}" for key in _HEADER if line.get(key) != _HEADER[key])
                    raise InputFileError(f"{path} is of another version ({theirs}): export it with this version")
    except FileNotFoundError:
        raise InputFileError(f"{path} does not exist") from None
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InputFileError(f"{path} is not text in UTF-8") from None


def _shown(entry: Entry) -> dict[str, Any]:
    fields = entry.as_dict()
    vector: bytes | None = fields["vector"]
    fields["vector"] = None if vector is None else base64.b64encode(vector).decode()
    fields["states"] = base64.b64encode(fields["states"]).decode()
    return fields


def _entry(line: Mapping[str, Any], place: str) -> Entry:
    try:
        fields = brought_forward(line)
        if unknown := set(fields) - set(Entry.__slots__):
            raise ValueError(f"unknown fields {sorted(unknown)}")
        vector = fields["vector"]
        fields["vector"] = None if vector is None else base64.b64decode(vector, validate=True)
        fields["states"] = base64.b64decode(fields["states"], validate=True)
        entry = _ENTRIES.validate_python(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputFileError(f"{place}: {where}: {first['msg']}") from None
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise InputFileError(f"{place} is no entry: {error}") from None
    if not all(map(math.isfinite, (*_times(entry), entry.engine_s))):
        raise InputFileError(f"{place}: its times must be finite")
    if (entry.vector is None) != (entry.encoder is None) or len(entry.vector or b"") % 4:
        raise InputFileError(f"{place}: a vector needs an encoder, and whole numbers of four bytes")
    if not has_own_key(entry):
        raise InputFileError(f"{place}: its key is not that of its question")
    return entry


def has_own_key(entry: Entry) -> bool:
    """Whether its exact key is that of its question, as this version makes keys: only then can anybody find it."""
    return moved_exact_key(entry.exact, entry.contract, entry.question, entry.partition, entry.partition) is not None


def _times(entry: Entry) -> tuple[float, ...]:
    return entry.created_at_s, entry.expires_at_s, entry.stale_until_s, entry.ends_at_s


def _canaries(known: KnownEncoders, fingerprint: str) -> dict[str, Any] | None:
    vectors = known.canaries(fingerprint)
    if vectors is None:
        return None
    return {"shape": list(vectors.shape), "vectors": base64.b64encode(vectors.astype("<f4").tobytes()).decode()}


def _vectors(said: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    data = base64.b64decode(said["vectors"], validate=True)
    vectors = np.frombuffer(data, dtype="<f4").reshape([int(n) for n in said["shape"]])
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise ValueError("vectors must be finite, a row each")
    return vectors


def _is_usable(known: KnownEncoders, fingerprint: str, vectors: np.ndarray[Any, Any]) -> bool:
    try:
        return known.meet(fingerprint, vectors.astype(np.float32))
    except OSError:
        return False
