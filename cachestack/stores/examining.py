"""What is wrong in a tenant's file: reads all of it, as of one moment, and changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path

from cachestack.entries import Entry
from cachestack.keys import Partition
from cachestack.stores.codec import CorruptEntry, charged_bytes, decode_entry
from cachestack.stores.fences import decode_fence
from cachestack.stores.layout import CHANGE, ENTRY, EXACT, FENCE, LATEST, TENANT, entry_key, exact_key, unpack_number
from cachestack.stores.steady import SteadyFile
from cachestack.stores.tenant_file import after

_LETTERS = (ENTRY, EXACT, CHANGE, LATEST, FENCE, TENANT)
_REPORT_EVERY = 256
Advance = Callable[[int, int], None]


class Fault(StrEnum):
    SQLITE = "sqlite"
    """SQLite's own check fails."""
    NO_HEAD = "no_head"
    """The row that says whose file it is cannot be read."""
    DAMAGED = "damaged"
    """An entry's bytes are not what was written."""
    MISPLACED = "misplaced"
    """An entry lies under a key that is not its own."""
    UNREACHABLE = "unreachable"
    """An entry to which no exact key leads."""
    LOST_WAY = "lost_way"
    """An exact key that leads to no entry, or to one that answers another question."""
    WRONG_BYTES = "wrong_bytes"
    """What is charged to the byte budget is not what is there."""
    CHANGES = "changes"
    """The record of changes does not fit its number."""
    FENCE = "fence"
    """An invalidation that cannot be read: an answer that was on its way may be kept in spite of it."""
    FOREIGN = "foreign"
    """Rows that are not ours: never read."""


@dataclass(slots=True)
class Examined:
    """`tenant` is None where the file does not say it. `partitions` are those that have entries, by their digests."""

    tenant: str | None = None
    num_entries: int = 0
    num_bytes: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    sqlite: list[str] = field(default_factory=list)
    partitions: dict[str, Partition] = field(default_factory=dict)
    encoders: Counter[str] = field(default_factory=Counter)


def examine(folder: Path, *, timeout_s: float = 2.0, advance: Advance = lambda done, total: None) -> Examined:
    """Raises sqlite3.Error where the file cannot be read at all, and OSError."""
    found = Examined()
    with SteadyFile(folder, timeout_s) as file:
        found.sqlite = [str(line) for (line,) in file.query("PRAGMA integrity_check(20)") if line != "ok"]
        if found.sqlite:
            found.faults[Fault.SQLITE] = len(found.sqlite)
        _head(file, found)
        _entries(file, found, advance)
        _ways(file, found)
        _sum(file, found)
        _changes(file, found)
        found.faults[Fault.FENCE] = sum(decode_fence(row.value) is None for row in file.rows(FENCE))
        found.faults[Fault.FOREIGN] = sum(1 for _ in foreign_rows(file))
    found.faults = Counter({fault: num for fault, num in found.faults.items() if num})
    return found


def foreign_rows(file: SteadyFile) -> Iterator[int]:
    """Row numbers of rows that were not written by this store."""
    query = "SELECT rowid, raw, mode, substr(key, 1, 1) FROM Cache"
    for rowid, raw, mode, letter in file.query(query):
        if raw != 1 or mode != 1 or letter not in _LETTERS:
            yield int(rowid)


def is_head(data: object) -> bool:
    """Whether it says whose file it is."""
    try:
        name, start = json.loads(data if isinstance(data, bytes) else b"")
        return isinstance(name, str) and isinstance(start, int)
    except (ValueError, TypeError):
        return False


def is_own(entry: Entry, key: bytes) -> bool:
    return entry_key(entry.partition, entry.entry_id) == key


def decoded(data: bytes) -> Entry | None:
    try:
        return decode_entry(data)
    except CorruptEntry:
        return None


def _head(file: SteadyFile, found: Examined) -> None:
    head = file.read(TENANT)
    if head is None and not file.count(ENTRY):
        return  # just being made
    if is_head(head):
        found.tenant = str(json.loads(head or b"")[0])
    else:
        found.faults[Fault.NO_HEAD] += 1


def _entries(file: SteadyFile, found: Examined, advance: Advance) -> None:
    total = file.count(ENTRY)
    for done, row in enumerate(file.rows(ENTRY), start=1):
        if done % _REPORT_EVERY == 0 or done == total:
            advance(done, total)
        entry = decoded(row.value)
        if entry is None:
            found.faults[Fault.DAMAGED] += 1
            continue
        if not is_own(entry, row.key):
            found.faults[Fault.MISPLACED] += 1
            continue
        found.num_entries += 1
        found.num_bytes += row.size
        if entry.partition.digest not in found.partitions:
            found.partitions[entry.partition.digest] = entry.partition
        if entry.encoder is not None:
            found.encoders[entry.encoder] += 1
        found.faults[Fault.WRONG_BYTES] += row.size != charged_bytes(row.value)
        found.faults[Fault.UNREACHABLE] += file.read(exact_key(entry.partition, entry.exact)) != row.key


def _ways(file: SteadyFile, found: Examined) -> None:
    """Where each entry has its way, others lead nowhere, or to an entry that another way leads to as well."""
    gone = found.faults[Fault.DAMAGED] + found.faults[Fault.MISPLACED]  # their ways go with them
    num_good = found.num_entries - found.faults[Fault.UNREACHABLE]
    found.faults[Fault.LOST_WAY] += max(0, file.count(EXACT) - num_good - gone)


def _sum(file: SteadyFile, found: Examined) -> None:
    ((counted,),) = file.query("SELECT COALESCE(SUM(size), 0) FROM Cache")
    kept = [value for (value,) in file.query("SELECT value FROM Settings WHERE key = 'size'")]
    found.faults[Fault.WRONG_BYTES] += kept != [counted]
    charged = "SELECT COUNT(*) FROM Cache WHERE size != 0 AND NOT (key >= ? AND key < ?)"
    ((others,),) = file.query(charged, ENTRY, after(ENTRY))
    found.faults[Fault.WRONG_BYTES] += others


def _changes(file: SteadyFile, found: Examined) -> None:
    numbers = {row.key[1:]: unpack_number(row.value) for row in file.rows(LATEST)}
    bad = {where for where, number in numbers.items() if number is None}
    for where, rows in groupby(file.rows(CHANGE), key=lambda row: row.key[1:-8]):
        last = -1
        for row in rows:
            last = int.from_bytes(row.key[-8:], "big")
            if row.value[:1] not in (b"+", b"-"):
                bad.add(where)
        if numbers.get(where) != last:
            bad.add(where)
    found.faults[Fault.CHANGES] = len(bad)
