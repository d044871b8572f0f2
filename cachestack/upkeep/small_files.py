"""Everything else in the state folder: encoders, statistics, keys, secret, request log, what was left behind."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from cachestack.access.key_file import FOLDER as ACCESS_FOLDER
from cachestack.access.key_file import NAME as KEYS_NAME
from cachestack.access.key_file import KeyFile
from cachestack.errors import StoreError
from cachestack.observing.log_reader import LogReader
from cachestack.observing.request_log import REQUESTS_FOLDER, log_files
from cachestack.semantic.snapshots import INDEX_FOLDER
from cachestack.stores.opening import ENTRIES_FOLDER
from cachestack.stores.steady import SteadyFile
from cachestack.stores.sums import STATS_FOLDER, SUMS
from cachestack.stores.tenant_file import DATABASE, TenantFile
from cachestack.upkeep.findings import CannotLook, Finding, Found, Looked, Severity

ENCODERS_FOLDER = "encoders"
SECRET_BYTES = 32
LEFT_BEHIND_S = 3600.0
"""A temporary file so old is nobody's any more."""
_TEMPORARY = re.compile(r".*\.tmp|\.keys-.*|tmp[a-z0-9_]{8}")
_DIGEST = re.compile("[0-9a-f]{64}")


def check_encoders(looked: Looked) -> Iterator[Found]:
    folder = looked.home / ENCODERS_FOLDER
    for path in sorted(folder.glob("*.npz")):
        try:
            with np.load(path, allow_pickle=False) as kept:
                is_good = (
                    kept["vectors"].ndim == 2
                    and bool(np.isfinite(kept["vectors"]).all())
                    and bool(kept["ref"].ndim == 0)
                )
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, EOFError, OSError, TypeError, zipfile.BadZipFile):
            is_good = False
        if not is_good:
            what = (
                "what this encoder gave for the canary texts cannot be read: whether it has changed since is not "
                "noticed, and its entries match exactly only once another encoder is in use"
            )
            finding = Finding(Severity.WARNING, "encoders", str(path), what, "moves it away; it is met anew")
            yield Found(finding, partial(_move_away, looked, path))
    current = folder / "current.json"
    if current.exists() and not _is_list_of_text(current):
        what = "which encoder is in use, and which was before, cannot be read: entries of the one before are not moved"
        finding = Finding(Severity.WARNING, "encoders", str(current), what, "makes it anew from the encoders' files")
        yield Found(finding, partial(_name_encoders, folder))
    for path in sorted(folder.glob("*.moved")):
        if any(not _DIGEST.fullmatch(line) for line in path.read_text(errors="replace").split()):
            what = "a list of partitions whose entries are all this encoder's has lines that cannot be read"
            finding = Finding(Severity.WARNING, "encoders", str(path), what, "removes it; they are looked at again")
            yield Found(finding, partial(_empty, path))


def check_statistics(looked: Looked) -> Iterator[Found]:
    folder = looked.home / STATS_FOLDER
    if not (folder / DATABASE).exists():
        return
    try:
        with SteadyFile(folder) as file:
            problems = [str(line) for (line,) in file.query("PRAGMA integrity_check(1)") if line != "ok"]
            bad = [row.key for row in file.rows(SUMS) if not _is_sums(row.value)]
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise CannotLook(f"statistics in {folder} cannot be read now: {error}") from error
        problems, bad = [str(error)], []
    if problems:
        what = f"the statistics are damaged ({problems[0]}): counts are kept in memory and are lost with each process"
        repair = f"moves them to {looked.aside}; counting begins anew when the processes that run now are started again"
        finding = Finding(Severity.ERROR, "statistics", str(folder), what, repair)
        yield Found(finding, partial(_move_away, looked, folder))
    elif bad:
        names = ", ".join(key[1:].decode("utf-8", "replace") for key in bad)
        what = f"the sums of {names} cannot be read, and count as none"
        finding = Finding(Severity.ERROR, "statistics", str(folder), what, f"moves them to {looked.aside}")
        yield Found(finding, partial(_drop_sums, looked, folder, bad))


def check_keys(looked: Looked) -> Iterator[Found]:
    path = looked.home / ACCESS_FOLDER / KEYS_NAME
    if not path.exists():
        return
    open_to_others = _open_to_others(path, 0o600)
    if open_to_others is not None:
        yield open_to_others
        return  # opening it would change its mode
    try:
        file = KeyFile(path)
        try:
            file.read()
        finally:
            file.close()
    except StoreError as error:
        if isinstance(error.__cause__, sqlite3.OperationalError | OSError):
            raise CannotLook(str(error)) from error
        what = f"nobody with a key gets in: {error}"
        yield Found(Finding(Severity.ERROR, "keys", str(path), what, None))


