"""`cachestack.json`: what a pulled model's folder holds, and where it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "cachestack.json"
MANIFEST_FORMAT = 1

Report = Callable[[str, int, int], None]
"""Called with a stage in words, the amount done and the total: bytes where bytes are moved, else steps."""


def report_nothing(stage: str, done: int, total: int) -> None:
    """For callers that show no progress."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it was when the model was put in place. `path` is relative to that folder, with slashes."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """`converted` names the library versions that converted the source; `None`: it is used as it came."""

    name: str
    source: str
    source_sha256: str
    files: tuple[StoredFile, ...]
    converted: dict[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "format": MANIFEST_FORMAT,
            "name": self.name,
            "source": self.source,
            "source_sha256": self.source_sha256,
            "converted": self.converted,
            "files": {f.path: {"size_bytes": f.size_bytes, "sha256": f.sha256} for f in self.files},
        }

    @classmethod
    def from_json(cls, document: Any) -> Manifest:
        if document["format"] != MANIFEST_FORMAT:
            raise ValueError(f"manifest format {document['format']!r}")
        files = tuple(StoredFile(path, f["size_bytes"], f["sha256"]) for path, f in document["files"].items())
        return cls(document["name"], document["source"], document["source_sha256"], files, document["converted"])

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """`None` when there is none or it cannot be understood, as in a folder that was not pulled."""
    try:
        return Manifest.from_json(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def record_files(folder: Path) -> tuple[StoredFile, ...]:
    """Size and SHA-256 of every file in a folder that is ready to be placed."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return tuple(
        StoredFile(path.relative_to(folder).as_posix(), path.stat().st_size, file_sha256(path)) for path in paths
    )


def is_complete(folder: Path) -> bool:
    """Every recorded file is there with its size. Contents are not read: this takes milliseconds."""
    manifest = read_manifest(folder)
    return manifest is not None and all(file_size(folder / f.path) == f.size_bytes for f in manifest.files)


def damaged_files(folder: Path, manifest: Manifest, report: Report = report_nothing) -> tuple[str, ...]:
    """The recorded files that are missing or whose contents changed. Reads all of them."""
    total = sum(file.size_bytes for file in manifest.files)
    done = 0
    damaged = []
    for file in manifest.files:
        report("checking", done, total)
        path = folder / file.path
        if file_size(path) != file.size_bytes or file_sha256(path) != file.sha256:
            damaged.append(file.path)
        done += file.size_bytes
    report("checking", total, total)
    return tuple(damaged)


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_size(path: Path) -> int | None:
    """Bytes, or `None` when it cannot be seen."""
    try:
        return path.stat().st_size
    except OSError:
        return None
