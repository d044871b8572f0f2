"""Statistics in Redis: sums that all processes and machines add to, each batch of counts exactly once.

A batch whose fate is not known (the connection broke before the answer) is kept and sent again under its own number,
which Redis has noted if it was added. What comes meanwhile waits in one batch behind it, so a Redis that is away for
long costs no memory. A process that is killed loses what it has not sent yet.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from cachestack.errors import StoreError
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.names import Names, text_digest

REMEMBERED_S = 86_400.0
"""How long the number of a process's last batch is kept."""

Sums = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class _Batch:
    number: int
    sums: Sums


class RedisSums:
    """What `cachestack.stats.Stats` keeps."""

    def __init__(self, link: Link, prefix: str = "cachestack:", clock: Callable[[], float] = time.time) -> None:
        self._link = link
        self._names = Names(prefix.encode())
        self._clock = clock
        self._process = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._number = 0
        self._tried: _Batch | None = None
        self._waiting: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, sums: Sums) -> None:
        """Add to what is kept. Where Redis does not answer, the sums are kept here and added later, never twice."""
        with self._lock:
            for tenant, new in sums.items():
                self._waiting[tenant].update(new)
            with suppress(StoreError):
                self._send()

    def read(self) -> Sums:
        """Every tenant's sums. Raises StoreError."""
        with self._lock:
            self._send()
        names = self._link.run(lambda client: client.hvals(self._names.counted))
        tenants = [name.decode("utf-8", "surrogatepass") for name in names]
        rows = self._link.pipelined([("HGETALL", self._names.sums(tenant)) for tenant in tenants])
        return {tenant: _decoded(row) for tenant, row in zip(tenants, rows, strict=True)}

    def close(self) -> None:
        """Send what is not sent yet, or lose it; the connections are its own."""
        with self._lock, suppress(StoreError):
            self._send()
        self._link.close()

    def _send(self) -> None:
        if self._tried is not None:
            self._write(self._tried)
        if self._waiting:
            self._number += 1
            self._tried = _Batch(self._number, self._waiting)
            self._waiting = defaultdict(Counter)
            self._write(self._tried)

    def _write(self, batch: _Batch) -> None:
        tenants = list(batch.sums)
        self._link.pipelined(
            [
                ("HSET", self._names.counted, text_digest(tenant), tenant.encode("utf-8", "surrogatepass"))
                for tenant in tenants
            ]
        )
        self._link.script(
            "add",
            [self._names.batches, *map(self._names.sums, tenants)],
            [
                *(self._process, batch.number, repr(self._clock()), REMEMBERED_S),
                *(json.dumps(batch.sums[tenant], allow_nan=False) for tenant in tenants),
            ],
        )
        self._tried = None


def _decoded(row: Mapping[bytes, bytes]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, value in row.items():
        number = float(value)
        sums[name.decode()] = int(number) if number.is_integer() and b"." not in value else number
    return sums
