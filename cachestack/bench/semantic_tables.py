"""The document of `cachestack bench semantic` as tables, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.bench.markdown import as_ratio
from cachestack.bench.tables import Table, run_notes, targets_table

GIB = 2**30


def tables(document: Mapping[str, Any]) -> list[Table]:
    found = [_times(document), _index(document)]
    return found + targets_table(document)


def notes(document: Mapping[str, Any]) -> list[str]:
    """What the figures are of, in sentences."""
    machine, material = document["machine"], document["material"]
    flags = ", ".join(f"{name}={value}" for name, value in machine["flags"].items()) or "no flags"
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    ratio = document["embedding"]["ratio"]
    found = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, {machine['os']}; "
        f"{machine['model']}; {flags}; {versions}.",
        f"{document['entries']:,} entries, {material['real_embeddings']:,} with real embeddings, the others "
        f"{material['rest']}; {document['decision']['asked']} real questions, with "
        f"{document['decision']['candidates_above_the_lower_bound']} candidates above the lower bound each.",
        f"Embedding over the bare forward: {as_ratio(ratio)}, {document['embedding']['median_ms']} ms.",
        f"Results: {document['agreement']['wrong']} wrong.",
    ]
    return found + run_notes(document)


def _times(document: Mapping[str, Any]) -> Table:
    decision, exact = document["decision"], document["exact"]
    rows = {
        "exact hit: the whole answer": exact["answer"],
        "exact hit: the look-up": exact["lookup"],
        "exact hit: the read by its key": exact["store"],
        "decision after the embedding": decision["after_embedding"],
        "search and the entries it reads": decision["search"],
        "the same, a contract of 1% of them": decision["rare_contract_search"],
        "a search after a write": document["filling"]["search_after_a_write"],
    }
    return Table(
        ("ms", "median", "95%", "99%"),
        tuple((name, *(f"{of[key]:.3f}" for key in ("median_ms", "p95_ms", "p99_ms"))) for name, of in rows.items()),
    )


def _index(document: Mapping[str, Any]) -> Table:
    filling, memory = document["filling"], document["memory"]
    grown, peak = memory["grown_bytes"], memory["peak_gib"]
    rows = [
        ("kind", document["index"]),
        ("recall at 8 against flat", f"{document['recall_at_8']:.4f}"),
        ("entries written, one by one", f"{filling['put_s']:.1f} s, {filling['puts_per_s']:,.0f} a second"),
        ("first search, which reads them all", f"{filling['load_s']:.1f} s"),
        ("the graph, in the background", f"{filling['build_s']:.1f} s"),
        ("first search after a restart", f"{filling['restart_s']:.2f} s"),
        (f"{filling['bulk']:,} writes taken in at once", f"{filling['bulk_ms_a_write']:.3f} ms a write"),
        ("memory for an entry, by count", f"{memory['index_bytes']:,.0f} bytes"),
        ("memory for an entry, by growth", "–" if grown is None else f"{grown:,.0f} bytes"),
        ("disk for an entry, store", f"{memory['store_bytes']:,.0f} bytes"),
        ("disk for an entry, index", f"{memory['files_bytes']:,.0f} bytes"),
        ("memory of the process at its peak", "–" if peak is None else f"{peak:.2f} GiB"),
    ]
    return Table(("index", ""), tuple(rows))
