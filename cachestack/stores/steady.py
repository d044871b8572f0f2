"""A tenant's file as it was at one moment, read while others write: nothing is changed, nobody is held up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cachestack.stores.tenant_file import DATABASE, ROWS, VALUE, Row, after, row_of, value_of

_BATCH = 256


class SteadyFile:
    """A context manager: all reads inside are of the moment it was entered. Raises sqlite3.Error or OSError.

    It does not go through diskcache, so that a file can also be looked at that diskcache would not open.
    """

    def __init__(self, folder: Path, timeout_s: float = 2.0) -> None:
        self._path = folder / DATABASE
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        uri = f"{self._path.absolute().as_uri()}?mode=rw"  # rw: what others are writing lies in shared memory
        self._connection = sqlite3.connect(uri, uri=True, timeout=self._timeout_s, isolation_level=None)
        try:
            self._connection.execute("PRAGMA query_only = 1")
            self._connection.execute("BEGIN")
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def query(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        return iter(self._connection.execute(statement, values))

    def read(self, key: bytes) -> bytes | None:
        return value_of(self._connection.execute(VALUE, (key,)).fetchone())

    def rows(self, prefix: bytes) -> Iterator[Row]:
        """All rows under `prefix`, in order of their keys."""
        start, end = prefix, after(prefix)
        while rows := [row_of(*r) for r in self._connection.execute(ROWS, (start, end, _BATCH))]:
            yield from rows
            start = rows[-1].key + b"\0"

    def firsts(self, prefix: bytes, length: int) -> Iterator[Row]:
        """The first row of each beginning of `length` bytes under `prefix`; the rows between are not read."""
        start, end = prefix, after(prefix)
        while rows := [row_of(*r) for r in self._connection.execute(ROWS, (start, end, 1))]:
            yield rows[0]
            start = after(rows[0].key[:length])

    def count(self, prefix: bytes) -> int:
        query = "SELECT COUNT(*) FROM Cache WHERE key >= ? AND key < ? AND raw = 1"
        return int(self._connection.execute(query, (prefix, after(prefix))).fetchone()[0])
