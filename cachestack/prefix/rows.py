"""Kept logits: the row after a prompt's last token, so that the same question asked again needs no forward pass.

A row is found by the SHA-256 of all of the prompt's token ids, chained from the model's fingerprint and the tenant's
salt like the hashes of the pool's blocks; on a hit the ids themselves are compared. What is kept is opaque here. It
comes from a pass that has ended, with finite values, of a model that did not change meanwhile.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cachestack.keys import block_hashes, tenant_salt
from cachestack.prefix.principals import Principals

Hasher = Callable[[Sequence[int], int, str, bytes], Iterator[bytes]]


@dataclass(slots=True, eq=False)
class _Kept:
    ids: array[int]
    payload: Any
    num_bytes: int
    tenant: str
    principals: Principals = field(default_factory=Principals)


@dataclass(frozen=True, slots=True)
class RowSizes:
    """What is kept: `num_bytes` of at most `max_bytes`."""

    num_rows: int
    num_bytes: int
    max_bytes: int


class LogitRows:
    """Thread-safe. Within its budget the least recently used rows go first; one that cannot fit is not kept.

    `secret` salts the hashes by tenant, as in the prefix layer. The token ids count towards the budget.
    """

    def __init__(self, max_bytes: int, secret: bytes, hasher: Hasher = block_hashes) -> None:
        self._max_bytes = max_bytes
        self._secret = secret
        self._hasher = hasher
        self._lock = threading.Lock()
        self._rows: OrderedDict[bytes, _Kept] = OrderedDict()  # oldest use first
        self._num_bytes = 0
        self._epoch = 0

    @property
    def epoch(self) -> int:
        """Changes with every invalidation. Read it before a pass, and give it to `keep` after."""
        return self._epoch

    def find(self, ids: Sequence[int], *, fingerprint: str, tenant: str, user: str | None = None) -> Any | None:
        """The payload kept for exactly these tokens, or None. Counts as a use, by this user."""
        key = self._key(ids, fingerprint, tenant)
        with self._lock:
            row = self._rows.get(key)
            if row is None or row.tenant != tenant or row.ids != array("I", ids):
                return None
            self._rows.move_to_end(key)
            row.principals.add(user, len(ids))
            return row.payload

    def keep(
        self,
        ids: Sequence[int],
        payload: Any,
        num_bytes: int,
        *,
        fingerprint: str,
        tenant: str,
        user: str | None = None,
        epoch: int,
    ) -> bool:
        """Keep a finished pass's row. False where it does not fit, or where something was invalidated since `epoch`.

        `num_bytes`: the memory that the payload holds on to.
        """
        key = self._key(ids, fingerprint, tenant)
        row = _Kept(array("I", ids), payload, num_bytes, tenant)
        row.num_bytes += sys.getsizeof(row.ids)
        with self._lock:
            if row.num_bytes > self._max_bytes or epoch != self._epoch:
                return False
            before = self._rows.get(key)
            if before is not None and before.ids == row.ids and before.tenant == tenant:
                before.principals.add(user, len(ids))  # made at the same time; the first one's numbers stay
                self._rows.move_to_end(key)
                return True
            if before is not None:  # another prompt with the same hash
                self._drop(key)
            while self._num_bytes + row.num_bytes > self._max_bytes:
                self._drop(next(iter(self._rows)))
            row.principals.add(user, len(ids))
            self._rows[key] = row
            self._num_bytes += row.num_bytes
            return True

    def invalidate(self, tenant: str | None, user: str | None = None) -> int:
        """Forget a tenant's rows, or those that no other principal has asked for than `user`; returns how many.

        Without a tenant, those of all. A row that is being computed meanwhile is not kept afterwards.
        """
        with self._lock:
            self._epoch += 1
            gone = [key for key, row in self._rows.items() if tenant in (None, row.tenant) and _is_left(row, user)]
            for key in gone:
                self._drop(key)
            return len(gone)

    def sizes(self) -> RowSizes:
        with self._lock:
            return RowSizes(len(self._rows), self._num_bytes, self._max_bytes)

    def check_integrity(self) -> None:
        """Raises AssertionError with what is wrong: for tests."""
        with self._lock:
            held = sum(row.num_bytes for row in self._rows.values())
            assert self._num_bytes == held, f"{self._num_bytes} bytes counted, {held} held"
            assert held <= self._max_bytes, f"{held} bytes held, {self._max_bytes} allowed"
            for row in self._rows.values():
                assert row.principals.reach or row.principals.own_reach, "a row belongs to nobody"

    def _key(self, ids: Sequence[int], fingerprint: str, tenant: str) -> bytes:
        # One block of the prompt's own length: its chain begins with that length too.
        return next(self._hasher(ids, len(ids), fingerprint, tenant_salt(self._secret, tenant)))

    def _drop(self, key: bytes) -> None:
        self._num_bytes -= self._rows.pop(key).num_bytes


def _is_left(row: _Kept, user: str | None) -> bool:
    """Whether a row goes with this user (None: with the whole tenant). The user's name goes in any case."""
    if user is None:
        return True
    named = row.principals.reach.pop(user, None) is not None
    return named and not row.principals.reach and not row.principals.own_reach
