"""A file that may change while it is used: loaded again when it did, kept as it was when the new one is wrong."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
CHECK_EVERY_S = 0.5
_RETRY_EVERY_S = 10.0
"""How often a file that could not be loaded is tried again while nobody changes it."""

log = logging.getLogger("cachestack")


@dataclass(frozen=True, slots=True)
class Signature:
    """What tells two states of a file apart without reading it."""

    device: int
    inode: int
    num_bytes: int
    modified_ns: int
    changed_ns: int


class WatchedFile(Generic[T]):
    """The value that `load` makes of a file, followed through its changes. Safe under threads.

    A change is loaded once the file has been found in the same state by two checks, so that a file that is just being
    written is left alone. One that is wrong, empty or gone leaves the former value in place: `error` then says why,
    and the log does, once for each reason. The first load raises what `load` raises.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[Path], T],
        *,
        what: str,
        every_s: float = CHECK_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.error: str | None = None
        self._load = load
        self._what = what
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._loaded = _signature(path)
        self._seen = self._loaded
        self._current = (load(path), 0)
        self._next_check_s = clock() + every_s
        self._retry_at_s = 0.0

    def value(self) -> T:
        return self.current()[0]

    def current(self) -> tuple[T, int]:
        """The value now, and how often it was loaded again.

        Looks at the file at most every `every_s` seconds; one thread looks, the others go on.
        """
        if self._clock() >= self._next_check_s and self._lock.acquire(blocking=False):
            try:
                self._check()
            finally:
                self._lock.release()
        return self._current

    def _check(self) -> None:
        now_s = self._clock()
        self._next_check_s = now_s + self._every_s
        found = _signature(self.path)
        if found != self._seen:
            self._seen, self._retry_at_s = found, 0.0
            return
        if found == self._loaded:
            self.error = None
        elif now_s >= self._retry_at_s:
            self._retry_at_s = now_s + _RETRY_EVERY_S
            self._take(found)

    def _take(self, found: Signature | None) -> None:
        if found is None:
            return self._refuse(f"{self.path} is not there any more")
        if found.num_bytes == 0 and (self._loaded is None or self._loaded.num_bytes > 0):
            return self._refuse(f"{self.path} is empty; write a comment into it if that is meant")
        try:
            value = self._load(self.path)
        except Exception as error:  # whatever is wrong with it must not reach the request that looked
            return self._refuse(str(error))
        if _signature(self.path) != found:  # written while it was read
            self._retry_at_s = 0.0
            return None
        self._current, self._loaded, self.error = (value, self._current[1] + 1), found, None
        log.info("%s: loaded again from %s", self._what, self.path)
        return None

    def _refuse(self, why: str) -> None:
        if why != self.error:
            log.warning("%s: the former one is kept: %s", self._what, why)
        self.error = why


def _signature(path: Path) -> Signature | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return Signature(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
