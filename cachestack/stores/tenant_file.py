"""One tenant's SQLite file: bytes under ordered bytes keys. The only file that knows diskcache.

It is a `diskcache.Cache` (format, settings, counting triggers, one connection a thread and process) with three
changes: values are bytes and nothing is ever pickled, neither on the way in nor on the way out; nothing is evicted or
expired by diskcache, whose clock is not ours; and waiting for a lock ends after `timeout_s`, not after a minute.

Columns as used here: `size` is what a row counts against the byte budget (0 for all but entries), `access_time` its
last use, `expire_time` when it can be purged. diskcache's triggers keep the sum of `size` in the same transaction.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import diskcache

DATABASE = diskcache.core.DBNAME
_RAW = diskcache.core.MODE_RAW
_SETTINGS = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "size_limit": 2**62,
    "statistics": 0,
    "tag_index": 0,
    "disk_min_file_size": 2**31 - 1,  # all inside the database: a file beside it would not be part of the transaction
    "sqlite_mmap_size": 0,  # a file cut short by someone else would end the process with SIGBUS
    "sqlite_cache_size": 2**11,  # pages: 8 MB a connection
}
VALUE = "SELECT mode, value FROM Cache WHERE key = ? AND raw = 1"
ROWS = "SELECT key, value, size FROM Cache WHERE key >= ? AND key < ? AND raw = 1 ORDER BY key LIMIT ?"
_WRITE = """
INSERT INTO Cache(key, raw, store_time, expire_time, access_time, access_count, tag, size, mode, filename, value)
VALUES (:key, 1, :now, :gone_at, :now, 0, NULL, :size, :mode, NULL, :value)
ON CONFLICT(key, raw) DO UPDATE SET store_time = :now, expire_time = :gone_at, access_time = :now, size = :size,
    mode = :mode, value = :value
