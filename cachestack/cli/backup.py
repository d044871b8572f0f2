"""`cachestack backup`: entries, statistics and keys as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cachestack.cli.output import JsonOption, print_json, stage_bars, warn
from cachestack.cli.stores import opened_store, place_of_entries
from cachestack.folders import home_folder


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; questions and answers will be in it.")],
    without_keys: Annotated[bool, typer.Option("--without-keys", help="Leave API keys and epochs out.")] = False,
    with_secret: Annotated[
        bool, typer.Option("--with-secret", help="Include what the salts for engines over HTTP are made with.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Write all entries, statistics and keys to one file, as they are at one moment, while others go on."""
    from cachestack.upkeep.backups import back_up
    from cachestack.upkeep.moving import movable

    with opened_store() as store, stage_bars("backup") as report:
        done = back_up(
            home_folder(),
            movable(store),
            file,
            with_keys=not without_keys,
            with_secret=with_secret,
            overwrite=force,
            advance=report,
        )
    if json:
        said = {"num_entries": done.num_entries, "num_left_out": done.num_left_out, "num_bytes": done.num_bytes}
        print_json({"file": str(file), "store": place_of_entries(), **said, "members": list(done.members)})
        return
    if done.num_left_out:
        warn(f"{done.num_left_out:,} entries have the key of another version, so that nobody can find them: left out")
    typer.echo(f"{done.num_entries:,} entries from {place_of_entries()} in {file} ({done.num_bytes / 1e6:.1f} MB)")
