"""`cachestack bench store`: puts and look-ups of each store, exact and by meaning, by one process and by four.

Each look-up is checked: it must find the very entry. Vectors are drawn (see store_material.py), so that no model is
needed and nothing but the store and its index is measured.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cachestack.bench.machine import Machine
from cachestack.bench.ratios import Ratio, paired_ratio
from cachestack.bench.semantic_material import Population
from cachestack.bench.semantic_report import Times
from cachestack.bench.store_material import population
from cachestack.bench.store_report import Reads, StoreFigures, StoreReport
from cachestack.bench.store_subject import NAMES, PREFIX, SHARED, Subject, opened
from cachestack.bench.store_work import asked, bare_get, exact, semantic
from cachestack.entries import Entry
from cachestack.errors import StoreError
from cachestack.models.manifest import Report, report_nothing

_MODULE = "cachestack.bench.store_work"


@dataclass(frozen=True, slots=True)
class Settings:
    sizes: tuple[int, ...] = (10_000, 100_000)
    num_reads: int = 2000
    num_searches: int = 500
    seconds: float = 2.0
    num_processes: tuple[int, ...] = (1, 4)
    quick: bool = False
    full: bool = False


FULL = Settings(sizes=(10_000, 100_000, 1_000_000), full=True)
QUICK = Settings((200,), 40, 10, 0.1, (1, 4), quick=True)
Work = Callable[[Subject, Entry], bool]


def bench_store(
    settings: Settings,
    machine: Machine,
    *,
    redis_url: str | None,
    redis_version: str | None,
    report: Report = report_nothing,
    timer: Callable[[], float] = time.perf_counter,
) -> StoreReport:
    """Without `redis_url` Redis is left out. Raises StoreError. What it puts into a Redis is removed at the end."""
    began = timer()
    found: dict[str, dict[int, StoreFigures]] = {}
    for name in NAMES if redis_url else NAMES[:2]:
        for size in settings.sizes:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="cachestack-bench-")))
                if redis_url:
                    stack.callback(_forget, redis_url)
                figures = _Bench(name, size, folder, redis_url, settings, report, timer).run()
            found.setdefault(name, {})[size] = figures
    return StoreReport(found, redis_version, machine, settings.quick, settings.full, timer() - began)


@dataclass(frozen=True, slots=True)
class _Bench:
    """One store at one size."""

    name: str
    size: int
    folder: Path
    redis_url: str | None
    settings: Settings
    report: Report
    timer: Callable[[], float]

    def run(self) -> StoreFigures:
        material = population(self.size)
        with opened(self.name, self.folder, self.redis_url) as subject:
            put_s = self._fill(subject, material)
            reads = asked(material, self.settings.num_reads, 1, common_only=False)
            searches = asked(material, self.settings.num_searches, 2, common_only=True)
            semantic(subject, searches[0])  # what is loaded or built once is not the search's
            settle = getattr(subject.index, "settle", None)
            if settle is not None:
                settle()
            exact_s, exact_trips, exact_wrong = self._timed(subject, exact, reads)
            search_s, search_trips, search_wrong = self._timed(subject, semantic, searches)
            over_get = self._over_get(subject, reads) if self.name == "redis" else None
            per_s = {1: len(exact_s) / sum(exact_s)}, {1: len(search_s) / sum(search_s)}
        wrong = [exact_wrong, search_wrong]
        if self.name in SHARED:
            for place, kind in enumerate(("exact", "semantic")):
                for number in self.settings.num_processes:
                    per_s[place][number], num_wrong = self._together(kind, number)
                    wrong[place] += num_wrong
        return StoreFigures(
            put=Times.of(put_s),
            puts_per_s=len(put_s) / sum(put_s),
            exact=Reads(Times.of(exact_s), per_s[0], exact_trips, wrong[0]),
            semantic=Reads(Times.of(search_s), per_s[1], search_trips, wrong[1]),
            over_get=over_get,
        )

    def _fill(self, subject: Subject, material: Population) -> list[float]:
        put_s = []
        for number in range(self.size):
            entry = material.entry(number)
            began = self.timer()
            subject.store.put(entry)
            put_s.append(self.timer() - began)
            if number % 500 == 0:
                self.report(f"{self.name}, {self.size:,} entries", number, self.size)
        self.report(f"{self.name}, {self.size:,} entries", self.size, self.size)
        return put_s

    def _timed(self, subject: Subject, work: Work, entries: list[Entry]) -> tuple[list[float], float, int]:
        """The times, the round trips a call, and how many calls found anything else."""
        seconds, num_wrong, trips = [], 0, subject.num_trips()
        for entry in entries:
            began = self.timer()
            is_right = work(subject, entry)
            seconds.append(self.timer() - began)
            num_wrong += not is_right
        return seconds, (subject.num_trips() - trips) / len(entries), num_wrong

    def _over_get(self, subject: Subject, entries: list[Entry]) -> Ratio:
        """Sums of 50 reads each, by turns, another one first each time."""
        ours: list[float] = []
        bare: list[float] = []
        step = min(50, len(entries))
        for start in range(0, len(entries) - step + 1, step):
            some = entries[start : start + step]
            turns: list[tuple[Work, list[float]]] = [(exact, ours), (bare_get, bare)]
            for work, into in turns if (start // step) % 2 else reversed(turns):
                into.append(sum(self._timed(subject, work, some)[0]))
        return paired_ratio(ours, bare)

    def _together(self, kind: str, num_processes: int) -> tuple[float, int]:
        """Calls a second of so many processes that begin together, and how many calls were wrong."""
        seconds = self.settings.seconds
        command = [sys.executable, "-m", _MODULE, self.name, str(self.folder), self.redis_url or "", str(self.size)]
        workers = [
            subprocess.Popen(
                [*command, kind, str(seconds), str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for seed in range(num_processes)
        ]
        try:
            for worker in workers:
                assert worker.stdout is not None
                if worker.stdout.readline() != "ready\n":
                    raise StoreError(f"a process of the benchmark did not start: {self.name}")
            outputs = _begin_and_wait(workers)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        counts = [tuple(map(int, output.split())) for output in outputs]
        return sum(calls for calls, _ in counts) / seconds, sum(wrong for _, wrong in counts)


def _begin_and_wait(workers: list[subprocess.Popen[str]]) -> list[str]:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    return [worker.communicate()[0] for worker in workers]


def _forget(redis_url: str) -> None:
    """Remove what the benchmark has put."""
    from cachestack.stores.redis.link import Link

    link = Link(redis_url, deadline_s=30.0)
    try:
        for key in link.client.scan_iter(f"{PREFIX}*", count=1000):
            link.client.unlink(key)
    finally:
        link.close()


def version_of(redis_url: str) -> str:
    """Name and version of the server. Raises StoreError."""
    from cachestack.stores.redis.link import Link

    link = Link(redis_url, deadline_s=5.0)
    try:
        info: Mapping[str, str] = link.run(lambda client: client.info("server"))
        return f"Redis {info['redis_version']}"
    finally:
        link.close()
