"""A tenant's budget on disk: one SQLite file, written in transactions, shared by all processes of the folder.

It survives a kill at any moment. A file that cannot be read is set aside, with a warning: what was learnt is lost, so
the budget begins anew in shadow, and entries from before are matched exactly only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachestack.semantic.budget.pairs import Pair
from cachestack.semantic.budget.state import ClassState

log = logging.getLogger("cachestack")
BUDGET_FOLDER = "budget"
MAX_SERVED = 4_000
_WAIT_S = 5.0
_TABLES = """
CREATE TABLE IF NOT EXISTS tenant (name TEXT PRIMARY KEY, trusted_from_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS states (class TEXT PRIMARY KEY, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pairs (entry TEXT, exact TEXT, wrong INTEGER, until_s REAL, PRIMARY KEY (entry, exact));
CREATE TABLE IF NOT EXISTS served (number INTEGER PRIMARY KEY, id TEXT UNIQUE, served TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class ServedHit:
    """A hit that may still be reported: which question got which entry. No text is kept."""

    request_id: str
    exact: str
    entry_id: str
    of_class: str
    until_s: float
    partition: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """All that a file holds but the served hits."""

    states: dict[str, ClassState]
    pairs: tuple[Pair, ...]
    trusted_from_s: float


class Keeper:
    """One tenant's file. Raises sqlite3.Error where it cannot be used for now (a full disk, a lock)."""

    def __init__(self, folder: Path, tenant: str, clock: Callable[[], float]) -> None:
        self._path = folder / (hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:40] + ".sqlite")
        self._tenant, self._clock = tenant, clock
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None
        self._version = -1
        self.was_damaged = False

    def has_changed(self) -> bool:
        """Whether another process has written since the last `read` or `write`."""
        with self._lock:
            if self._file is None:
                return True
            try:
                return self._data_version() != self._version
            except sqlite3.Error:
                return True

    def read(self) -> Kept:
        with self._lock:
            try:
                return self._read(self._opened())
            except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
                if _is_busy(error):
                    raise
                return self._begin_anew(error)

    def write(
        self,
        change: Callable[[dict[str, ClassState]], dict[str, ClassState]],
        pairs: Iterable[Pair] = (),
        served: Iterable[ServedHit] = (),
    ) -> dict[str, ClassState]:
        """In one transaction: `change` is given the states as they are on disk, and returns them as they will be. A
        pair with an `until_s` of 0 goes."""
        with self._lock:
            file = self._opened()
            file.execute("BEGIN IMMEDIATE")
            try:
                before = {name: ClassState.from_dict(json.loads(text)) for name, text in _states(file)}
                after = change(before)
                rows = [(name, json.dumps(state.as_dict())) for name, state in after.items()]
                file.executemany("INSERT OR REPLACE INTO states VALUES (?, ?)", rows)
                for pair in pairs:
                    if pair.until_s <= 0:
                        file.execute("DELETE FROM pairs WHERE entry = ? AND exact = ?", (pair.entry_id, pair.exact))
                    else:  # once wrong, always wrong, whichever process has written last
                        file.execute(
                            "INSERT INTO pairs VALUES (?, ?, ?, ?) ON CONFLICT (entry, exact) DO UPDATE SET"
                            " wrong = max(wrong, excluded.wrong), until_s = max(until_s, excluded.until_s)",
                            (pair.entry_id, pair.exact, int(pair.wrong), pair.until_s),
                        )
                for hit in served:
                    values = [hit.exact, hit.entry_id, hit.of_class, hit.until_s, hit.partition]
                    file.execute(
                        "INSERT OR REPLACE INTO served (id, served) VALUES (?, ?)", (hit.request_id, json.dumps(values))
                    )
                file.execute("DELETE FROM served WHERE number <= (SELECT max(number) FROM served) - ?", (MAX_SERVED,))
                file.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    file.execute("ROLLBACK")
                raise
            self._version = self._data_version()
            return after

    def absorb(self, pairs: Iterable[Pair], trusted_from_s: float) -> None:
        """What another file has found wrong about entries that come here."""
        self.read()  # one that is damaged begins anew
        self.write(lambda states: states, pairs)
        with self._lock:
            self._opened().execute("UPDATE tenant SET trusted_from_s = max(trusted_from_s, ?)", (trusted_from_s,))

    def served(self, request_id: str) -> ServedHit | None:
        with self._lock:
            row = self._opened().execute("SELECT served FROM served WHERE id = ?", (request_id,)).fetchone()
        return None if row is None else ServedHit(request_id, *json.loads(row[0]))

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _opened(self) -> sqlite3.Connection:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
            try:
                file.execute("PRAGMA journal_mode = WAL")
                file.execute("PRAGMA synchronous = NORMAL")
                file.executescript(_TABLES)
                file.execute("INSERT OR IGNORE INTO tenant VALUES (?, 0)", (self._tenant,))
            except BaseException:
                file.close()
                raise
            self._file = file
        return self._file

    def _read(self, file: sqlite3.Connection) -> Kept:
        version = self._data_version()
        states = {name: ClassState.from_dict(json.loads(text)) for name, text in _states(file)}
        rows = file.execute("SELECT exact, entry, wrong, until_s FROM pairs").fetchall()
        pairs = tuple(Pair(str(exact), str(entry), bool(wrong), float(until)) for exact, entry, wrong, until in rows)
        ((trusted,),) = file.execute("SELECT trusted_from_s FROM tenant").fetchall()
        self._version = version
        return Kept(states, pairs, float(trusted))

    def _begin_anew(self, error: Exception) -> Kept:
        log.error(
            "the error budget of tenant %r cannot be read (%s): it begins anew in shadow, and entries from before now"
            " are matched exactly only",
            self._tenant,
            error,
        )
        if self._file is not None:
            with suppress(sqlite3.Error):
                self._file.close()
            self._file = None
        for path in (self._path, *(self._path.with_name(self._path.name + end) for end in ("-wal", "-shm"))):
            with suppress(FileNotFoundError):
                path.replace(path.with_name(path.name + ".damaged"))
        self.was_damaged = True
        file = self._opened()
        file.execute("UPDATE tenant SET trusted_from_s = ?", (self._clock(),))
        return self._read(file)

    def _data_version(self) -> int:
        assert self._file is not None, "it is open"
        ((number,),) = self._file.execute("PRAGMA data_version").fetchall()
        return int(number)


def read_folder(folder: Path) -> dict[str, dict[str, ClassState]]:
    """By tenant and class, for a command that only looks. What can't be read is left out."""
    found = {}
    for path in sorted(folder.glob("*.sqlite")):
        with suppress(sqlite3.Error, ValueError, KeyError, TypeError), closing(sqlite3.connect(path)) as file:
            ((tenant,),) = file.execute("SELECT name FROM tenant").fetchall()
            found[str(tenant)] = {name: ClassState.from_dict(json.loads(text)) for name, text in _states(file)}
    return found


def _states(file: sqlite3.Connection) -> list[tuple[str, str]]:
    return [(str(name), str(text)) for name, text in file.execute("SELECT class, state FROM states")]


def _is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