"""


class BytesOnly(diskcache.Disk):  # type: ignore[misc]  # diskcache has no types
    """Refuses every key and value that diskcache would pickle, and every stored value that it would unpickle."""

    def put(self, key: object) -> tuple[Any, bool]:
        if type(key) is not bytes:
            raise TypeError(f"a key must be bytes, not {type(key).__name__}")
        return sqlite3.Binary(key), True

    def get(self, key: Any, raw: bool) -> bytes:
        if not raw:
            raise sqlite3.DatabaseError("a stored key is pickled; it is not read")
        return bytes(key)

    def store(self, value: object, read: bool, key: object = None) -> tuple[int, int, None, Any]:
        if type(value) is not bytes or read:
            raise TypeError(f"a value must be bytes, not {type(value).__name__}")
        return 0, _RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> bytes:
        if mode != _RAW or filename is not None:
            raise sqlite3.DatabaseError("a stored value is pickled or outside the database; it is not read")
        return bytes(value)


@dataclass(frozen=True, slots=True)
class Row:
    key: bytes
    value: bytes
    size: int


class TenantFile(diskcache.Cache):  # type: ignore[misc]
    """Any method may raise sqlite3.Error or OSError. Reads see what is committed; writes belong inside `atomic`."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self._keepers: WeakSet[_Keeper] = WeakSet()
        self._wait_s = timeout_s
        super().__init__(str(folder), timeout=timeout_s, disk=BytesOnly, **_SETTINGS)
        self._sql("CREATE INDEX IF NOT EXISTS Cache_last_use ON Cache(access_time) WHERE size > 0")

    @property
    def _con(self) -> sqlite3.Connection:
        """As in diskcache, but a connection is also closed when its thread has ended or this object is dropped."""
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            self.close()
            local.pid = os.getpid()
        connection: sqlite3.Connection | None = getattr(local, "con", None)
        if connection is None:
            connection = local.con = sqlite3.connect(
                os.path.join(self._directory, DATABASE),
                timeout=self._timeout,
                isolation_level=None,
                check_same_thread=False,
            )
            local.keeper = _Keeper(connection)
            self._keepers.add(local.keeper)
            with suppress(sqlite3.OperationalError):  # the first time there is no Settings table yet
                for key, value in connection.execute("SELECT key, value FROM Settings").fetchall():
                    if str(key).startswith("sqlite_"):
                        self.reset(key, value, update=False)
        return connection

    @property
    def _sql_retry(self) -> Callable[..., sqlite3.Cursor]:
        """diskcache's own waiting while it opens a file, with our patience instead of a minute."""
        sql = self._sql

        def execute(statement: str, *args: Any) -> sqlite3.Cursor:
            give_up = time.monotonic() + self._wait_s
            while True:
                try:
                    return sql(statement, *args)  # type: ignore[no-any-return]
                except sqlite3.OperationalError as error:
                    if str(error) != "database is locked" or time.monotonic() > give_up:
                        raise
                    time.sleep(0.001)

        return execute

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """All writes inside become visible together, or none. Holds the write lock of the file."""
        connection = self._con
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:  # the body or the commit failed; SQLite may have rolled back by itself
                connection.execute("ROLLBACK")

    def read(self, key: bytes) -> bytes | None:
        return value_of(self._sql(VALUE, (key,)).fetchone())

    def follow(self, key: bytes) -> bytes | None:
        """The value of the row that the row at `key` names."""
        query = (
            "SELECT mode, value FROM Cache WHERE raw = 1 AND key = (SELECT value FROM Cache WHERE key = ? AND raw = 1)"
        )
        return value_of(self._sql(query, (key,)).fetchone())

    def write(
        self, key: bytes, value: bytes, *, now_s: float = 0.0, size: int = 0, gone_at_s: float | None = None
    ) -> None:
        values = {"key": key, "value": value, "now": now_s, "size": size, "gone_at": gone_at_s, "mode": _RAW}
        self._sql(_WRITE, values)

    def rewrite(self, key: bytes, value: bytes, size: int) -> None:
        """Another value in an existing row; its times stay."""
        self._sql("UPDATE Cache SET value = ?, size = ? WHERE key = ? AND raw = 1", (value, size, key))

    def remove(self, key: bytes) -> None:
        self._sql("DELETE FROM Cache WHERE key = ? AND raw = 1", (key,))

    def remove_range(self, first: bytes, end: bytes) -> None:
        self._sql("DELETE FROM Cache WHERE key >= ? AND key < ?", (first, end))

    def remove_pointers(self, prefix: bytes, value: bytes) -> None:
        """Drop the rows under `prefix` that hold `value`. Reads all of them."""
        self._sql("DELETE FROM Cache WHERE key >= ? AND key < ? AND value = ?", (prefix, after(prefix), value))

    def rows(self, first: bytes, end: bytes, limit: int) -> list[Row]:
        """The rows with `first <= key < end`, in order of their keys, at most `limit`."""
        return [row_of(*r) for r in self._sql(ROWS, (first, end, limit))]

    def keys_where(self, prefix: bytes, offset: int, part: bytes) -> list[bytes]:
        """The keys under `prefix` that have `part` at `offset`. Reads the key index only."""
        query = "SELECT key FROM Cache WHERE key >= ? AND key < ? AND raw = 1 AND substr(key, ?, ?) = ?"
        found = self._sql(query, (prefix, after(prefix), offset + 1, len(part), part))
        return [bytes(key) for (key,) in found]

    def least_recently_used(self, but: bytes, limit: int) -> list[Row]:
        query = "SELECT key, value, size FROM Cache WHERE size > 0 AND key != ? ORDER BY access_time, rowid LIMIT ?"
        return [row_of(*r) for r in self._sql(query, (but, limit))]

    def gone(self, now_s: float, limit: int) -> list[bytes]:
        query = "SELECT key FROM Cache WHERE expire_time <= ? AND size > 0 LIMIT ?"
        return [bytes(key) for (key,) in self._sql(query, (now_s, limit))]

    def use(self, key: bytes, now_s: float) -> None:
        self._sql("UPDATE Cache SET access_time = max(access_time, ?) WHERE key = ? AND raw = 1", (now_s, key))

    def num_bytes(self) -> int:
        return int(self._sql("SELECT value FROM Settings WHERE key = 'size'").fetchone()[0])

    def num_entries(self) -> int:
        return int(self._sql("SELECT COUNT(*) FROM Cache WHERE size > 0").fetchone()[0])

    def close_all(self) -> None:
        """Close the connections of all threads."""
        for keeper in list(self._keepers):
            keeper.close()


class _Keeper:
    """Closes a connection when its thread has ended. The connection is part of a cycle: collecting it takes a while."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        self.close()


def after(prefix: bytes) -> bytes:
    """The first key behind all keys that start with `prefix`."""
    head = prefix.rstrip(b"\xff")
    assert head, "a prefix must hold a byte below 0xff"
    return head[:-1] + bytes([head[-1] + 1])


def row_of(key: Any, value: Any, size: Any) -> Row:
    return Row(bytes(key), bytes(value) if isinstance(value, bytes) else b"", int(size))


def value_of(row: tuple[int, Any] | None) -> bytes | None:
    """A value of another kind than ours reads as empty bytes, which no decoder takes for an entry."""
    if row is None:
        return None
    mode, value = row
    return value if mode == _RAW and isinstance(value, bytes) else b""
