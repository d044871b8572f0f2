"""What the tables of all benchmarks have in common, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachestack.bench.markdown import markdown_table


@dataclass(frozen=True, slots=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_as_markdown(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """The tables, the notes under them."""
    parts = [markdown_table(table.head, table.rows) for table in tables]
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def targets_table(document: Mapping[str, Any]) -> list[Table]:
    """None for a run that has no targets."""
    rows = tuple(
        (t["name"], f"{t['value']:.3g}", f"{t['sense']} {t['bound']:g}", "yes" if t["met"] else "NO")
        for t in document["targets"]
    )
    return [Table(("target", "measured", "aim", "met"), rows)] if rows else []


def run_notes(document: Mapping[str, Any]) -> list[str]:
    """What makes the figures no measurement."""
    found = []
    machine = document["machine"]
    if machine["busy"]:
        found.append(
            f"The machine was busy (load average {machine['load_average']}): these figures are no measurement."
        )
    if document["quick"]:
        found.append("A quick run: it shows that the benchmark works, and is no measurement.")
    return found
