"""How the commands of `cachestack bench` show what they found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from cachestack.cli.output import plain_table, print_json, print_table, warn

if TYPE_CHECKING:
    from cachestack.bench.machine import Machine
    from cachestack.bench.tables import Table

Document = Mapping[str, Any]


def warn_if_busy(machine: Machine) -> None:
    if machine.is_busy:
        warn(
            f"the machine is busy: load average {machine.load_average} on {machine.cores} cores; wait until it is "
            "quiet, or take these figures for a trial"
        )


def print_document(
    document: Document,
    tables: Callable[[Document], Sequence[Table]],
    notes: Callable[[Document], Sequence[str]],
    *,
    markdown: bool,
    json: bool,
) -> None:
    """As JSON, as Markdown or as tables for a terminal. Exit status 1 where its results are not what they should be."""
    if json:
        print_json(document)
    elif markdown:
        from cachestack.bench.tables import tables_as_markdown

        typer.echo(tables_as_markdown(tables(document), notes(document)), nl=False)
    else:
        for table in tables(document):
            shown = plain_table(*table.head)
            for row in table.rows:
                shown.add_row(*row)
            print_table(shown)
        for note in notes(document):
            typer.echo(note)
    if not document["agreement"]["holds"]:
        raise typer.Exit(1)
