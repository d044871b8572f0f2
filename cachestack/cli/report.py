"""`cachestack report`: say that a hit was wrong, or right."""

from __future__ import annotations

from typing import Annotated

import typer

from cachestack.cli.output import JsonOption, print_json
from cachestack.errors import UsageError
from cachestack.stack import CacheStack


def command(
    hit: Annotated[str, typer.Argument(metavar="ID", help="The hit's request id (from its trace), or its entry's id.")],
    wrong: Annotated[bool, typer.Option("--wrong/--right", help="What the answer was.")],
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose hit it was.")] = "default",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the entry too, for all questions.")] = False,
    json: JsonOption = False,
) -> None:
    """A hit that was wrong is never served to that question again; an entry's id removes the entry."""
    if remove and not wrong:
        raise UsageError("--remove goes with --wrong: an answer that was right stays")
    with CacheStack.without_engine() as stack:
        if wrong:
            found = stack.report_wrong(hit, tenant=tenant, remove=remove)
        else:
            found = stack.report_right(hit, tenant=tenant)
    if not found:
        raise UsageError(f"tenant {tenant!r} has no hit or entry {hit!r}; nothing was counted")
    if json:
        print_json({"reported": "wrong" if wrong else "right"})
    else:
        typer.echo("reported " + ("wrong" if wrong else "right"))
