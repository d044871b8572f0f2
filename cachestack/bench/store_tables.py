"""The document of `cachestack bench store` as tables, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.bench.markdown import as_ratio
from cachestack.bench.tables import Table, run_notes, targets_table


def tables(document: Mapping[str, Any]) -> list[Table]:
    return [_times(document), _throughput(document), *targets_table(document)]


def notes(document: Mapping[str, Any]) -> list[str]:
    """What the figures are of, in sentences."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    found = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['os']}, load average {machine['load_average']} before; "
        f"{versions}.",
        "Vectors of 384 dimensions, drawn; entries of about 5 kB; each look-up by meaning reads 5 entries.",
        f"Redis: {document['redis'] or 'not measured, as there is no server; give --redis URL'}.",
        f"Results: {document['agreement']['wrong']} exact look-ups wrong; {document['agreement']['missed']} by meaning "
        "missed their entry (a graph looks at a part of the vectors).",
    ]
    for size, figures in document["stores"].get("redis", {}).items():
        found.append(
            f"An exact look-up through Redis over a bare GET, {int(size):,} entries: "
            f"{as_ratio(figures['exact_over_get'])}."
        )
    return found + run_notes(document)


def _times(document: Mapping[str, Any]) -> Table:
    rows = [
        (store, f"{int(size):,}", *(_median_and_p95(figures[kind]) for kind in ("put", "exact", "semantic")))
        for store, sizes in document["stores"].items()
        for size, figures in sizes.items()
    ]
    return Table(("ms: median (95%)", "entries", "put", "exact", "by meaning"), tuple(rows))


def _throughput(document: Mapping[str, Any]) -> Table:
    rows = []
    for store, sizes in document["stores"].items():
        for size, figures in sizes.items():
            reads = [figures[kind]["per_s"] for kind in ("exact", "semantic")]
            cells = [f"{of['1']:,.0f} / {of['4']:,.0f}" if "4" in of else f"{of['1']:,.0f}" for of in reads]
            trips = [f"{figures[kind]['round_trips']:g}" for kind in ("exact", "semantic")]
            rows.append((store, f"{int(size):,}", f"{figures['put']['per_s']:,.0f}", *cells, " / ".join(trips)))
    head = ("a second", "entries", "puts", "exact, 1 / 4 processes", "by meaning, 1 / 4", "round trips")
    return Table(head, tuple(rows))


def _median_and_p95(of: Mapping[str, float]) -> str:
    return f"{of['median_ms']:.3f} ({of['p95_ms']:.3f})"
