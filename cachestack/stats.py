"""Statistics per tenant: counters that add up, kept across restarts, right under threads and processes.

Everything is a sum: a flat mapping from names to numbers. Each process adds to its own and now and then merges what is
new into the shared record in one transaction, so nothing is counted twice and at most `flush_every_s` seconds of
counts are lost when a process is killed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

from cachestack.decisions import Response, Trace
from cachestack.errors import StoreError
from cachestack.policy import PricePolicy
from cachestack.snapshot import Snapshot, tenant_stats
from cachestack.tally import sums_of_answer, sums_of_trace

_REST_S = 10.0
"""How long a record that failed is left alone: it may have failed after seconds of waiting, in a request's time."""

log = logging.getLogger("cachestack")


class Record(Protocol):
    """Where sums are kept between processes."""

    def add(self, sums: Mapping[str, Mapping[str, float]]) -> None:
        """Add to the kept sums in one transaction. Raises StoreError: then nothing was added."""
        ...

    def read(self) -> Mapping[str, Mapping[str, float]]: ...

    def close(self) -> None: ...


class Stats:
    """Counts requests. `record` is where sums survive the process; None keeps them in memory."""

    def __init__(
        self,
        record: Record | None = None,
        *,
        flush_every_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._record = record
        self._flush_every_s = flush_every_s
        self._clock = clock
        self._flushed_at = clock()
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._sums: dict[str, Counter[str]] = defaultdict(Counter)
        self._warned = False
        self._process = os.getpid()

    def count(self, tenant: str, **sums: float) -> None:
        """Add to a tenant's sums; a double underscore in a name stands for a dot."""
        self._add(tenant, {name.replace("__", "."): value for name, value in sums.items()})

    def count_answer(self, tenant: str, response: Response, prices: PricePolicy) -> None:
        """Count an answered request."""
        self._add(tenant, sums_of_answer(response.trace, response.usage, prices))

    def count_failure(self, tenant: str, trace: Trace, *, cancelled: bool) -> None:
        """Count a request that ended without an answer."""
        self._add(tenant, sums_of_trace(trace) + Counter({"cancelled" if cancelled else "failed": 1}))

    def snapshot(self) -> Snapshot:
        """What is kept plus what is not yet flushed, all processes that share the record included."""
        self.flush()
        merged: dict[str, Counter[str]] = defaultdict(Counter)
        if self._record is not None:
            try:
                for tenant, sums in self._record.read().items():
                    merged[tenant].update(sums)
            except StoreError as error:
                self._warn(error)
        with self._lock:
            for tenant, pending in self._sums.items():
                merged[tenant].update(pending)
        return Snapshot(MappingProxyType({tenant: tenant_stats(sums) for tenant, sums in merged.items()}))

    def flush(self) -> None:
        """Write what is new to the record. A record that fails keeps the sums in memory, with one warning."""
        self._after_fork()
        if self._record is None:
            return
        with self._flushing:
            with self._lock:
                pending, self._sums = self._sums, defaultdict(Counter)
                self._flushed_at = self._clock()
            if not pending:
                return
            try:
                self._record.add(pending)
            except StoreError as error:
                self._warn(error)
                with self._lock:
                    self._flushed_at = self._clock() + _REST_S
                    for tenant, sums in pending.items():
                        self._sums[tenant].update(sums)

    def close(self) -> None:
        self.flush()
        if self._record is not None:
            self._record.close()

    def _add(self, tenant: str, sums: Mapping[str, float]) -> None:
        self._after_fork()
        with self._lock:
            self._sums[tenant].update(sums)
            due = self._clock() - self._flushed_at >= self._flush_every_s
        if due:
            self.flush()

    def _after_fork(self) -> None:
        """In a forked process: what was not flushed is the parent's to write, and its locks may be held for ever."""
        if os.getpid() != self._process:
            self._process = os.getpid()
            self._lock, self._flushing = threading.Lock(), threading.Lock()
            self._sums = defaultdict(Counter)

    def _warn(self, error: StoreError) -> None:
        if not self._warned:
            self._warned = True
            log.warning("statistics cannot be kept on disk and stay in memory: %s", error)
