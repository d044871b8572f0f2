"""Entries on disk: every tenant's file, and files that were put aside."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cachestack.stores.examining import Examined, Fault, examine
from cachestack.stores.mending import mend, rebuild
from cachestack.stores.opening import ENTRIES_FOLDER, DiskRef
from cachestack.stores.tenant_file import DATABASE
from cachestack.stores.tenants import ASIDE, is_tenant_folder
from cachestack.upkeep.findings import CannotLook, Finding, Found, Looked, Mend, Severity

CHECK = "entries"
_SAID: dict[Fault, tuple[Severity, str, str]] = {
    Fault.SQLITE: (
        Severity.ERROR,
        "SQLite finds the file damaged: some of its entries may be lost",
        "makes its indexes anew; where that is not enough, puts the file aside and keeps all entries that can be read",
    ),
    Fault.NO_HEAD: (
        Severity.ERROR,
        "the file does not say whose entries it holds, so none of them is served",
        "puts the file aside and keeps all entries that can be read in a new one",
    ),
    Fault.DAMAGED: (
        Severity.ERROR,
        "{num} entries are damaged: their questions are answered by the engine again",
        "drops them",
    ),
    Fault.MISPLACED: (
        Severity.ERROR,
        "{num} entries lie where another one belongs, and are not served",
        "drops them",
    ),
    Fault.UNREACHABLE: (
        Severity.WARNING,
        "{num} entries have no exact key that leads to them: they are only found by meaning",
        "leads to them again; drops those whose question another entry answers",
    ),
    Fault.LOST_WAY: (
        Severity.WARNING,
        "{num} exact keys lead to no entry: their questions are misses",
        "removes them",
    ),
    Fault.WRONG_BYTES: (
        Severity.WARNING,
        "what is charged to the tenant's byte budget is not what is there ({num} places): entries may be evicted too "
        "early or too late",
        "counts again",
    ),
    Fault.CHANGES: (
        Severity.WARNING,
        "the record of changes of {num} partitions does not fit its number: an index may miss writes",
        "begins the record anew; indexes read those partitions again",
    ),
    Fault.FENCE: (
        Severity.WARNING,
        "{num} invalidations cannot be read: an answer that was on its way may be kept in spite of them",
        "removes them",
    ),
    Fault.FOREIGN: (Severity.WARNING, "{num} rows were not written by CacheStack; they are never read", "removes them"),
}
_REBUILT = (Fault.SQLITE, Fault.NO_HEAD)


def check_entry_files(looked: Looked) -> Iterator[Found]:
    """Fills in `looked.partitions`, `encoders` and `tenant_bytes`. Raises CannotLook."""
    folders = {looked.home / ENTRIES_FOLDER}
    if isinstance(looked.store, DiskRef):
        folders.add(looked.store.folder)
    for folder in sorted(folders):
        try:
            names = sorted(path.name for path in folder.iterdir())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CannotLook(f"{folder} cannot be read: {error.strerror}") from error
        tenants = [folder / n for n in names if is_tenant_folder(n) and (folder / n / DATABASE).exists()]
        for number, path in enumerate(tenants, start=1):
            yield from _of_tenant(looked, path)
            looked.advance("tenants", number, len(tenants))
        yield from (_aside(looked, folder / name) for name in names if ASIDE in name)


def _of_tenant(looked: Looked, folder: Path) -> Iterator[Found]:
    place = str(folder)
    try:
        examined = examine(folder, advance=lambda done, total: looked.advance("entries", done, total))
    except sqlite3.DatabaseError as error:
        if _is_medium(error):
            raise CannotLook(f"{folder} cannot be read now: {error}") from error
        severity, _, repair = _SAID[Fault.SQLITE]
        looked.has_unread = True
        what = f"the file cannot be read ({error}): its tenant begins with an empty cache"
        yield Found(Finding(severity, CHECK, place, what, repair), partial(_rebuild, looked, folder))
        return
    except OSError as error:
        raise CannotLook(f"{folder} cannot be read: {error}") from error
    if examined.tenant is not None:
        place = f"tenant {examined.tenant!r} ({folder})"
    needs_rebuilding = any(fault in examined.faults for fault in _REBUILT)
    if needs_rebuilding:
        looked.has_unread = True
    else:
        _learn(looked, examined)
    mend_once = _once(partial(_rebuild, looked, folder) if needs_rebuilding else partial(_mend, folder))
    for fault, num in sorted(examined.faults.items(), key=lambda item: list(Fault).index(item[0])):
        severity, what, repair = _SAID[fault]
        said = what.format(num=f"{num:,}") + (f" ({examined.sqlite[0]})" if fault is Fault.SQLITE else "")
        yield Found(Finding(severity, CHECK, place, said, repair), mend_once)


def _learn(looked: Looked, examined: Examined) -> None:
    looked.partitions |= examined.partitions
    looked.encoders = dict(Counter(looked.encoders) + examined.encoders)
    if examined.tenant is not None:
        looked.tenant_bytes[examined.tenant] = looked.tenant_bytes.get(examined.tenant, 0) + examined.num_bytes


def _once(mend_all: Mend) -> Mend:
    """What is done for the first finding of a file is done for all of them."""
    outcomes: list[str | None] = []

    def mend_first() -> str | None:
        if not outcomes:
            outcomes.append(mend_all())
            return outcomes[0]
        return None

    return mend_first


def _mend(folder: Path) -> str | None:
    mend(folder)
    return None


def _rebuild(looked: Looked, folder: Path) -> str | None:
    """Once for all findings of a file; what is left then is mended as in any other."""
    outcome = None
    try:
        needs_it = any(fault in examine(folder).faults for fault in _REBUILT)
    except sqlite3.DatabaseError:
        needs_it = True
    if needs_it:
        aside, num = rebuild(folder, looked.put_aside, looked.now_s)
        outcome = None if aside is None else f"{num:,} entries kept; the damaged file is {aside}"
        if (folder / DATABASE).exists():
            mend(folder)
            _learn(looked, examine(folder))
    return outcome


def _aside(looked: Looked, path: Path) -> Found:
    num_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    what = f"a damaged file of a tenant ({num_bytes:,} bytes) was put aside here: its entries are not served any more"
    finding = Finding(Severity.WARNING, CHECK, str(path), what, f"moves it to {looked.aside}, where it is kept")
    return Found(finding, lambda: f"it is {looked.put_aside(path)}")


def _is_medium(error: sqlite3.DatabaseError) -> bool:
    """A lock or a disk, not the file's content."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
                    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM)  # fmt: skip
