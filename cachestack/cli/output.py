"""What every command shares: results on stdout, everything else on stderr.

With `--json`, stdout is exactly one JSON document. Progress, warnings and errors go to stderr always.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachestack.models.manifest import Report

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout, and nothing else there.")]


def stderr_console() -> Console:
    """For progress, warnings and errors. Made anew each time: it follows `sys.stderr` as it is now."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def print_json(document: Any) -> None:
    """The one document of a `--json` run. NaN and infinity are no JSON: `ValueError`, and nothing is printed."""
    text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    if not is_encodable(text, sys.stdout.encoding or "utf-8"):
        text = json.dumps(document, indent=2, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def is_encodable(text: str, encoding: str) -> bool:
    """Not on a terminal that lacks a letter, and nowhere for half of a surrogate pair."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Text of others on one line, with what could steer the terminal made visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def cell(text: str) -> Text:
    """Text of others in a table: no markup, nothing that steers the terminal."""
    from rich.text import Text

    return Text("\n".join(map(printable, text.split("\n"))), overflow="fold")


def print_table(table: Table) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)


def warn(message: str) -> None:
    stderr_console().print(f"warning: {message}", style="yellow", markup=False, soft_wrap=True)


def print_error(message: str) -> None:
    stderr_console().print(f"error: {message}", style="red", markup=False, soft_wrap=True)


def plain_table(*columns: str, title: str | None = None) -> Table:
    """Rules between head and body only, and cells that fold rather than lose their end."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0))
    table.show_header = any(columns)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


@contextmanager
def stage_bars(title: str) -> Iterator[Report]:
    """Bars on stderr for work in stages, one for each stage that reports; none where none does."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    label = TextColumn("{task.description}")
    columns = (SpinnerColumn(finished_text="✓"), label, BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=stderr_console())
    tasks: dict[str, Any] = {}

    def report(stage: str, done: int, total: int) -> None:
        if stage not in tasks:
            progress.start()
            tasks[stage] = progress.add_task(f"{title}: {stage}", total=total or None)
        progress.update(tasks[stage], completed=done, total=total or None)

    try:
        yield report
    finally:
        if tasks:
            progress.stop()
