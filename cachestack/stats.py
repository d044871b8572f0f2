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
from cachestack.tally import HitKind, kind_of_hit, sums_of_answer, sums_of_hits, sums_of_trace

_REST_S = 10.0
"""How long a record that failed is left alone: it may have failed after seconds of waiting, in a request's time."""
_MAX_HITS = 4096
"""So many exact hits are remembered one by one at most, before they are added up."""

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
        self._read: dict[str, Counter[str]] | None = None  # the record as last read, with what was added since
        self._hits: list[tuple[str, HitKind, float]] = []  # not yet among the sums
        self._warned = False
        self._process = os.getpid()

    @property
    def is_due(self) -> bool:
        """Whether what is counted next is to be flushed."""
        return self._record is not None and self._clock() - self._flushed_at >= self._flush_every_s

    def count(self, tenant: str, **sums: float) -> None:
        """Add to a tenant's sums; a double underscore in a name stands for a dot."""
        self._flush_if(self._add(tenant, {name.replace("__", "."): value for name, value in sums.items()}))

    def count_answer(self, tenant: str, response: Response, prices: PricePolicy) -> bool:
        """Count an answered request. True: the caller is to see that `flush` is called, which may wait for a file."""
        if (kind := kind_of_hit(response.trace, response.usage, prices)) is None:
            return self._add(tenant, sums_of_answer(response.trace, response.usage, prices))
        self.count_hit(tenant, kind, response.trace.seconds)
        return self.is_due

    def count_hit(self, tenant: str, kind: HitKind, seconds: float) -> None:
        """Count an exact hit with nothing besides. Of one kind best the same object each time."""
        self._after_fork()
        with self._lock:
            self._hits.append((tenant, kind, seconds))
            if len(self._hits) >= _MAX_HITS:
                self._add_up()

    def count_failure(self, tenant: str, trace: Trace, *, cancelled: bool) -> None:
        """Count a request that ended without an answer."""
        failure = Counter({"cancelled" if cancelled else "failed": 1})
        self._flush_if(self._add(tenant, sums_of_trace(trace) + failure))

    def count_work(self, tenant: str, sums: Mapping[str, float]) -> None:
        """Add what was done for a tenant beside its requests."""
        self._flush_if(self._add(tenant, sums))

    def snapshot(self) -> Snapshot:
        """What has been counted by now, by all processes that share the record.

        No sum is ever less than in a snapshot before, whoever of these processes took it.
        """
        self._after_fork()
        merged: dict[str, Counter[str]] = defaultdict(Counter)
        with self._flushing:
            is_pending = not self._flush() if self._record is not None else True
            for tenant, sums in self._read_record().items():
                merged[tenant].update(sums)
            if is_pending:  # what came since a flush is left out: the others do not see it yet either
                with self._lock:
                    self._add_up()
                    for tenant, pending in self._sums.items():
                        merged[tenant].update(pending)
        return Snapshot(MappingProxyType({tenant: tenant_stats(sums) for tenant, sums in merged.items()}))

    def flush(self, *, wait: bool = True) -> None:
        """Write what is new to the record. A record that fails keeps the sums in memory, with one warning.

        Without `wait` nothing is written where another thread is writing or reading: a request has better to do.
        """
        self._after_fork()
        if self._record is None or not self._flushing.acquire(blocking=wait):
            return
        try:
            self._flush()
        finally:
            self._flushing.release()

    def close(self) -> None:
        self.flush()
        if self._record is not None:
            self._record.close()

    def _add(self, tenant: str, sums: Mapping[str, float]) -> bool:
        """Whether it is time to flush."""
        self._after_fork()
        with self._lock:
            self._sums[tenant].update(sums)
            return self._record is not None and self._clock() - self._flushed_at >= self._flush_every_s

    def _add_up(self) -> None:
        """With the lock held."""
        alike: dict[tuple[str, int], tuple[HitKind, list[float]]] = {}  # by identity: equal ones add up all the same
        for tenant, kind, seconds in self._hits:
            alike.setdefault((tenant, id(kind)), (kind, []))[1].append(seconds)
        for (tenant, _), (kind, all_seconds) in alike.items():
            self._sums[tenant].update(sums_of_hits(kind, all_seconds))
        self._hits.clear()

    def _flush_if(self, due: bool) -> None:
        if due:
            self.flush(wait=False)

    def _flush(self) -> bool:
        """Whether the record now has all that was counted before. `_flushing` is held."""
        assert self._record is not None, "there is something to write to"
        with self._lock:
            self._add_up()
            pending, self._sums = self._sums, defaultdict(Counter)
            self._flushed_at = self._clock()
        if not pending:
            return True
        try:
            self._record.add(pending)
        except StoreError as error:
            self._warn(error)
            with self._lock:
                self._flushed_at = self._clock() + _REST_S
                for tenant, sums in pending.items():
                    self._sums[tenant].update(sums)
            return False
        if self._read is not None:
            for tenant, sums in pending.items():
                self._read.setdefault(tenant, Counter()).update(sums)
        return True

    def _read_record(self) -> Mapping[str, Mapping[str, float]]:
        """One that cannot be read for now is taken to be as it was."""
        if self._record is None:
            return {}
        try:
            self._read = {tenant: Counter(sums) for tenant, sums in self._record.read().items()}
        except StoreError as error:
            self._warn(error)
        return self._read or {}

    def _after_fork(self) -> None:
        """In a forked process: what was not flushed is the parent's to write, and its locks may be held for ever."""
        if os.getpid() != self._process:
            self._process = os.getpid()
            self._lock, self._flushing = threading.Lock(), threading.Lock()
            self._sums = defaultdict(Counter)
            self._hits = []

    def _warn(self, error: StoreError) -> None:
        if not self._warned:
            self._warned = True
            log.warning("statistics cannot be kept on disk and stay in memory: %s", error)
