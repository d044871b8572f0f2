"""`cachestack top`: what happens now, tenant by tenant."""

from __future__ import annotations

import json as json_module
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachestack.cli.output import JsonOption, cell, plain_table, print_json, print_table
from cachestack.folders import home_folder
from cachestack.snapshot import TenantStats, tenant_stats
from cachestack.stores.opening import open_sums

if TYPE_CHECKING:
    from rich.table import Table

WINDOW_S = 60.0
MAX_ROWS = 30
ALL = ""
"""All tenants together, among the tenants: none is called so."""
Sums = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Frame:
    """What was counted in the last `seconds` (`recent`) and since statistics were begun (`total`), by tenant."""

    seconds: float
    recent: Mapping[str, TenantStats]
    total: Mapping[str, TenantStats]

    def as_dict(self) -> dict[str, Any]:
        return {
            "window_s": round(self.seconds, 3),
            "all": self._figures(ALL),
            "tenants": {name: self._figures(name) for name in self.total if name != ALL},
        }

    def _figures(self, name: str) -> dict[str, Any]:
        recent = self.recent[name]
        return {
            "requests_per_s": recent.requests / self.seconds if self.seconds else 0.0,
            "recent": recent.as_dict(),
            "total": self.total[name].as_dict(),
        }


def command(
    once: Annotated[bool, typer.Option("--once", help="Look for one interval, print one frame, and end.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.05, help="Seconds between frames.")] = 2.0,
    json: JsonOption = False,
) -> None:
    """Requests a second, hit rates by layer, latencies and what was saved, of all processes on CACHESTACK_HOME.

    Figures are of the last 60 seconds, `saved` since statistics were begun. Processes write what they count about once
    a second. Without --once, --json prints a line a frame. Ctrl-C ends it.
    """
    record = open_sums(None, home_folder())
    try:
        shown = frames(record.read, interval)
        if once:
            frame = next(shown)
            if json:
                print_json(frame.as_dict())
            else:
                print_table(table_of(frame))
        elif json or not sys.stdout.isatty():
            for frame in shown:
                if json:
                    sys.stdout.write(json_module.dumps(frame.as_dict()) + "\n")
                    sys.stdout.flush()
                else:
                    print_table(table_of(frame))
        else:
            _live(record.read, interval)
    finally:
        record.close()


def frames(
    read: Callable[[], Sums],
    interval_s: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Frame]:
    """A frame each `interval_s`, without end; the first one after one interval."""
    readings: deque[tuple[float, Sums]] = deque([(clock(), read())])
    while True:
        sleep(interval_s)
        readings.append((clock(), read()))
        while len(readings) > 2 and readings[-1][0] - readings[0][0] > WINDOW_S:
            readings.popleft()
        yield _frame(readings[0], readings[-1])


def _frame(first: tuple[float, Sums], last: tuple[float, Sums]) -> Frame:
    before, now = _with_all(first[1]), _with_all(last[1])
    recent = {name: _since(before.get(name, {}), sums) for name, sums in now.items()}
    order = sorted(
        now,
        key=lambda name: (name != ALL, -recent[name].get("requests", 0), -now[name].get("requests", 0), name),
    )
    return Frame(
        last[0] - first[0],
        {name: tenant_stats(recent[name]) for name in order},
        {name: tenant_stats(now[name]) for name in order},
    )


def _with_all(sums: Sums) -> dict[str, Mapping[str, float]]:
    total: Counter[str] = Counter()
    for of_tenant in sums.values():
        total.update(of_tenant)
    return {**sums, ALL: total}


def _since(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Statistics that were begun anew in between count from 0."""
    return {name: value - (was if (was := before.get(name, 0)) <= value else 0) for name, value in now.items()}


def table_of(frame: Frame) -> Table:
    table = plain_table(
        "tenant", "req/s", "requests", "exact", "meaning", "prefix", "errors", "p50", "p95", "p99", "saved",
        title=f"cachestack top · last {frame.seconds:.3g} s",
    )  # fmt: skip
    for name in list(frame.total)[:MAX_ROWS]:
        recent, total = frame.recent[name], frame.total[name]
        latency = recent.latency_s
        exact = recent.semantic.hits.get("exact", 0)
        table.add_row(
            cell(name or "all"),
            f"{recent.requests / frame.seconds:.1f}" if frame.seconds else "–",
            f"{total.requests:,}",
            _share(exact, recent.requests),
            _share(recent.semantic.num_hits - exact, recent.requests),
            _share(recent.prefix.num_hits + recent.prefix.partials, recent.prefix.lookups),
            f"{recent.failed + recent.engine_errors:,}",
            *(_time(value) for value in (latency.p50, latency.p95, latency.p99)),
            _duration(total.seconds_saved),
        )
    for column in table.columns[1:]:
        column.no_wrap = True
    table.caption = _saved(frame.total[ALL])
    if len(frame.total) > MAX_ROWS:
        table.caption += f"; and {len(frame.total) - MAX_ROWS:,} more tenants"
    return table


def _live(read: Callable[[], Sums], interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        live.update(plain_table("", title="cachestack top · looking"), refresh=True)
        for frame in frames(read, interval_s):
            live.update(table_of(frame), refresh=True)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _duration(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 36_000 else f"{seconds / 3600:,.0f} h"


def _saved(stats: TenantStats) -> str:
    tokens = f"saved since the beginning: {stats.tokens_replayed + stats.tokens_reused:,} tokens"
    return tokens if stats.cost_saved is None else f"{tokens}, cost {stats.cost_saved:,.4f}"
