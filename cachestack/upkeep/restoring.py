"""A backup into a state folder: an empty one, or, where it is asked for, into what is there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cachestack.access.key_file import FOLDER as ACCESS_FOLDER
from cachestack.access.key_file import NAME as KEYS_NAME
from cachestack.access.key_file import KeyFile, create_file
from cachestack.errors import UsageError
from cachestack.exchange import Imported, import_entries
from cachestack.semantic.known_encoders import KnownEncoders
from cachestack.stores.sums import STATS_FOLDER, SumsFile
from cachestack.upkeep.backups import DENIED, ENCODERS_FOLDER, ENTRIES, KEYS, SECRET, STATISTICS, unpack
from cachestack.upkeep.denied_pairs import add_denied
from cachestack.upkeep.findings import Advance
from cachestack.upkeep.moving import Movable


@dataclass(frozen=True, slots=True)
class Restored:
    """`num_keys`: those that were not there; None where the backup has no keys. `left_alone`: what was there already
    and is not mixed with the backup's: `statistics`, `secret`."""

    made_at_s: float
    entries: Imported
    num_keys: int | None
    left_alone: tuple[str, ...]


def restore(
    path: Path,
    home: Path,
    store: Movable,
    *,
    max_bytes_of: Callable[[str], int | None],
    now_s: float,
    force: bool = False,
    advance: Advance = lambda stage, done, total: None,
) -> Restored:
    """The whole file is checked before anything is done. Without `force` there must be nothing yet. With it, entries
    follow the rules of an import (the newer stays), keys are added, revoked ones stay revoked and epochs never fall,
    and statistics or a secret that are there stay. A run that was cut off is repeated with `force`.

    Raises InputFileError, UsageError, StoreError, or OSError.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".restore-") as work:
        folder = Path(work)
        manifest = unpack(path, folder, advance)
        sums, has_secret = _sums(home), (home / "secret").exists()
        if not force:
            _check_empty(home, store, has_sums=bool(sums))
        if (folder / DENIED).exists():  # before the entries: none is matched before what is wrong with it is known
            add_denied(home, json.loads((folder / DENIED).read_bytes()), lambda: now_s)
        entries = import_entries(
            folder / ENTRIES,
            store,
            KnownEncoders(home / ENCODERS_FOLDER),
            max_bytes_of=max_bytes_of,
            now_s=now_s,
            advance=lambda done, total: advance("entries", done, total),
        )
        left_alone = []
        if (folder / STATISTICS).exists() and not _add_sums(home, json.loads((folder / STATISTICS).read_bytes()), sums):
            left_alone.append("statistics")
        if (folder / SECRET).exists():
            if has_secret:
                left_alone.append("secret")
            else:
                os.link(folder / SECRET, home / "secret")
        num_keys = _add_keys(home, folder / KEYS) if (folder / KEYS).exists() else None
    return Restored(float(manifest["made_at_s"]), entries, num_keys, tuple(left_alone))


def _check_empty(home: Path, store: Movable, *, has_sums: bool) -> None:
    there = [f"{num:,} entries"] if (num := store.size().num_entries) else []
    there += ["keys"] if (home / ACCESS_FOLDER / KEYS_NAME).exists() else []
    there += ["statistics"] if has_sums else []
    if there:
        raise UsageError(
            f"there is something already ({', '.join(there)}): --force adds the backup to it; what is newer stays, and "
            "so do statistics and a secret that are there"
        )


def _sums(home: Path) -> Mapping[str, Mapping[str, float]]:
    record = SumsFile(home / STATS_FOLDER)
    try:
        return record.read()
    finally:
        record.close()


def _add_sums(home: Path, sums: Mapping[str, Mapping[str, float]], there: Mapping[str, Mapping[str, float]]) -> bool:
    """False where there are counts already: adding to them might count the same requests twice."""
    if there or not sums:
        return not there
    record = SumsFile(home / STATS_FOLDER)
    try:
        record.add(sums)
    finally:
        record.close()
    return True


def _add_keys(home: Path, theirs: Path) -> int:
    source = KeyFile(theirs)
    try:
        _, records, epochs = source.read()
    finally:
        source.close()
    path = home / ACCESS_FOLDER / KEYS_NAME
    if not path.exists():
        create_file(path)
    target = KeyFile(path)
    try:
        return target.absorb(records, epochs)
    finally:
        target.close()
