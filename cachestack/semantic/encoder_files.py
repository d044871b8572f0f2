"""What the files of a sentence-transformers model say, read without loading the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cachestack.keys import digest

FINGERPRINT_VERSION = "1"
_WEIGHTS = ("*.safetensors", "*.bin")
_DECIDING = (
    "modules.json",
    "config.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)
"""Names of files that decide vectors, beside the weights. A README or a record of where a model came from does not."""
_LIBRARIES = ("sentence-transformers", "torch")
_CHUNK_BYTES = 1 << 20


class EncoderFiles:
    """The files in `folder` as they are when first read; each is read at most once. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all that decides the vectors: weights, tokenizer, modules, pooling, prompts, library versions.

        Reads the weights: about 0.3 s for 90 MB.
        """
        parts = [b"encoder", FINGERPRINT_VERSION.encode()]
        for path in sorted(self._deciding()):
            parts += [path.relative_to(self.folder).as_posix().encode(), self.sha256(path).encode()]
        parts += [f"{name} {_major(name)}".encode() for name in _LIBRARIES]
        return digest(*parts)

    @cached_property
    def weights(self) -> dict[Path, str]:
        """SHA-256 of each weight file."""
        return {path: _sha256(path) for path in self._weights()}

    def sha256(self, path: Path) -> str:
        return self.weights[path] if path in self.weights else _sha256(path)

    @cached_property
    def window_tokens(self) -> int | None:
        """The length at which the model cuts, special tokens included; None where only the loaded model knows."""
        for path in sorted(self.folder.glob("sentence_*_config.json")):
            value = _read_json(path).get("max_seq_length")
            if isinstance(value, int) and value > 0:
                return value
        return None

    @cached_property
    def prompt(self) -> str:
        """What the model puts in front of every text by default."""
        config = _read_json(self.folder / "config_sentence_transformers.json")
        name, prompts = config.get("default_prompt_name"), config.get("prompts") or {}
        return str(prompts.get(name, "")) if name is not None else ""

    @property
    def tokenizer(self) -> Path | None:
        path = self.folder / "tokenizer.json"
        return path if path.is_file() else None

    def _folders(self) -> Iterator[Path]:
        yield self.folder
        modules = _read_json(self.folder / "modules.json", [])
        yield from (self.folder / m["path"] for m in modules if isinstance(m, dict) and m.get("path"))

    def _deciding(self) -> Iterator[Path]:
        for folder in self._folders():
            if folder.is_dir():
                yield from (p for p in folder.iterdir() if any(fnmatch(p.name, name) for name in _DECIDING))
        yield from self._weights()

    def _weights(self) -> Iterator[Path]:
        """Of each folder the safetensors files, or where there are none the older format's."""
        for folder in self._folders():
            for pattern in _WEIGHTS:
                found = sorted(folder.glob(pattern))
                yield from found
                if found:
                    break


def _read_json(path: Path, default: Any = None) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {} if default is None else default


def _sha256(path: Path) -> str:
    h = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            h.update(chunk)
    return h.hexdigest()


def _major(distribution: str) -> str:
    try:
        return version(distribution).split(".")[0]
    except PackageNotFoundError:
        return "none"
