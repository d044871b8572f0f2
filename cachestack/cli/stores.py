"""The store that a command works on: what `CACHESTACK_STORE` names, else the entries in `CACHESTACK_HOME`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cachestack.folders import home_folder
from cachestack.stores.opening import DiskRef, open_store, parse_ref

if TYPE_CHECKING:
    from cachestack.stores.disk import DiskStore
    from cachestack.stores.tiered import TieredStore


@contextmanager
def opened_store(ref: str | None = None) -> Iterator[DiskStore | TieredStore]:
    store = open_store(ref, home_folder())
    try:
        yield store
    finally:
        store.close()


def place_of_entries() -> str:
    """Its name for eyes, without a password."""
    home = home_folder()
    found = parse_ref(None, home)
    return str(home) if isinstance(found, DiskRef) and found.folder.parent == home else found.shown
