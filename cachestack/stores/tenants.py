"""The tenants' files of a store folder: opening, waiting, damage, and errors of the medium.

A file that SQLite finds damaged is moved aside (`*.corrupt-N`, kept for whoever wants to look), counted, and the tenant
starts afresh. A file that was replaced or deleted under us is noticed at the next call, by its inode.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from cachestack.errors import StoreError
from cachestack.keys import digest
from cachestack.stores.tenant import CorruptFile, Tenant, UnfinishedFile
from cachestack.stores.tenant_file import DATABASE

T = TypeVar("T")
ASIDE = ".corrupt-"
_NAME = re.compile("[0-9a-f]{40}")
_CORRUPT_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@lru_cache(maxsize=4096)
def folder_name(tenant: str) -> str:
    return digest(b"tenant", tenant.encode("utf-8", "surrogatepass"))[:40]


def is_tenant_folder(name: str) -> bool:
    """Whether a folder of this name is a tenant's."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class _Opened:
    tenant: Tenant
    inode: int
    writing: threading.Lock = field(default_factory=threading.Lock)


class Tenants:
    """`run` is the one way to a tenant's file; it raises StoreError and nothing else of the medium."""

    def __init__(self, folder: Path, *, timeout_s: float, max_open: int, journal_length: int) -> None:
        self._folder = folder
        self._prefix = f"{folder}{os.sep}"
        self._timeout_s = timeout_s
        self._max_open = max_open
        self._journal_length = journal_length
        self._opening = [threading.Lock() for _ in range(16)]  # by name: slow openings do not hold up other tenants
        self._lock = threading.Lock()  # guards the three below; never held while a file is opened or used
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._num_corrupt = 0
        self._closed = False

    @property
    def num_corrupt(self) -> int:
        return self._num_corrupt

    def count_corrupt(self) -> None:
        with self._lock:
            self._num_corrupt += 1

    def names(self) -> list[str]:
        """The folders that hold a tenant's file."""
        try:
            found = os.scandir(self._folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failure(self._folder, error) from error
        with found:
            names = [f.name for f in found if is_tenant_folder(f.name)]
        return sorted(name for name in names if (self._folder / name / DATABASE).exists())

    def run(
        self,
        name: str,
        work: Callable[[Tenant], T],
        *,
        absent: T,
        create_for: str | None = None,
        write: bool = False,
    ) -> T:
        """What `work` returns, or `absent` where the tenant has no file. `create_for` names the tenant to begin one.

        With `write`, threads of this process take turns: SQLite's own waiting is polling.
        """
        for attempt in ("first", "last"):
            opened: _Opened | None = None
            try:
                opened = self._open(name, create_for)
                if opened is None:
                    return absent
                return self._in_turn(opened, work) if write else work(opened.tenant)
            except (sqlite3.Error, OSError, CorruptFile) as error:
                if attempt == "first" and _is_damage(error) and not self._closed:
                    self._set_aside(name, opened)
                    continue
                raise self._failure(self._folder / name, error) from error
        raise AssertionError("the second attempt returns or raises")

    def opened(self, name: str) -> Tenant | None:
        """The tenant, where its file is open and still in its place; nothing is opened for it. Raises StoreError."""
        opened = self._still_open(name, self._path(name))
        return None if opened is None else opened.tenant

    @contextmanager
    def apart(self, name: str) -> Iterator[Path]:
        """The folder of a tenant's file, to be read beside the store. What goes wrong inside is a StoreError."""
        folder = self._folder / name
        try:
            yield folder
        except (sqlite3.Error, OSError) as error:
            raise self._failure(folder, error) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for opened in self._opened.values():
                opened.tenant.close()
            self._opened.clear()

    def _in_turn(self, opened: _Opened, work: Callable[[Tenant], T]) -> T:
        if not opened.writing.acquire(timeout=self._timeout_s):
            raise TimeoutError(f"another thread has been writing for {self._timeout_s} s")
        try:
            return work(opened.tenant)
        finally:
            opened.writing.release()

    def _open(self, name: str, create_for: str | None) -> _Opened | None:
        path = self._path(name)
        opened = self._still_open(name, path)
        if opened is None:
            with self._opening[int(name[:2], 16) % len(self._opening)]:
                opened = self._still_open(name, path)
                if opened is None and (create_for is not None or os.path.exists(path)):
                    try:
                        opened = self._keep(name, self._open_file(Path(path), create_for))
                    except UnfinishedFile:
                        return None
        return opened

    def _path(self, name: str) -> str:
        return f"{self._prefix}{name}{os.sep}{DATABASE}"

    def _still_open(self, name: str, path: str) -> _Opened | None:
        """The open file, unless another one has taken its place."""
        inode = _inode(path)
        with self._lock:
            self._check_not_closed()
            opened = self._opened.get(name)
            if opened is None or opened.inode != inode:
                self._opened.pop(name, None)
                return None
            self._opened.move_to_end(name)
            return opened

    def _open_file(self, path: Path, create_for: str | None) -> _Opened:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            tenant = Tenant(path.parent, create_for, self._timeout_s, self._journal_length, self.count_corrupt)
        except (TypeError, ValueError, AttributeError) as error:  # a database whose settings are not diskcache's
            raise CorruptFile(str(error)) from error
        return _Opened(tenant, os.stat(path).st_ino)

    def _keep(self, name: str, opened: _Opened) -> _Opened:
        with self._lock:
            self._check_not_closed()
            self._opened[name] = opened
            while len(self._opened) > self._max_open:
                self._opened.popitem(last=False)  # closed when the last thread that uses it lets go
        return opened

    def _check_not_closed(self) -> None:
        if self._closed:
            raise StoreError(f"the store in {self._folder} was closed")

    def _set_aside(self, name: str, opened: _Opened | None) -> None:
        """Move the damaged file away, unless another process or thread has done so already."""
        folder = self._folder / name
        with self._lock:
            self._opened.pop(name, None)
            if opened is not None and _inode(folder / DATABASE) != opened.inode:
                return
            self._num_corrupt += 1
            number = 1
            while (aside := self._folder / f"{name}{ASIDE}{number}").exists():
                number += 1
            try:
                folder.rename(aside)
            except FileNotFoundError:
                return
            except OSError as error:
                raise self._failure(folder, error) from error

    def _failure(self, place: Path, error: Exception) -> StoreError:
        return StoreError(
            f"entries in {place} cannot be used: {str(error) or type(error).__name__}; "
            "check that the folder can be written and that its disk has room"
        )


def _inode(path: Path | str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _is_damage(error: Exception) -> bool:
    """Whether the file itself is at fault, not the disk or a lock."""
    if isinstance(error, CorruptFile):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and (code & 0xFF) in _CORRUPT_CODES:
        return True
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith(("no such table", "no such column"))
