"""A state folder as one file.

A gzipped tar with these members; whoever wants to look inside needs `tar` only::

    backup.json       {"format": "cachestack-backup", "v": 1, …, "members": {NAME: {"sha256": …, "num_bytes": …}}}
    entries.jsonl     what `cachestack entries export` writes: entries with their vectors, what is known of encoders
    statistics.json   each tenant's sums
    keys.sqlite       API keys (digests: no key can be made from them) and epochs, unless left out
    denied.json       which pairs each tenant's error budget has found wrong
    secret            what the salts for engines over HTTP are made with, only where it was asked for

Not in it: policies (they are yours, in a file of yours), the request log, index files (they are made from the entries).
The file appears whole under its name, or not at all; only its owner may read it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachestack.access.key_file import FOLDER as ACCESS_FOLDER
from cachestack.access.key_file import NAME as KEYS_NAME
from cachestack.entries import ENTRY_VERSION, Entry, Selector, can_read
from cachestack.errors import InputFileError, StoreError, UsageError
from cachestack.exchange import export_entries, has_own_key
from cachestack.keys import KEY_VERSION
from cachestack.semantic.known_encoders import KnownEncoders
from cachestack.stores.disk import DiskStore
from cachestack.stores.sums import STATS_FOLDER, SumsFile
from cachestack.upkeep.denied_pairs import read_denied
from cachestack.upkeep.findings import Advance
from cachestack.upkeep.moving import Movable

FORMAT, VERSION = "cachestack-backup", 1
MANIFEST, ENTRIES, STATISTICS, KEYS, SECRET = "backup.json", "entries.jsonl", "statistics.json", "keys.sqlite", "secret"
DENIED = "denied.json"
MEMBERS = (ENTRIES, STATISTICS, KEYS, DENIED, SECRET)
ENCODERS_FOLDER = "encoders"
_PIECE = 2**20
_MAX_MANIFEST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Backup:
    """`num_left_out`: entries whose key is another version's, which nobody can find any more."""

    num_entries: int
    num_left_out: int
    num_bytes: int
    members: tuple[str, ...]


def back_up(
    home: Path,
    store: Movable,
    path: Path,
    *,
    with_keys: bool = True,
    with_secret: bool = False,
    overwrite: bool = False,
    now_s: float | None = None,
    advance: Advance = lambda stage, done, total: None,
) -> Backup:
    """Raises UsageError, StoreError or OSError: then there is no file, or the one that was there before."""
    if path.exists() and not overwrite:
        raise UsageError(f"{path} is there already; take another name, or --force to replace it")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is no folder")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as work:  # mode 0700
        folder = Path(work)
        kept = _Counted(store)
        total = store.size().num_entries
        num_entries = export_entries(
            kept,
            folder / ENTRIES,
            KnownEncoders(home / ENCODERS_FOLDER),
            advance=lambda done: advance("entries", done, max(done, total)),
        )
        (folder / STATISTICS).write_text(json.dumps(_sums(home)))
        if denied := read_denied(home):  # after the entries: what is denied of them meanwhile is in it
            (folder / DENIED).write_text(json.dumps(denied))
        if with_keys and (home / ACCESS_FOLDER / KEYS_NAME).exists():
            _copy_keys(home / ACCESS_FOLDER / KEYS_NAME, folder / KEYS)
        if with_secret and (home / "secret").exists():
            (folder / SECRET).write_bytes((home / "secret").read_bytes())
        members = tuple(name for name in MEMBERS if (folder / name).exists())
        manifest = {
            "format": FORMAT,
            "v": VERSION,
            "entry_v": ENTRY_VERSION,
            "key_v": KEY_VERSION,
            "made_at_s": time.time() if now_s is None else now_s,
            "num_entries": num_entries,
            "members": {name: _described(folder / name) for name in members},
        }
        made = folder / "made"
        _pack(folder, members, manifest, made, advance)
        num_bytes = made.stat().st_size
        os.replace(made, path)
    _sync_folder(path.parent)
    return Backup(num_entries, kept.num_left_out, num_bytes, members)


