"""`cachestack invalidate`: remove entries, in all processes."""

from __future__ import annotations

from typing import Annotated

import typer

from cachestack.cli.output import JsonOption, print_json
from cachestack.errors import UsageError
from cachestack.stack import CacheStack


def command(
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Of this tenant.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Asked by this user.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="With this tag.")] = None,
    version: Annotated[str | None, typer.Option("--version", metavar="V", help="Of this version.")] = None,
    older_than_s: Annotated[float | None, typer.Option("--older-than-s", help="Older than so many seconds.")] = None,
    entry: Annotated[str | None, typer.Option("--entry", metavar="ID", help="The one with this id (hit_id).")] = None,
    wrong: Annotated[bool, typer.Option("--wrong", help="Count a wrong hit (needs --tenant, --entry).")] = False,
    json: JsonOption = False,
) -> None:
    """Remove the entries for which all given conditions hold. At least one must be given."""
    if wrong and (tenant is None or entry is None):
        raise typer.BadParameter("--wrong needs --tenant and --entry")
    with CacheStack.without_engine() as stack:
        if wrong:
            removed = int(stack.report_wrong(entry or "", tenant=tenant or ""))
            if not removed:
                raise UsageError(f"tenant {tenant!r} has no entry {entry!r}; nothing was counted")
        else:
            removed = stack.invalidate(
                tenant=tenant, user=user, tag=tag, version=version, older_than=older_than_s, entry=entry
            )
    if json:
        print_json({"removed": removed})
    else:
        typer.echo(f"{removed} removed")
