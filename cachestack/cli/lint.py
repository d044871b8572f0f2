"""`cachestack lint`: what in request logs or prompts breaks a prefix cache, what it costs, and how to reorder."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachestack.cli.options import ModelOption
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table, stage_bars
from cachestack.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from cachestack.lint import Finding, LintReport
    from cachestack.lint.logs import LoggedPrompt

MAX_ROWS = 8


def command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Requests as JSONL or JSON, or one prompt as text; - is stdin."),
    ],
    format: Annotated[
        Literal["jsonl", "json", "text"] | None,
        typer.Option("--format", help="Of the files; by default from the suffix or the first line."),
    ] = None,
    model: ModelOption = None,
    characters: Annotated[
        bool, typer.Option("--characters", help="Count characters instead of a model's tokens: no tokenizer needed.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N prompts.")] = None,
    min_tokens: Annotated[
        int, typer.Option("--min-tokens", min=1, metavar="N", help="Shorter prefixes are not kept, as in the policy.")
    ] = 16,
    max_message_tokens: Annotated[
        int,
        typer.Option(
            "--max-message-tokens", min=1, metavar="N", help="A longer message that is most of its prompt is oversized."
        ),
    ] = 2000,
    ms_per_token: Annotated[
        float | None, typer.Option("--ms-per-token", min=0, help="What computing a prompt token costs (1.4).")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Load the model and measure that cost on this machine.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find what keeps prompts from sharing their beginnings. Exit status 1 if something was found.

    Only prints; nothing of the prompts is kept.
    """
    if characters and (model is not None or measure or ms_per_token is not None):
        raise UsageError("--characters counts without a model: leave --model, --measure and --ms-per-token")
    if measure and ms_per_token is not None:
        raise UsageError("give --ms-per-token or --measure, not both")
    if files.count("-") > 1:
        raise UsageError("standard input (-) can be read once")
    from cachestack.lint import lint

    prompts = _read(files, format, limit)
    if measure:
        from cachestack.engines.transformers.load import load
        from cachestack.engines.transformers.tokens import measure_ms_per_token
        from cachestack.models.catalogue import DEFAULT_LLM

        ms_per_token = round(measure_ms_per_token(load(model or DEFAULT_LLM)), 3)
    with stage_bars("prompts") as progress:
        report = lint(
            prompts,
            model=model,
            characters=characters,
            min_tokens=min_tokens,
            max_message_tokens=max_message_tokens,
            ms_per_token=ms_per_token,
            progress=progress,
        )
    if json:
        print_json(report.to_json())
    else:
        _print(report)
    if report.findings:
        raise typer.Exit(1)


def _read(files: list[str], format: Literal["jsonl", "json", "text"] | None, limit: int | None) -> list[LoggedPrompt]:
    from cachestack.lint.logs import read_log

    return list(islice((prompt for file in files for prompt in read_log(file, format=format)), limit))


def _print(report: LintReport) -> None:
    from rich.markup import escape

    unit = report.unit
    table = plain_table("", "", title=f"{report.num_prompts:,} prompts, {report.num_tokens:,} {unit} ({report.model})")
    table.add_row("kinds of prompt", f"{report.num_families:,}, of {report.num_tenants:,} tenants")
    table.add_row("reusable now", f"{report.reusable_tokens:,} {unit}, {report.reusable_share:.1%} at best")
    table.add_row("when mended", f"{report.mended_tokens:,} {unit}, {report.mended_share:.1%} (estimate)")
    if report.ms_per_token is not None:
        table.add_row("cost of a token", f"{report.ms_per_token:g} ms")
    for note in report.notes:
        table.add_row("note", escape(note))
    print_table(table)
    if report.prefixes:
        table = plain_table("prompts", unit, "share", "ends", title="Repeated beginnings")
        for prefix in report.prefixes[:MAX_ROWS]:
            ends = escape(prefix.ends)
            table.add_row(f"{prefix.num_prompts:,}", f"{prefix.num_tokens:,}", f"{prefix.share:.1%}", ends)
        print_table(table)
    if not report.findings:
        print_table(plain_table("", title="Nothing found."))
        return
    columns = ["finding", "prompts", f"{unit} lost"] + (["ms"] if report.ms_per_token is not None else [])
    table = plain_table(*columns, title="Findings, costliest first")
    for finding in report.findings:
        cost = [] if finding.ms_lost is None else [f"{finding.ms_lost:,.0f}"]
        table.add_row(_name(finding), f"{finding.num_prompts:,}", f"{finding.tokens_lost:,}", *cost)
    print_table(table)
    for finding in report.findings:
        print_table(_details(finding, unit))


def _name(finding: Finding) -> str:
    return finding.kind.replace("_", " ")


def _details(finding: Finding, unit: str) -> Table:
    from rich.markup import escape

    table = plain_table("", "", title=_name(finding) + ("" if finding.observed else ": will change, presumably"))
    for one in finding.examples:
        source = f"{one.earlier} and {one.later}" if one.earlier else one.later
        values = f"[{one.earlier_value}] then [{one.value}]" if one.earlier else f"[{one.value}]"
        table.add_row("where", escape(f"{source}: {one.where}, {unit.removesuffix('s')} {one.position:,}"))
        table.add_row("text", escape(f"{one.before}{values}{one.after}"))
        table.add_row("do", escape(one.proposal))
    return table
