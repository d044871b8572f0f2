"""`cachestack bench store`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from cachestack.cli.bench_shown import print_document, warn_if_busy
from cachestack.cli.output import JsonOption, stage_bars
from cachestack.errors import UsageError


def store(
    redis: Annotated[
        str | None,
        typer.Option("--redis", metavar="URL", help="A server to measure; by default one of its own, where it can."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="1,000,000 entries too: takes an hour or more.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few hundred entries: shows that it works, measures nothing.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    json: JsonOption = False,
) -> None:
    """What each store costs: puts, exact look-ups, look-ups by meaning, with one process and with four.

    Ten minutes on two cores. What it puts into a Redis is removed at the end. Exit status 1 if a look-up finds
    anything but what it should.
    """
    if json and markdown:
        raise UsageError("--json and --markdown both print to stdout; give one of them")
    if full and quick:
        raise UsageError("--full measures more and --quick nothing; give one of them")
    from cachestack.bench.machine import server_machine
    from cachestack.bench.store import FULL, QUICK, Settings, bench_store, version_of
    from cachestack.bench.store_servers import own_redis, redis_server_program
    from cachestack.bench.store_tables import notes, tables

    with ExitStack() as opened:
        if redis is None and (program := redis_server_program()) is not None:
            redis = opened.enter_context(own_redis(program))
        report = opened.enter_context(stage_bars("bench store"))
        machine = server_machine(("numpy", "faiss-cpu", "diskcache", "redis"))
        warn_if_busy(machine)
        settings = FULL if full else QUICK if quick else Settings()
        version = None if redis is None else version_of(redis)
        document = bench_store(settings, machine, redis_url=redis, redis_version=version, report=report).to_json()
    print_document(document, tables, notes, markdown=markdown, json=json)
