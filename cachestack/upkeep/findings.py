"""What a check finds, and what may be done about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from cachestack.errors import CacheStackError
from cachestack.keys import Partition
from cachestack.stores.opening import StoreRef


class Severity(StrEnum):
    ERROR = "error"
    """Something is lost or damaged, or will be."""
    WARNING = "warning"
    """Something is not as it should be; nothing is lost by it."""
    NOTE = "note"
    """Worth knowing. Does not count: with nothing but notes all is well."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` says in a sentence what it means for the user, `repair` what `--repair` does (None: it can do nothing).

    `is_repaired` after a repair that went well; `outcome` is what it did, or why it could not.
    """

    severity: Severity
    check: str
    place: str
    what: str
    repair: str | None = None
    is_repaired: bool = False
    outcome: str | None = None

    @property
    def is_open(self) -> bool:
        return self.severity is not Severity.NOTE and not self.is_repaired

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


Mend = Callable[[], str | None]
"""Puts it right; returns what there is to say of it. May raise what `REPAIR_ERRORS` lists."""
REPAIR_ERRORS = (CacheStackError, OSError, sqlite3.Error)


@dataclass(frozen=True, slots=True)
class Found:
    finding: Finding
    mend: Mend | None = None


Advance = Callable[[str, int, int], None]


@dataclass(slots=True)
class Looked:
    """What checks look at, and what one check learns for the next. `now_s` is the moment when it began."""

    home: Path
    store: StoreRef
    now_s: float
    policies: str | None = None
    advance: Advance = lambda stage, done, total: None
    partitions: dict[str, Partition] = field(default_factory=dict)
    """Of the entries on disk, by their digests."""
    encoders: dict[str, int] = field(default_factory=dict)
    """How many entries each encoder has made."""
    has_unread: bool = False
    """Whether there are entries that could not be read: then not all partitions are known."""
    tenant_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def aside(self) -> Path:
        """Where things go that were damaged: nothing is deleted without a word."""
        return self.home / "aside"

    def put_aside(self, path: Path) -> Path:
        """Move it there, under a name that is free."""
        self.aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        stem = str(path.relative_to(self.home)).replace("/", "-") if path.is_relative_to(self.home) else path.name
        number = 1
        while (target := self.aside / f"{stem}.{number}").exists():
            number += 1
        path.rename(target)
        return target


Check = Callable[[Looked], Iterator[Found]]


class CannotLook(CacheStackError):
    """A check could not be made: what it would have found is not known."""
