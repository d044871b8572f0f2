"""Sums on disk: one row a tenant, added to in one transaction by all processes that open the same folder."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cachestack.errors import StoreError
from cachestack.stores.tenant_file import TenantFile, after

SUMS = b"S"
STATS_FOLDER = "stats"
_PAGE = 1000


class SumsFile:
    """What `cachestack.stats.Stats` keeps. Nothing is created before the first `add`."""

    def __init__(self, folder: Path, *, timeout_s: float = 2.0) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._file: TenantFile | None = None

    def add(self, sums: Mapping[str, Mapping[str, float]]) -> None:
        """Add to what is kept, all of it or nothing. Raises StoreError."""
        with self._errors():
            file = self._open()
            with file.atomic():
                for tenant, new in sums.items():
                    key = SUMS + tenant.encode("utf-8", "surrogatepass")
                    kept = Counter(_decode(file.read(key)))
                    kept.update(new)
                    file.write(key, json.dumps(kept, allow_nan=False).encode())

    def read(self) -> Mapping[str, Mapping[str, float]]:
        """Every tenant's sums; empty before the first `add`. A damaged row reads as no sums. Raises StoreError."""
        if self._file is None and not self._folder.exists():
            return {}
        with self._errors():
            return dict(self._rows(self._open()))

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close_all()
                self._file = None

    def _rows(self, file: TenantFile) -> Iterator[tuple[str, Mapping[str, float]]]:
        first, end = SUMS, after(SUMS)
        while rows := file.rows(first, end, _PAGE):
            for row in rows:
                yield row.key[len(SUMS) :].decode("utf-8", "surrogatepass"), _decode(row.value)
            first = rows[-1].key + b"\0"

    def _open(self) -> TenantFile:
        with self._lock:
            if self._file is None:
                self._file = TenantFile(self._folder, self._timeout_s)
            return self._file

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"statistics in {self._folder} cannot be used: {error}") from error


def _decode(value: bytes | None) -> dict[str, float]:
    try:
        sums = json.loads(value or b"{}")
        return {str(name): float(number) if isinstance(number, float) else int(number) for name, number in sums.items()}
    except (ValueError, AttributeError, TypeError):
        return {}
