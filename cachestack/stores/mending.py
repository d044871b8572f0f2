"""Puts right what `examining` finds in a tenant's file, in small transactions, while others use it."""

from __future__ import annotations

import secrets
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from cachestack.entries import Entry
from cachestack.stores.codec import charged_bytes
from cachestack.stores.disk import DiskStore
from cachestack.stores.examining import decoded, foreign_rows, is_head, is_own
from cachestack.stores.fences import Fence, decode_fence
from cachestack.stores.layout import (
    CHANGE,
    ENTRY,
    EXACT,
    FENCE,
    LATEST,
    TENANT,
    exact_key,
    pack_number,
    unpack_number,
    wall_of,
)
from cachestack.stores.steady import SteadyFile
from cachestack.stores.tenant import BATCH, Tenant
from cachestack.stores.tenant_file import DATABASE, Row, after

Aside = Callable[[Path], Path]
"""Moves something out of the way, where it is kept, and says where."""


def mend(folder: Path, *, timeout_s: float = 10.0) -> None:
    """All but what SQLite itself finds wrong, for which see `rebuild`. Raises sqlite3.Error or OSError."""
    tenant = Tenant(folder, None, timeout_s, 8192, lambda: None)
    try:
        _mend_entries(tenant)
        _mend_ways(tenant)
        _mend_changes(tenant)
        with tenant.file.atomic():
            for row in _all(tenant, FENCE):
                if decode_fence(row.value) is None:
                    tenant.file.remove(row.key)
        with SteadyFile(folder) as file:
            foreign = list(foreign_rows(file))
        with tenant.file.atomic():
            for rowid in foreign:
                tenant.file._sql("DELETE FROM Cache WHERE rowid = ?", (rowid,))
            tenant.file._sql("UPDATE Cache SET size = 0 WHERE size != 0 AND NOT (key >= ? AND key < ?)", _of(ENTRY))
            tenant.file._sql("UPDATE Settings SET value = (SELECT COALESCE(SUM(size), 0) FROM Cache) WHERE key='size'")
            tenant.file._sql("UPDATE Settings SET value = (SELECT COUNT(*) FROM Cache) WHERE key = 'count'")
    finally:
        tenant.close()


def rebuild(folder: Path, put_aside: Aside, now_s: float) -> tuple[Path | None, int]:
    """A file that SQLite finds damaged: its indexes are made anew where that is enough. Else the damaged file goes
    aside, and a new one gets all entries that can still be read and whose checksum holds.

    Returns where the damaged file is (None where it could stay) and how many entries the new one has. An answer that
    another process keeps in the very moment in which the files change places may be lost.
    """
    if _reindexed(folder):
        return None, 0
    fences, readable = _salvaged(folder)
    entries = [e for e in readable if not any(fence.holds_back(e, now_s) for fence in fences)]
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".mending-") as work:
        store = DiskStore(Path(work))
        for entry in entries:
            store.put(entry, keep_newer=True)
        store.close()
        made = next(Path(work).iterdir(), None)
        if made is not None:
            _add_fences(made, fences)
        aside = put_aside(folder)
        if made is not None:
            try:
                made.rename(folder)
            except OSError:  # somebody has begun a new file meanwhile: both belong into it
                _merge(folder, entries)
                _add_fences(folder, fences)
    return aside, len(entries)


def _merge(folder: Path, entries: list[Entry]) -> None:
    store = DiskStore(folder.parent, timeout_s=10.0)
    try:
        for entry in entries:
            store.put(entry, keep_newer=True)
    finally:
        store.close()


def _mend_entries(tenant: Tenant) -> None:
    for rows in _batches(tenant, ENTRY):
        with tenant.file.atomic():
            for seen in rows:
                data = tenant.file.read(seen.key)
                if data is None:
                    continue
                entry = decoded(data)
                if entry is None:
                    tenant.drop(seen.key)
                elif not is_own(entry, seen.key):
                    tenant.file.remove(seen.key)
                    tenant.file.remove_pointers(EXACT + wall_of(seen.key), seen.key)
                    tenant.start_over(wall_of(seen.key))
                else:
                    if seen.size != charged_bytes(data):
                        tenant.file.rewrite(seen.key, data, charged_bytes(data))
                    _lead_to(tenant, seen.key, entry)


