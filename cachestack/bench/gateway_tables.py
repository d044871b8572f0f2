"""The document of `cachestack bench gateway` as tables, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.bench.tables import Table, run_notes, targets_table


def tables(document: Mapping[str, Any]) -> list[Table]:
    found = [_exact(document), _others(document)]
    return found + targets_table(document)


def notes(document: Mapping[str, Any]) -> list[str]:
    """What the figures are of, in sentences."""
    machine, interval = document["machine"], document["interval"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    share = max(figures["client_share"] for figures in document["exact"].values())
    found = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['os']}, load average {machine['load_average']} before; "
        f"{versions}.",
        f"Answers of {document['answer_bytes']} bytes, one worker on each side; {document['rounds']} rounds, by turns; "
        f"intervals from {interval['kind']}, confidence {interval['coverage']:.1%}.",
        f"The client: uvloop and httptools in a process of its own, {share:.0%} of a core at most.",
        f"Results: {document['agreement']['wrong']} wrong, {document['streams']['errors']} broken streams.",
    ]
    return found + run_notes(document)


def _exact(document: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            number,
            f"{of['req_s']:,.0f}",
            f"{of['p50_ms']:.2f}",
            f"{of['p99_ms']:.2f}",
            f"{of['bare_req_s']:,.0f}",
            f"{of['ratio']:.2f} ({of['ratio_low']:.2f} to {of['ratio_high']:.2f})",
        )
        for number, of in document["exact"].items()
    )
    return Table(("connections", "hits/s", "p50 ms", "p99 ms", "bare/s", "ratio (interval)"), rows)


def _others(document: Mapping[str, Any]) -> Table:
    misses, streams, grown = document["misses"], document["streams"], document["rss_growth_bytes"]
    rows = (
        ("a miss, added at the median", f"{document['miss_overhead_ms']:.2f} ms"),
        ("a miss; the upstream alone", f"{misses['gateway_p50_ms']:.2f}; {misses['direct_p50_ms']:.2f} ms"),
        (f"{streams['n']} streams at once", f"{streams['seconds']:.2f} s, {streams['errors']} errors"),
        (f"memory over {document['rss_requests']:,} hits", "–" if grown is None else f"{grown / 2**20:+.2f} MiB"),
    )
    return Table(("besides", ""), rows)
