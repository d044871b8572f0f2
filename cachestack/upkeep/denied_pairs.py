"""What error budgets have found wrong, from one state folder to another: whoever takes the entries takes it along."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from cachestack.errors import StoreError
from cachestack.semantic.budget.keeper import BUDGET_FOLDER, Keeper
from cachestack.semantic.budget.pairs import Pair


def read_denied(home: Path) -> dict[str, dict[str, Any]]:
    """By tenant: `pairs`, each the question's exact key, the entry's id and when the entry is certainly gone; and from
    when on entries are trusted. Each file as of one moment. Raises StoreError."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((home / BUDGET_FOLDER).glob("*.sqlite")):
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as file:
                file.execute("BEGIN")
                tenants = file.execute("SELECT name, trusted_from_s FROM tenant").fetchall()
                pairs = file.execute("SELECT exact, entry, until_s FROM pairs WHERE wrong").fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"the error budget {path} cannot be read: {error}") from error
        for name, trusted_from_s in tenants:
            found[str(name)] = {"trusted_from_s": trusted_from_s, "pairs": pairs}
    return found


def add_denied(home: Path, denied: Mapping[str, Mapping[str, Any]], clock: Callable[[], float]) -> None:
    """To what is denied there. Raises StoreError."""
    for tenant, said in denied.items():
        pairs = [Pair(exact, entry_id, True, until_s) for exact, entry_id, until_s in said["pairs"]]
        keeper = Keeper(home / BUDGET_FOLDER, tenant, clock)
        try:
            keeper.absorb(pairs, float(said["trusted_from_s"]))
        except sqlite3.Error as error:
            raise StoreError(f"the error budget of tenant {tenant!r} cannot be written: {error}") from error
        finally:
            keeper.close()
