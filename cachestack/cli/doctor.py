"""`cachestack doctor`: look at everything that is kept, and put right what can be."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, cell, plain_table, print_error, print_json, print_table, stage_bars
from cachestack.errors import UsageError
from cachestack.folders import home_folder
from cachestack.stores.opening import parse_ref


def command(
    repair: Annotated[
        bool, typer.Option("--repair", help="Put right what can be, without losing what is good.")
    ] = False,
    store: Annotated[
        str | None, typer.Option("--store", metavar="REF", help="Instead of CACHESTACK_STORE: redis://…, disk:PATH.")
    ] = None,
    policies: PoliciesOption = None,
    json: JsonOption = False,
) -> None:
    """Look at all that is kept: entries, index files, encoders, statistics, keys, policies, room on the disk; and
    entries in Redis, where they are there. Exit status: 0 all is well, or has been put right; 1 something is not;
    2 something could not be looked at. May run while others use the same folder or server."""
    from cachestack.upkeep.doctor import examine_all
    from cachestack.upkeep.findings import Looked

    home = home_folder()
    ref = parse_ref(store, home)
    if not home.is_dir():
        raise UsageError(f"{home} is not there: nothing was kept yet, or CACHESTACK_HOME names another folder")
    with stage_bars("doctor") as report:
        looked = Looked(home, ref, time.time(), policies=policies, advance=report)
        done = examine_all(looked, repair=repair)
    if json:
        print_json({"home": str(home), "store": ref.shown} | done.as_dict())
        raise typer.Exit(done.status)
    if done.findings:
        table = plain_table("", "where", "what", "with --repair" if not repair else "repair")
        table.columns[0].no_wrap = True
        for finding in done.findings:
            if not repair:
                last = finding.repair or "–"
            elif finding.repair is None:
                last = "–"
            else:
                last = f"done: {finding.repair}" if finding.is_repaired else f"not done: {finding.repair}"
            last += f" ({finding.outcome})" if finding.outcome else ""
            table.add_row(finding.severity, cell(finding.place), cell(finding.what), cell(last))
        print_table(table)
    for failure in done.failures:
        print_error(failure)
    num_open = sum(finding.is_open for finding in done.findings)
    what = "all is well" if not num_open else f"{num_open} not as it should be"
    typer.echo(f"{home}, {ref.shown}: {what}" + (f"; {len(done.failures)} checks failed" if done.failures else ""))
    raise typer.Exit(done.status)
