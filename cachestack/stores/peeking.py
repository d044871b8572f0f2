"""Reads of a tenant's file that wait for nobody: for callers that must not."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from cachestack.stores.tenant_file import DATABASE, ROWS, VALUE, Row, row_of, value_of

Version = tuple[int, int]
"""The process that asked, and SQLite's number; those of two processes are not comparable."""


class Peeking:
    """A connection of its own that writes nothing. One thread at a time; raises sqlite3.Error where it had to wait."""

    def __init__(self, folder: Path) -> None:
        self._path = os.path.join(folder, DATABASE)
        self._process = 0
        self._connection: sqlite3.Connection | None = None

    def version(self) -> Version:
        """Another one after each commit, by whatever process: SQLite tells a connection of the commits of others."""
        ((number,),) = self._execute("PRAGMA data_version")
        return self._process, int(number)

    def read(self, key: bytes) -> bytes | None:
        rows = self._execute(VALUE, (key,))
        return value_of(rows[0] if rows else None)

    def rows(self, first: bytes, end: bytes, limit: int) -> list[Row]:
        return [row_of(*row) for row in self._execute(ROWS, (first, end, limit))]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        if self._connection is None or self._process != os.getpid():
            self._process = os.getpid()
            self._connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        return self._connection.execute(statement, values).fetchall()
