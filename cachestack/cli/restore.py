"""`cachestack restore`: what `backup` wrote, into this state folder and its store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, print_json, stage_bars
from cachestack.cli.stores import opened_store, place_of_entries
from cachestack.folders import home_folder
from cachestack.policy_set import PolicySet


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `cachestack backup` wrote.")],
    force: Annotated[
        bool, typer.Option("--force", help="Add to what is there: the newer entry stays, revoked keys stay revoked.")
    ] = False,
    policies: PoliciesOption = None,
    json: JsonOption = False,
) -> None:
    """Bring back entries, statistics and keys. A file that is damaged or of another version is refused whole."""
    from cachestack.upkeep.moving import movable
    from cachestack.upkeep.restoring import restore

    policy_set = PolicySet.load(policies)
    with opened_store() as store, stage_bars("restore") as report:
        done = restore(
            file,
            home_folder(),
            movable(store),
            max_bytes_of=lambda name: policy_set.policy(name).retention.max_bytes,
            now_s=time.time(),
            force=force,
            advance=report,
        )
    entries = done.entries
    if json:
        counts = {"num_entries": entries.num_entries, "imported": entries.imported, "exact_only": entries.exact_only}
        said = {"made_at_s": done.made_at_s, **counts, "skipped": dict(entries.skipped)}
        print_json({**said, "num_keys": done.num_keys, "left_alone": list(done.left_alone)})
        return
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(done.made_at_s))
    typer.echo(f"{entries.imported:,} of {entries.num_entries:,} entries of {made} are in {place_of_entries()}")
    if entries.exact_only:
        typer.echo(
            f"{entries.exact_only:,} of them serve the exact same question only: their encoder is not the one here"
        )
    for why, count in entries.skipped.items():
        typer.echo(f"{count:,} left out: {why}")
    if done.num_keys is not None:
        typer.echo(f"{done.num_keys:,} keys brought back")
    for what in done.left_alone:
        typer.echo(f"{what} here left as they are")