def check_secret(looked: Looked) -> Iterator[Found]:
    path = looked.home / "secret"
    try:
        num_bytes = path.stat().st_size
    except FileNotFoundError:
        return
    if num_bytes != SECRET_BYTES:
        what = f"the secret of the salts has {num_bytes} bytes, not {SECRET_BYTES}: they can be guessed"
        repair = f"moves it to {looked.aside}; a new one is made, and engines over HTTP begin their caches anew"
        yield Found(Finding(Severity.ERROR, "secret", str(path), what, repair), partial(_move_away, looked, path))


def check_permissions(looked: Looked) -> Iterator[Found]:
    """Questions and answers, and what opens doors, are for the owner alone."""
    home = looked.home
    entries = home / ENTRIES_FOLDER
    private = [(home / "secret", 0o600), (home / INDEX_FOLDER, 0o700), (home / REQUESTS_FOLDER, 0o700)]
    private += [(path, 0o700) for path in sorted(entries.glob("*")) if path.is_dir()]
    private += [(path, 0o600) for _, path in log_files(home / REQUESTS_FOLDER)]
    for path, mode in private:
        found = _open_to_others(path, mode)
        if found is not None:
            yield found


def check_request_log(looked: Looked) -> Iterator[Found]:
    folder = looked.home / REQUESTS_FOLDER
    reader = LogReader(folder)
    num = sum(1 for _ in reader.new())
    if reader.num_skipped:
        what = (
            f"{reader.num_skipped:,} of {num + reader.num_skipped:,} lines were cut off or are another version's: "
            "they are not shown, and go when their file's turn comes"
        )
        yield Found(Finding(Severity.NOTE, "request log", str(folder), what))


def check_left_behind(looked: Looked) -> Iterator[Found]:
    home = looked.home
    folders = [home, home / ENCODERS_FOLDER, home / INDEX_FOLDER, home / ACCESS_FOLDER]
    for path in (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())):
        try:
            is_old = looked.now_s - path.stat().st_mtime > LEFT_BEHIND_S
        except FileNotFoundError:
            continue
        if is_old and path.is_file() and _TEMPORARY.fullmatch(path.name):
            what = "a temporary file of a process that was killed: it takes room"
            finding = Finding(Severity.WARNING, "left behind", str(path), what, "removes it")
            yield Found(finding, partial(_remove, path))
    kept = sorted(looked.aside.glob("*"))
    if kept:
        what = f"{len(kept)} damaged files are kept here; remove them when nobody wants to look at them any more"
        yield Found(Finding(Severity.NOTE, "left behind", str(looked.aside), what))


def _open_to_others(path: Path, mode: int) -> Found | None:
    try:
        found = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
    if os.name != "posix" or not found & 0o077:
        return None
    what = f"others on this machine may open it (mode {found:04o}): it is for its owner alone"
    finding = Finding(Severity.ERROR, "permissions", str(path), what, f"sets its mode to {mode:04o}")
    return Found(finding, partial(_set_mode, path, mode))


def _set_mode(path: Path, mode: int) -> str | None:
    path.chmod(mode)
    return None


def _move_away(looked: Looked, path: Path) -> str | None:
    return f"it is {looked.put_aside(path)}"


def _remove(path: Path) -> str | None:
    path.unlink(missing_ok=True)
    return None


def _empty(path: Path) -> str | None:
    path.write_bytes(b"")
    return None


def _is_list_of_text(path: Path) -> bool:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, list) and all(isinstance(name, str) for name in found)


def _name_encoders(folder: Path) -> str | None:
    """The latest first, by when each was met."""
    met = sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime, reverse=True)
    aside = folder / "current.json.tmp"
    aside.write_text(json.dumps([path.stem for path in met]))
    aside.replace(folder / "current.json")
    return None


def _is_sums(value: bytes) -> bool:
    try:
        sums = json.loads(value)
    except ValueError:
        return False
    return isinstance(sums, dict) and all(
        isinstance(number, int | float) and not isinstance(number, bool) for number in sums.values()
    )


def _drop_sums(looked: Looked, folder: Path, keys: list[bytes]) -> str | None:
    looked.aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = TenantFile(folder, 10.0)
    try:
        with file.atomic():
            for key in keys:
                (looked.aside / f"statistics-{key[1:].hex()[:64]}").write_bytes(file.read(key) or b"")
                file.remove(key)
    finally:
        file.close_all()
    return f"they are in {looked.aside}"
