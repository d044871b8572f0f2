"""API keys and authorisation epochs: kept in a file, looked up in memory, the same in all processes within a second."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from cachestack.access.api_key import KeyRecord, digest_of, matches, new_id, new_secret, read_id, read_key, write_key
from cachestack.access.key_file import FOLDER, NAME, KeyFile, create_file
from cachestack.access.principal import Kind, Principal, check_name, epoch_of
from cachestack.errors import StoreError, UsageError

FRESH_S = 0.25
"""How old what is in memory may be: within it a revoked key may still be accepted."""
USED_EVERY_S = 3600.0
_MAX_MATCHED = 4096

T = TypeVar("T")
log = logging.getLogger("cachestack")
_left_behind: list[KeyFile | None] = []
"""Connections of a parent process: SQLite must not close them in the child."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What the file said at one moment."""

    generation: int = -1
    keys: Mapping[str, KeyRecord] = field(default_factory=dict)
    epochs: Mapping[tuple[str, str, str], int] = field(default_factory=dict)


class KeyStore:
    """Safe under threads; any number of processes may use one folder. `clock`: seconds since the epoch; `ticks`: a
    clock that only moves forward. Every method may raise StoreError: then nobody is let in."""

    def __init__(
        self,
        home: Path,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.path = home / FOLDER / NAME
        self._clock = clock
        self._ticks = ticks
        self._start = start or _in_background
        self._lock = threading.RLock()
        self._file: KeyFile | None = None
        self._change_number = -1
        self._known = _Known()
        self._look_again_at_s = float("-inf")
        self._failure: str | None = None
        self._noted: dict[str, float] = {}
        self._uses: dict[str, float] = {}
        self._process = os.getpid()
        self._matched: tuple[_Known, dict[str, tuple[KeyRecord, Principal]]] = self._known, {}

    def exists(self) -> bool:
        """Whether there ever was a key here; what has been revoked counts."""
        self._refresh_if_due()
        return self._file is not None

    def create(
        self,
        tenant: str,
        *,
        user: str | None = None,
        role: str | None = None,
        kind: Kind = "client",
        expires_in_s: float | None = None,
        name: str = "",
    ) -> tuple[str, KeyRecord]:
        """A new key and its record. The key is nowhere else: what is kept is its digest. Raises UsageError."""
        check_name("tenant", tenant)
        for what, value in (("user", user), ("role", role), ("name", name or None)):
            if value is not None:
                check_name(what, value)
        if expires_in_s is not None and not 0 < expires_in_s < 1e11:
            raise UsageError(f"a key must expire after a positive number of seconds, not {expires_in_s}")
        now_s, secret = float(self._clock()), new_secret()
        expires_s = None if expires_in_s is None else now_s + expires_in_s
        record = KeyRecord(new_id(), tenant, user, role, kind, name, b"", now_s, expires_s)
        record = replace(record, digest=digest_of(record.bound_to, secret))
        self._change(lambda file: file.add(record))
        return write_key(record.key_id, secret), record

    def records(self) -> list[KeyRecord]:
        """All keys, those that were revoked too, oldest first."""
        with self._lock:
            self._refresh()
            return [] if self._file is None else self._file.read()[1]

    def revoke(self, key: str) -> KeyRecord:
        """Refuse a key from now on: in this process at once, in others within a second. `key`: an id or a whole key."""
        key_id = read_id(key)
        if key_id is None:
            raise UsageError("a key is named by its id of 12 letters and digits, as `cachestack keys list` shows it")
        if not self.exists() or not self._change(lambda file: file.revoke(key_id, self._clock())):
            raise UsageError(f"there is no key {key_id} in {self.path}; `cachestack keys list` shows those that are")
        return self._known.keys[key_id]

    def raise_epoch(self, tenant: str, *, user: str | None = None, role: str | None = None) -> int:
        """Let nobody of this tenant, this user or this role meet what was kept before. Returns the new epoch."""
        check_name("tenant", tenant)
        if user is not None and role is not None:
            raise UsageError("raise the epoch of a user or of a role, not of both; call twice")
        kind, name = ("user", user) if user is not None else ("role", role) if role is not None else ("tenant", "")
        if kind != "tenant":
            check_name(kind, name)
        return self._change(lambda file: file.raise_epoch(tenant, kind, name or ""))

    def find(self, key_id: str, secret: str) -> KeyRecord | None:
        """The key with this id and secret, if it is there, not revoked and not expired."""
        self._refresh_if_due()
        record = self._known.keys.get(key_id)
        if not matches(record, secret) or record is None:
            return None
        return record if self._is_live(record) else None

    def _is_live(self, record: KeyRecord) -> bool:
        """Where it is, its use is noted."""
        now_s = self._clock()
        if not record.is_live(now_s):
            return False
        if now_s - (self._noted.get(record.key_id) or record.last_used_s or 0.0) >= USED_EVERY_S:
            self._note_use(record.key_id, now_s // USED_EVERY_S * USED_EVERY_S)
        return True

    def principal_of(self, key: str) -> Principal | None:
        """Whom a key stands for, where `find` would find it. While the file says the same, a key's digest is made
        once; whether it has expired is looked at each time."""
        self._refresh_if_due()
        known, (of, matched) = self._known, self._matched
        if of is not known or len(matched) >= _MAX_MATCHED:
            matched = {}
            self._matched = known, matched
        found = matched.get(key)
        if found is None or not self._is_live(found[0]):
            parts = read_key(key)
            record = None if parts is None else self.find(*parts)
            if record is None:
                return None
            principal = self.principal(record)
            if self._known is known:
                matched[key] = record, principal
            return principal
        return found[1]

    def epoch(self, tenant: str, user: str | None, role: str | None) -> int:
        """The highest of the epochs that this principal stands under; 0 where none was ever raised.

        All of a tenant's epochs come from one counter, so whatever is kept under an epoch from a raise on was made
        after that raise.
        """
        self._refresh_if_due()
        epochs = self._known.epochs
        if not epochs:
            return 0
        scopes = [("tenant", ""), *((k, n) for k, n in (("user", user), ("role", role)) if n is not None)]
        return max(epochs.get((tenant, *scope), 0) for scope in scopes)

    def principal(self, record: KeyRecord) -> Principal:
        epoch = epoch_of(self.epoch(record.tenant, record.user, record.role))
        return Principal(record.tenant, record.user, record.role, epoch, record.kind, record.key_id)

    def close(self) -> None:
        with self._lock:
            self.flush_uses()
            self._close_file()

    def flush_uses(self) -> None:
        """Write when keys were used last. What fails is tried again after the next use."""
        with self._lock:
            uses, self._uses = self._uses, {}
            if not uses:
                return
            try:
                self._refresh()
                if self._file is not None:
                    self._file.note_uses(uses)
            except (StoreError, OSError) as error:
                log.warning("when keys were used last is not noted: %s", error)

    def _note_use(self, key_id: str, hour_s: float) -> None:
        with self._lock:
            if self._noted.get(key_id) == hour_s:
                return
            self._noted[key_id] = self._uses[key_id] = hour_s
        self._start(self.flush_uses)

    def _change(self, change: Callable[[KeyFile], T]) -> T:
        with self._lock:
            if not self.path.exists():
                create_file(self.path)
            self._refresh()
            if self._file is None:
                raise StoreError(f"the file of keys {self.path} went away while it was opened; try again")
            result = change(self._file)
            self._read(self._file)
            return result

    def _refresh_if_due(self) -> None:
        if os.getpid() != self._process:
            self._process, self._lock, self._look_again_at_s = os.getpid(), threading.RLock(), float("-inf")
            _left_behind.append(self._file)
            self._file = None
        if self._ticks() >= self._look_again_at_s:
            with self._lock:
                if self._ticks() >= self._look_again_at_s:
                    self._refresh()
        if self._failure is not None:  # not tried again for every request: it may have failed after a second's wait
            raise StoreError(self._failure)

    def _refresh(self) -> None:
        """See to it that memory says what the file says. What cannot be read is not believed: nobody is let in."""
        self._look_again_at_s, self._failure = self._ticks() + FRESH_S, None
        try:
            self._look()
        except BaseException as error:
            self._known, self._failure = _Known(), str(error)
            self._close_file()
            raise

    def _look(self) -> None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            self._close_file()
            self._known = _Known()
            return
        except OSError as error:
            raise StoreError(f"the file of keys {self.path} cannot be reached: {error}") from error
        if self._file is None or self._file.identity != (found.st_dev, found.st_ino):
            self._close_file()
            self._known = _Known()
            try:
                self._file = KeyFile(self.path)
            except OSError as error:
                raise StoreError(f"the file of keys {self.path} cannot be opened: {error}") from error
        number = self._file.change_number()
        if number != self._change_number or self._known.generation < 0:
            if self._file.generation() != self._known.generation:
                self._read(self._file)
            self._change_number = number

    def _read(self, file: KeyFile) -> None:
        generation, keys, epochs = file.read()
        self._known = _Known(generation, {record.key_id: record for record in keys}, epochs)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="cachestack-key-uses", daemon=True).start()
