"""`cachestack bench`: measurements that check their results, on the machine at hand."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachestack.cli.bench_shown import print_document, warn_if_busy
from cachestack.cli.bench_store import store
from cachestack.cli.options import ModelOption
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table, stage_bars
from cachestack.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from cachestack.bench.prefix import MakePeer
    from cachestack.bench.prompt import FewShot
    from cachestack.models.manifest import Report

app = typer.Typer(help="Measure on this machine; results are checked, not only timed.", no_args_is_help=True)
app.command("store")(store)
PEERS = ("llama-cpp",)


@app.callback()
def _commands() -> None:
    """Measure on this machine; results are checked, not only timed."""


@app.command("prefix")
def prefix(
    peer: Annotated[
        str | None, typer.Option("--peer", metavar="NAME", help="Another engine in the same table: llama-cpp.")
    ] = None,
    peer_gguf: Annotated[
        Path | None,
        typer.Option("--peer-gguf", metavar="FILE", help="The peer's model; by default from the model's wheel."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw it too, as .png, .svg or .pdf.")
    ] = None,
    reps: Annotated[
        int | None, typer.Option("--reps", min=1, metavar="N", help="Repetitions; 15 by default, 2 with --quick.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short prefixes, few repetitions: shows that it works, measures nothing.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Also the share of each operator in a pass, one by one and packed.")
    ] = False,
    saved: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Measure nothing: show a --json document of before.")
    ] = None,
    model: ModelOption = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    json: JsonOption = False,
) -> None:
    """What a kept prefix saves, item by item, against whole prompts, a recipe by hand and the floor.

    Under ten minutes on two cores. Exit status 1 if the ways that are compared do not give the same results.
    """
    if json and markdown:
        raise UsageError("--json and --markdown both print to stdout; give one of them")
    if peer is not None and peer not in PEERS:
        raise UsageError(f"--peer {peer} is not known; known: {', '.join(PEERS)}")
    if peer_gguf is not None and peer is None:
        raise UsageError("--peer-gguf is the model of a peer; give --peer llama-cpp too")
    if saved is not None and (peer or reps or quick or profile or model):
        raise UsageError("--from measures nothing: leave out --peer, --reps, --quick, --profile and --model")
    if plot is not None:
        from cachestack.bench.plot import require_matplotlib

        require_matplotlib(plot)
    if saved is not None:
        from cachestack.bench.document import read_document

        document = read_document(saved)
    else:
        document = _measured(model, peer=peer, gguf=peer_gguf, reps=reps, quick=quick, profile=profile)
    if json:
        print_json(document)
    elif markdown:
        from cachestack.bench.markdown import as_markdown

        typer.echo(as_markdown(document), nl=False)
    else:
        show(document)
    if plot is not None:  # after the figures are out: minutes of measuring are not lost with a picture
        from cachestack.bench.plot import plot as draw

        draw(document, plot)
    if not document["agreement"]["holds"]:
        raise typer.Exit(1)


@app.command("semantic")
def semantic(
    full: Annotated[
        bool, typer.Option("--full", help="1,000,000 entries instead of 100,000: takes an hour or more, and 10 GB.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few hundred entries: shows that it works, measures nothing.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    json: JsonOption = False,
) -> None:
    """What a semantic look-up costs: exact hits, the decision over 100,000 entries, the embedding, the index.

    Some minutes on two cores. Exit status 1 if a look-up finds anything but what it should.
    """
    if json and markdown:
        raise UsageError("--json and --markdown both print to stdout; give one of them")
    if full and quick:
        raise UsageError("--full measures more and --quick nothing; give one of them")
    from cachestack.bench.semantic_settings import FULL, QUICK, Settings
    from cachestack.build import DEFAULT_ENCODER

    with stage_bars("bench semantic") as report:
        from cachestack.bench.machine import encoder_machine
        from cachestack.bench.semantic import bench_semantic

        machine = encoder_machine(DEFAULT_ENCODER)
        warn_if_busy(machine)
        settings = FULL if full else QUICK if quick else Settings()
        document = bench_semantic(settings, machine, report=report).to_json()
    from cachestack.bench.semantic_tables import notes, tables

    print_document(document, tables, notes, markdown=markdown, json=json)


@app.command("gateway")
def gateway(
    quick: Annotated[
        bool, typer.Option("--quick", help="Few requests: shows that it works, measures nothing.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    json: JsonOption = False,
) -> None:
    """What the gateway costs: exact hits against a bare route, misses against the upstream, streams, memory.

    Two minutes on two cores. Exit status 1 if an answer is wrong or a stream breaks.
    """
    if json and markdown:
        raise UsageError("--json and --markdown both print to stdout; give one of them")
    try:
        from cachestack.bench.gateway import bench_gateway
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name), "gateway") from error
    from cachestack.bench.gateway_settings import QUICK, Settings
    from cachestack.bench.gateway_tables import notes, tables
    from cachestack.bench.machine import server_machine

    with stage_bars("bench gateway") as report:
        machine = server_machine()
        warn_if_busy(machine)
        document = bench_gateway(QUICK if quick else Settings(), machine, report=report).to_json()
    print_document(document, tables, notes, markdown=markdown, json=json)


def _measured(
    model: str | None, *, peer: str | None, gguf: Path | None, reps: int | None, quick: bool, profile: bool
) -> dict[str, Any]:
    from cachestack.models.catalogue import DEFAULT_LLM

    name = model or DEFAULT_LLM
    with ExitStack() as opened:
        if peer is not None:
            from cachestack.bench.peer import llama_cpp

            llama_cpp()  # what is missing is said before a model is opened
        report = opened.enter_context(stage_bars("bench prefix"))
        from cachestack.bench.machine import this_machine
        from cachestack.bench.prefix import QUICK, Settings, bench_prefix
        from cachestack.engines.transformers.engine import TransformersEngine

        engine = TransformersEngine(name)
        machine = this_machine(engine)
        warn_if_busy(machine)
        make_peer = None
        if peer is not None:
            make_peer = _peer_maker(name, gguf, machine.threads, opened, report)
        settings = replace(QUICK if quick else Settings(), profile=profile)
        if reps is not None:
            settings = replace(settings, reps=reps)
        return bench_prefix(engine, settings, machine, make_peer=make_peer, report=report).to_json()


def _peer_maker(model: str, gguf: Path | None, threads: int, opened: ExitStack, report: Report) -> MakePeer:
    from cachestack.bench.peer import LlamaCpp, check_runs, gguf_file

    file = opened.enter_context(gguf_file(model, gguf, report))
    check_runs(file)

    def make(prompts: FewShot) -> LlamaCpp:
        longest = max(len(suffix) for suffix in prompts.suffixes)
        return LlamaCpp(file, prompts.prefix, max_suffix_tokens=longest, threads=threads)

    return make


def show(document: Mapping[str, Any]) -> None:
    """Tables that fit 80 columns."""
    from cachestack.bench.markdown import COLUMNS, RATIOS, as_ratio, notes

    prefixes = document["prefix"]
    head = [f"P = {tokens}" for tokens in prefixes]
    times = plain_table("ms an item", *head)
    for key, title in COLUMNS.items():
        if all(key in of for of in prefixes.values()):
            times.add_row(title, *(f"{of[key]:.1f}" for of in prefixes.values()))
    print_table(times)
    ratios = plain_table("ratio: median (interval)", *head)
    for key, title in RATIOS.items():
        if all(key in of["ratios"] for of in prefixes.values()):
            ratios.add_row(title, *(as_ratio(of["ratios"][key]) for of in prefixes.values()))
    ratios.add_row("ceiling by tokens, (P+S)/S", *(f"{of['ceiling']:.1f}" for of in prefixes.values()))
    print_table(ratios)
    targets = plain_table("target", "measured", "aim", "met")
    for target in document["targets"]:
        met = "yes" if target["met"] else "NO"
        targets.add_row(target["name"], f"{target['value']:.3g}", f"{target['sense']} {target['bound']:g}", met)
    if targets.row_count:
        print_table(targets)
    _show_profiles(document)
    for note in notes(document):
        typer.echo(note)


def _show_profiles(document: Mapping[str, Any]) -> None:
    for tokens, profiles in document.get("profile", {}).items():
        for name, operators in profiles.items():
            table = plain_table("operator", "share", "calls", title=f"{name}, prefix of {tokens} tokens")
            for operator in operators:
                table.add_row(operator["name"], f"{operator['share']:.1%}", f"{operator['calls']:g}")
            print_table(table)