def _lead_to(tenant: Tenant, key: bytes, entry: Entry) -> None:
    """Give an entry its way, or drop it where another entry answers its question."""
    question = exact_key(entry.partition, entry.exact)
    target = tenant.file.read(question)
    if target == key:
        return
    there = None if target is None else tenant.file.read(target)
    other = None if there is None else decoded(there)
    if other is None or exact_key(other.partition, other.exact) != question or other.created_at_s < entry.created_at_s:
        tenant.file.write(question, key)
        if other is not None and target is not None and exact_key(other.partition, other.exact) == question:
            tenant.drop(target)
    else:
        tenant.drop(key)


def _mend_ways(tenant: Tenant) -> None:
    for rows in _batches(tenant, EXACT):
        with tenant.file.atomic():
            for seen in rows:
                target = tenant.file.read(seen.key)
                data = None if target is None else tenant.file.read(target)
                entry = None if data is None else decoded(data)
                if entry is None or exact_key(entry.partition, entry.exact) != seen.key:
                    tenant.file.remove(seen.key)


def _mend_changes(tenant: Tenant) -> None:
    walls = {row.key[1:] for row in _all(tenant, LATEST)} | {row.key[1:-8] for row in _all(tenant, CHANGE)}
    for where in walls:
        with tenant.file.atomic():
            rows = tenant.file.rows(CHANGE + where, after(CHANGE + where), 2**31)
            stored = tenant.file.read(LATEST + where)
            number = None if stored is None else unpack_number(stored)
            last = int.from_bytes(rows[-1].key[-8:], "big") if rows else number
            if number is None or last != number or any(row.value[:1] not in (b"+", b"-") for row in rows):
                fresh = max(number or 0, 1 + secrets.randbelow(2**48)) + BATCH  # nobody takes it for a continuation
                tenant.file.write(LATEST + where, pack_number(fresh))
                tenant.start_over(where)


def _reindexed(folder: Path) -> bool:
    """Whether making the indexes anew is all that was needed."""
    try:
        with closing(sqlite3.connect(folder / DATABASE, timeout=10.0, isolation_level=None)) as connection:
            connection.execute("REINDEX")
            is_whole = connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
            ((head,),) = connection.execute("SELECT MAX(value) FROM Cache WHERE key = ?", (TENANT,))
            return is_whole and is_head(head)
    except sqlite3.Error:
        return False


def _salvaged(folder: Path) -> tuple[list[Fence], list[Entry]]:
    """What can still be read, from both ends of the table: entries by their last use, each once."""
    rows: dict[bytes, tuple[float, bytes]] = {}
    with suppress(sqlite3.Error), closing(sqlite3.connect(folder / DATABASE, timeout=10.0)) as connection:
        for order in ("ASC", "DESC"):
            query = f"SELECT key, value, access_time FROM Cache NOT INDEXED ORDER BY rowid {order}"  # nosec B608: one of two words
            with suppress(sqlite3.Error):
                for key, value, used_at_s in connection.execute(query):
                    if isinstance(key, bytes) and isinstance(value, bytes):
                        rows.setdefault(key, (float(used_at_s or 0.0), value))
    fences = [decode_fence(value) for key, (_, value) in rows.items() if key[:1] == FENCE]
    in_order = sorted((row for key, row in rows.items() if key[:1] == ENTRY), key=lambda row: row[0])
    entries = [decoded(value) for _, value in in_order]
    return [f for f in fences if f is not None], [e for e in entries if e is not None]


def _add_fences(folder: Path, fences: list[Fence]) -> None:
    tenant = Tenant(folder, None, 10.0, 8192, lambda: None)
    try:
        for fence in sorted(fences, key=lambda fence: fence.at_s):
            tenant.add_fence(fence)
    finally:
        tenant.close()


def _all(tenant: Tenant, prefix: bytes) -> Iterator[Row]:
    for rows in _batches(tenant, prefix):
        yield from rows


def _batches(tenant: Tenant, prefix: bytes) -> Iterator[list[Row]]:
    start = prefix
    while rows := tenant.file.rows(start, after(prefix), BATCH):
        yield rows
        start = rows[-1].key + b"\0"


def _of(prefix: bytes) -> tuple[bytes, bytes]:
    return prefix, after(prefix)
