"""The file of keys and epochs: SQLite, for its owner alone, shared by any number of processes. Whoever finds it damaged
is told so and let nothing through."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from cachestack.access.api_key import KeyRecord
from cachestack.errors import StoreError

FOLDER, NAME = "access", "keys.sqlite"
VERSION = 1
_SCHEMA = f"""
CREATE TABLE keys(
    id TEXT PRIMARY KEY NOT NULL, tenant TEXT NOT NULL, user TEXT, role TEXT, kind TEXT NOT NULL, name TEXT NOT NULL,
    digest BLOB NOT NULL, created_s REAL NOT NULL, expires_s REAL, revoked_s REAL
);
CREATE TABLE uses(id TEXT PRIMARY KEY NOT NULL, last_used_s REAL NOT NULL);
CREATE TABLE epochs(tenant TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, epoch INTEGER NOT NULL,
    PRIMARY KEY(tenant, kind, name));
CREATE TABLE state(generation INTEGER NOT NULL);
INSERT INTO state VALUES (1);
PRAGMA user_version = {VERSION};
"""  # nosec B608: a number of ours
_KEYS = """
SELECT k.id, tenant, user, role, kind, name, digest, created_s, expires_s, revoked_s, last_used_s
FROM keys k LEFT JOIN uses u ON k.id = u.id ORDER BY created_s, k.id
"""

log = logging.getLogger("cachestack")


class KeyFile:
    """One connection to the file. Not safe under threads; any method may raise StoreError."""

    def __init__(self, path: Path, *, timeout_s: float = 1.0) -> None:
        """Opens what is there; raises FileNotFoundError where nothing is."""
        self.path = path
        _check_private(path)
        found = os.stat(path)
        self.identity = (found.st_dev, found.st_ino)
        self.process = os.getpid()
        with self._errors():
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=timeout_s,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with self._errors():
                self._connection.execute("PRAGMA synchronous = FULL")
                (version,) = self._connection.execute("PRAGMA user_version").fetchone()
                if version != VERSION:
                    raise sqlite3.DatabaseError(f"it has version {version}, not {VERSION}")
                problems = [str(line) for (line,) in self._connection.execute("PRAGMA quick_check")]
                if problems != ["ok"]:
                    raise sqlite3.DatabaseError(problems[0])
        except StoreError:
            self._connection.close()
            raise

    def change_number(self) -> int:
        """Another one after each change that another connection committed; costs no read of the tables."""
        with self._errors():
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def generation(self) -> int:
        """Counts the changes of keys and epochs; when a key was used last does not count."""
        with self._errors():
            return int(self._connection.execute("SELECT generation FROM state").fetchone()[0])

    def read(self) -> tuple[int, list[KeyRecord], dict[tuple[str, str, str], int]]:
        """Generation, keys and epochs, all of one moment."""
        with self._errors(), self._transaction("BEGIN"):
            keys = [_record(row) for row in self._connection.execute(_KEYS)]
            rows = self._connection.execute("SELECT tenant, kind, name, epoch FROM epochs")
            epochs = {(str(tenant), str(kind), str(name)): int(epoch) for tenant, kind, name, epoch in rows}
            return self.generation(), keys, epochs

    def add(self, record: KeyRecord) -> None:
        values = (record.key_id, record.tenant, record.user, record.role, record.kind, record.name, record.digest)
        with self._change():
            self._connection.execute(
                "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                (*values, record.created_s, record.expires_s),
            )

    def revoke(self, key_id: str, now_s: float) -> bool:
        """Whether there is such a key. One that was revoked before stays as it is."""
        with self._change():
            query = "UPDATE keys SET revoked_s = coalesce(revoked_s, ?) WHERE id = ?"
            return self._connection.execute(query, (now_s, key_id)).rowcount > 0

    def raise_epoch(self, tenant: str, kind: str, name: str) -> int:
        """The new epoch of this scope: above all that the tenant has had."""
        with self._change():
            query = "SELECT coalesce(max(epoch), 0) + 1 FROM epochs WHERE tenant = ?"
            (epoch,) = self._connection.execute(query, (tenant,)).fetchone()
            self._connection.execute("INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?)", (tenant, kind, name, epoch))
            return int(epoch)

    def absorb(self, records: Iterable[KeyRecord], epochs: Mapping[tuple[str, str, str], int]) -> int:
        """Take in another file's keys and epochs; returns how many keys are new. What is revoked in either is revoked,
        and of two epochs the higher holds: nobody is let in who would not be by one of the two alone."""
        num_new = 0
        with self._change():
            for r in records:
                values = (
                    r.key_id,
                    r.tenant,
                    r.user,
                    r.role,
                    r.kind,
                    r.name,
                    r.digest,
                    r.created_s,
                    r.expires_s,
                    r.revoked_s,
                )
                done = self._connection.execute(
                    "INSERT OR IGNORE INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values
                )
                num_new += done.rowcount
                query = "UPDATE keys SET revoked_s = coalesce(revoked_s, ?) WHERE id = ?"
                self._connection.execute(query, (r.revoked_s, r.key_id))
            for scope, epoch in epochs.items():
                query = (
                    "INSERT INTO epochs VALUES (?, ?, ?, ?) "
                    "ON CONFLICT(tenant, kind, name) DO UPDATE SET epoch = max(epoch, excluded.epoch)"
                )
                self._connection.execute(query, (*scope, epoch))
        return num_new

    def note_uses(self, uses: dict[str, float]) -> None:
        with self._errors(), self._transaction():
            query = "INSERT INTO uses VALUES (?, ?) ON CONFLICT(id) DO UPDATE SET last_used_s = excluded.last_used_s"
            self._connection.executemany(query, list(uses.items()))

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._errors(), self._transaction():
            yield
            self._connection.execute("UPDATE state SET generation = generation + 1")

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise StoreError(f"the keys in {self.path} cannot be read or changed now: {error}") from error
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise StoreError(
                f"the file of keys {self.path} is damaged ({error}), and no key is accepted until that is put right: "
                f"bring it back from a backup; or move it away and create every key anew with `cachestack keys create`"
            ) from error


def create_file(path: Path) -> None:
    """Make the file unless it is there. It appears whole, under its name, in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, made = tempfile.mkstemp(prefix=".keys-", dir=path.parent)  # mode 0600
        os.close(handle)
    except OSError as error:
        raise StoreError(f"the file of keys {path} cannot be made: {error}") from error
    try:
        with closing(sqlite3.connect(made)) as connection:
            connection.executescript(_SCHEMA)
        try:
            os.link(made, path)
        except FileExistsError:
            return
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the file of keys {path} cannot be made: {error}") from error
    finally:
        os.unlink(made)


def _record(row: tuple[Any, ...]) -> KeyRecord:
    key_id, tenant, user, role, kind, name, digest, created_s, expires_s, revoked_s, last_used_s = row
    if kind not in ("client", "admin") or not isinstance(digest, bytes):
        raise sqlite3.DatabaseError(f"the row of key {key_id} cannot be read")
    return KeyRecord(key_id, tenant, user, role, kind, name, digest, created_s, expires_s, revoked_s, last_used_s)


def _check_private(path: Path) -> None:
    """Raises StoreError where others may write, and this process cannot change that."""
    found = os.stat(path)
    if os.name != "posix" or not stat.S_IMODE(found.st_mode) & 0o077:
        return
    try:
        os.chmod(path, 0o600)
        log.warning("%s was open to others than its owner; its mode is 0600 now", path)
    except OSError as error:
        if stat.S_IMODE(found.st_mode) & 0o022:
            raise StoreError(
                f"others than its owner may write to {path}, so its keys are worth nothing; run: chmod 600 {path}"
            ) from error
