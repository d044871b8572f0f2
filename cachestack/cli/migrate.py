"""`cachestack migrate`: entries from one store to another."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, print_json, stage_bars
from cachestack.cli.stores import opened_store
from cachestack.errors import UsageError
from cachestack.folders import home_folder
from cachestack.policy_set import PolicySet
from cachestack.stores.opening import parse_ref


def command(
    source: Annotated[str, typer.Option("--from", metavar="REF", help="disk: (CACHESTACK_HOME), disk:PATH, redis://…")],
    target: Annotated[str, typer.Option("--to", metavar="REF", help="The same kinds.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and move nothing.")] = False,
    policies: PoliciesOption = None,
    json: JsonOption = False,
) -> None:
    """Copy all entries to another store, while both are in use. The newer of two stays, whatever was invalidated stays
    so; a run that was cut off is simply repeated. The source keeps its entries."""
    from cachestack.upkeep.moving import migrate, movable

    home = home_folder()
    refs = parse_ref(source, home), parse_ref(target, home)
    if refs[0] == refs[1]:
        raise UsageError("--from and --to are the same store")
    policy_set = PolicySet.load(policies)
    with opened_store(source) as old, opened_store(target) as new, stage_bars("migrate") as report:
        done = migrate(
            movable(old),
            movable(new),
            max_bytes_of=lambda name: policy_set.policy(name).retention.max_bytes,
            clock=time.time,
            dry_run=dry_run,
            advance=lambda so_far, total: report("entries", so_far, total),
        )
    if json:
        counts = {"num_entries": done.num_entries, "moved": done.moved, "removed": done.removed}
        said = {"from": refs[0].shown, "to": refs[1].shown, "dry_run": dry_run}
        print_json({**said, **counts, "skipped": dict(done.skipped)})
        return
    verb = "would be moved" if dry_run else "moved"
    typer.echo(f"{done.moved:,} of {done.num_entries:,} {verb} from {refs[0].shown} to {refs[1].shown}")
    for why, count in done.skipped.items():
        typer.echo(f"{count:,} left out: {why}")
    if done.removed:
        typer.echo(f"{done.removed:,} removed from {refs[1].shown}: they went at the source")
