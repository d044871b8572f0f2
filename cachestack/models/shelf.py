"""The models folder on disk: where a model lies, and how it gets there in one step.

::

    CACHESTACK_MODELS/
      smollm2-135m-instruct/            a model that is ready: its files, and cachestack.json
      smollm2-135m-instruct.source/     unpacked, and waiting for its conversion
      .tmp-smollm2-135m-instruct~…/     work in progress: renamed when whole, removed when not
      .lock-smollm2-135m-instruct       held by the process that pulls

A folder without a dot appears by one rename, after each file in it was checked and written to the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import IO

from cachestack.errors import ModelError
from cachestack.models.catalogue import KnownModel
from cachestack.models.manifest import Manifest, is_complete


class ModelState(StrEnum):
    ABSENT = "absent"
    UNPACKED = "unpacked"  # the files are here, the conversion is not done
    READY = "ready"
    DAMAGED = "damaged"  # a file is missing or has not the size it was put here with


class ModelShelf:
    """The models folder. Only `prepare` creates it; asking for a state never writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, model: KnownModel) -> Path:
        return self.folder / model.name

    def source_path(self, model: KnownModel) -> Path:
        return self.folder / f"{model.name}.source"

    def state(self, model: KnownModel) -> ModelState:
        """By names and sizes: milliseconds. `manifest.damaged_files` reads the contents too."""
        folder = self.path(model)
        if folder.is_dir():
            return ModelState.READY if is_complete(folder) else ModelState.DAMAGED
        return ModelState.UNPACKED if is_complete(self.source_path(model)) else ModelState.ABSENT

    def prepare(self) -> None:
        """Create the folder. Raises `ModelError` when it cannot be written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise self.unwritable(error) from error

    def require_space(self, num_bytes: int, model: KnownModel) -> None:
        """Raises `ModelError` before the work rather than in the middle of it."""
        free_bytes = shutil.disk_usage(self.folder).free
        if free_bytes < num_bytes:
            raise ModelError(
                f"{model.name} takes {num_bytes / 1e6:.0f} MB while it is put in place, and the disk of "
                f"{self.folder} has {free_bytes / 1e6:.0f} MB left; make room, or set CACHESTACK_MODELS to a "
                "folder elsewhere"
            )

    def unwritable(self, error: OSError) -> ModelError:
        """The error to raise for one that the operating system gave while the folder was written to."""
        remedy = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
        return ModelError(
            f"the models folder {self.folder} cannot be written to ({error.strerror or error}); {remedy}, or "
            "set CACHESTACK_MODELS to another folder"
        )

    @contextmanager
    def locked(self, model: KnownModel, on_wait: Callable[[], None]) -> Iterator[None]:
        """One pull of a model at a time; `on_wait` is called when another process is at it.

        The operating system frees the lock with the process that held it. Where there are no such locks
        (Windows, some network disks) two pulls both do the work, and `place` lets either win.
        """
        with open(self.folder / f".lock-{model.name}", "a") as lock:
            if _lock(lock, on_wait):
                for left_over in self.folder.glob(f".tmp-{model.name}~*"):  # of a pull that was killed
                    shutil.rmtree(left_over, ignore_errors=True)
            yield

    @contextmanager
    def workplace(self, model: KnownModel) -> Iterator[Path]:
        """A folder for work in progress, on the same disk; gone afterwards, whatever happens inside."""
        work = self._temporary(model)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _temporary(self, model: KnownModel) -> Path:
        return Path(tempfile.mkdtemp(prefix=f".tmp-{model.name}~", dir=self.folder))

    def place(self, finished: Path, target: Path, model: KnownModel, manifest: Manifest) -> None:
        """Show a finished folder under its name, in one step, instead of what may lie there."""
        manifest.write(finished)
        for path in (*finished.rglob("*"), finished):
            path.chmod(0o755 if path.is_dir() else 0o644)  # temporary files are made for their owner alone
            _write_through(path)
        try:
            os.replace(finished, target)
        except OSError:
            if not target.exists():
                raise
            self._swap(finished, target, model)
        _write_through(self.folder)

    def _swap(self, finished: Path, target: Path, model: KnownModel) -> None:
        """A folder that holds files can't be replaced in one step: the old one goes out of the way first."""
        aside = self._temporary(model)
        try:
            with suppress(FileNotFoundError):
                os.replace(target, aside / "old")
            try:
                os.replace(finished, target)
            except OSError:
                if not is_complete(target):  # else a pull without a lock was faster, with the same files
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _lock(lock: IO[str], on_wait: Callable[[], None]) -> bool:
    """Take the lock, waiting as long as it needs. False where there is no such lock to take."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _write_through(path: Path) -> None:
    """A rename must not reach the disk before the bytes it shows. Not every system can do it for a folder."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