def unpack(path: Path, folder: Path, advance: Advance = lambda stage, done, total: None) -> dict[str, Any]:
    """Check a backup and lay its members into `folder`; returns its manifest. Raises InputFileError: then it is not to
    be used at all."""
    try:
        with tarfile.open(path, "r:gz") as tar:
            head = tar.next()
            if head is None or head.name != MANIFEST or not head.isreg() or head.size > _MAX_MANIFEST_BYTES:
                raise InputFileError(f"{path} is not a file that `cachestack backup` wrote")
            manifest = _read_manifest(path, b"".join(_pieces(tar, head)))
            for number, (name, said) in enumerate(manifest["members"].items(), start=1):
                member = tar.next()
                if member is None or member.name != name or not member.isreg():
                    raise InputFileError(f"{path} is damaged or cut off: {name} is not where it should be")
                _lay(path, tar, member, folder / name, said)
                advance("checking", number, len(manifest["members"]))
            if tar.next() is not None:
                raise InputFileError(f"{path} has more in it than it says; it is not used")
            while tar.fileobj.read(_PIECE):
                pass  # to the end, where gzip's own checksum is
            return manifest
    except FileNotFoundError:
        raise InputFileError(f"{path} does not exist") from None
    except (tarfile.TarError, zlib.error, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(f"{path} is damaged, or not a file that `cachestack backup` wrote: {error}") from None
    except OSError as error:
        if error.errno is None:  # gzip's own: a checksum, a length
            raise InputFileError(f"{path} is damaged, or not a file that `cachestack backup` wrote: {error}") from None
        raise InputFileError(f"{path} cannot be read: {error.strerror}") from error


class _Counted:
    """The store's entries as of one moment, those that somebody can find; counts the others."""

    def __init__(self, store: Movable) -> None:
        self._store = store
        self.num_left_out = 0

    def __iter__(self) -> Iterator[Entry]:
        store, everything = self._store, Selector()
        for entry in store.at_one_moment(everything) if isinstance(store, DiskStore) else store.select(everything):
            if has_own_key(entry):
                yield entry
            else:
                self.num_left_out += 1


def _sums(home: Path) -> Mapping[str, Mapping[str, float]]:
    sums = SumsFile(home / STATS_FOLDER)
    try:
        return sums.read()
    finally:
        sums.close()


def _copy_keys(source: Path, target: Path) -> None:
    """As of one moment, by SQLite."""
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as theirs,
            closing(sqlite3.connect(target)) as ours,
        ):
            theirs.backup(ours)
    except sqlite3.Error as error:
        raise StoreError(f"the file of keys {source} cannot be copied: {error}") from error
    target.chmod(0o600)


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest(), "num_bytes": path.stat().st_size}


def _pack(folder: Path, members: tuple[str, ...], manifest: Mapping[str, Any], target: Path, advance: Advance) -> None:
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as tar:
            text = json.dumps(manifest).encode()
            head = tarfile.TarInfo(MANIFEST)
            head.size, head.mode = len(text), 0o600
            tar.addfile(head, io.BytesIO(text))
            for number, name in enumerate(members, start=1):
                info = tarfile.TarInfo(name)
                info.size, info.mode = (folder / name).stat().st_size, 0o600
                with (folder / name).open("rb") as content:
                    tar.addfile(info, content)
                advance("packing", number, len(members))
        file.flush()
        os.fsync(file.fileno())


def _read_manifest(path: Path, text: bytes) -> dict[str, Any]:
    manifest = json.loads(text)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputFileError(f"{path} is not a file that `cachestack backup` wrote")
    wrong = [
        f"{name} {manifest.get(name)}"
        for name, is_good in (
            ("v", manifest.get("v") == VERSION),
            ("entry_v", can_read(manifest.get("entry_v"))),
            ("key_v", manifest.get("key_v") == KEY_VERSION),
        )
        if not is_good
    ]
    if wrong:
        raise InputFileError(
            f"{path} is of another version ({', '.join(wrong)}), which this one (v {VERSION}, entry_v {ENTRY_VERSION}, "
            f"key_v {KEY_VERSION}) cannot read: restore it with the version that wrote it"
        )
    if not set(manifest["members"]) <= set(MEMBERS) or ENTRIES not in manifest["members"]:
        raise InputFileError(f"{path} is damaged: what it says is in it makes no sense")
    return manifest


def _lay(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, said: Mapping[str, Any]) -> None:
    digest, num_bytes = hashlib.sha256(), 0
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for piece in _pieces(tar, member):
            file.write(piece)
            digest.update(piece)
            num_bytes += len(piece)
    if (digest.hexdigest(), num_bytes) != (said["sha256"], said["num_bytes"]):
        raise InputFileError(f"{path} is damaged: the checksum of {member.name} does not match; nothing was restored")


def _pieces(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    content = tar.extractfile(member)
    assert content is not None, "a regular file"
    while piece := content.read(_PIECE):
        yield piece


def _sync_folder(folder: Path) -> None:
    """So that the new name survives a power cut."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
