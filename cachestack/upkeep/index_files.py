"""Snapshots and journals of the index: whether they are whole, and whether the entries go on from where they end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cachestack.semantic.group_files import leads_on
from cachestack.semantic.journal import read_journals, remove_journals, steps_from
from cachestack.semantic.snapshots import (
    INDEX_FOLDER,
    SUFFIX,
    Owner,
    UnusableSnapshot,
    owner_of,
    read_snapshot,
)
from cachestack.stores.disk import DiskStore
from cachestack.stores.opening import ENTRIES_FOLDER, DiskRef
from cachestack.upkeep.findings import CannotLook, Finding, Found, Looked, Severity

CHECK = "index"
JOURNAL = ".journal"
_REPAIR = "removes it, and the journals that go with it; the index reads the entries when it is next searched"


def check_index_files(looked: Looked) -> Iterator[Found]:
    """After the entries' files. Raises CannotLook."""
    folder = looked.home / INDEX_FOLDER
    if not folder.is_dir():
        return
    entries = looked.store.folder if isinstance(looked.store, DiskRef) else looked.home / ENTRIES_FOLDER
    store = DiskStore(entries)
    try:
        snapshots = sorted(folder.glob(f"*{SUFFIX}"))
        stems = {path.name.removesuffix(SUFFIX) for path in snapshots}
        for number, path in enumerate(snapshots, start=1):
            yield from _of_snapshot(looked, store, path)
            looked.advance("index files", number, len(snapshots))
        for path in sorted(folder.glob(f"*{JOURNAL}")):
            if path.name.split(".")[0] not in stems:
                what = "a journal without a snapshot that it goes on from: it is never read, and holds vectors and ids"
                finding = Finding(Severity.WARNING, CHECK, str(path), what, "removes it")
                yield Found(finding, partial(_unlink, path))
    except OSError as error:
        raise CannotLook(f"{folder} cannot be read: {error}") from error
    finally:
        store.close()


def _of_snapshot(looked: Looked, store: DiskStore, path: Path) -> Iterator[Found]:
    try:
        owner = owner_of(path)
        if owner.file_name != path.name:
            raise UnusableSnapshot("it has the name of another one")
        snapshot = read_snapshot(path.parent, owner)
    except FileNotFoundError:
        return
    except (UnusableSnapshot, ValueError) as error:
        what = f"a snapshot that cannot be used ({error}): the next start reads all entries of its partition again"
        yield Found(Finding(Severity.WARNING, CHECK, str(path), what, _REPAIR), partial(_forget, path, None))
        return
    if snapshot is None:
        return
    journals = read_journals(path.parent, owner)
    latest, last_id = snapshot.latest, snapshot.last_id
    for step in steps_from(journals, latest):
        latest, last_id = step.latest, step.last_id
    partition = looked.partitions.get(owner.partition)
    if partition is None:
        if not looked.has_unread:
            what = "a snapshot of a partition that has no entries any more: it still holds their vectors and ids"
            yield Found(Finding(Severity.WARNING, CHECK, str(path), what, _REPAIR), partial(_forget, path, owner))
    elif not leads_on(store, partition, latest, last_id):
        what = (
            f"a snapshot of tenant {partition.tenant!r} from which the entries do not go on: "
            "the next start reads all entries of its partition again"
        )
        yield Found(Finding(Severity.WARNING, CHECK, str(path), what, _REPAIR), partial(_forget, path, owner))
    for journal in journals:
        if journal.is_torn:
            what = (
                "a journal whose last record is not whole: a process was killed while it wrote it, or is writing it "
                "now; what is whole is used, and the next snapshot replaces it"
            )
            yield Found(Finding(Severity.NOTE, CHECK, str(journal.path), what))


def _forget(path: Path, owner: Owner | None) -> str | None:
    path.unlink(missing_ok=True)
    if owner is not None:
        remove_journals(path.parent, owner, None)
    else:
        for journal in path.parent.glob(f"{path.name.removesuffix(SUFFIX)}.*{JOURNAL}"):
            journal.unlink(missing_ok=True)
    return None


def _unlink(path: Path) -> str | None:
    path.unlink(missing_ok=True)
    return None
