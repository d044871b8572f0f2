"""`cachestack eval`: how the semantic layer does on examples with a judgement."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated, Any

import typer

from cachestack.build import DEFAULT_ENCODER, NO_ENCODER
from cachestack.cli.options import TenantOption
from cachestack.cli.output import JsonOption, is_encodable, plain_table, print_json, print_table, stage_bars
from cachestack.errors import InputFileError
from cachestack.evaluation.pairs import judge_pairs, mistake_rows, read_pairs, summarise
from cachestack.policy_set import PolicySet

BATCH = 128
"""Texts encoded together: questions are short, and there are thousands."""

app = typer.Typer(no_args_is_help=True, help="How the semantic layer does on examples.")


@app.callback()
def _group() -> None:
    """So that `eval` keeps its subcommands while there is only one."""


@app.command("pairs")
def evaluate_pairs(
    files: Annotated[list[str], typer.Argument(help="JSONL with the keys a, b, same_answer, and category.")],
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME|FILE", help="Policy file; `default` is the built-in one.")
    ] = "default",
    tenant: TenantOption = "default",
    encoder: Annotated[
        str, typer.Option("--encoder", metavar="NAME", help="A known name, a folder, or none.")
    ] = DEFAULT_ENCODER,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Pairs of each file, from its start.")] = None,
    errors: Annotated[
        Path | None, typer.Option("--errors", metavar="FILE", help="Write wrongly served and missed pairs as JSONL.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """For each pair: a asked and answered, b asked. Counts what was served of what should be, and of the traps."""
    chosen = PolicySet.load(policy).policy(tenant)
    by_file = {file: read_pairs(file, limit) for file in files}
    model = _encoder(encoder)
    with stage_bars("pairs") as report:
        outcomes = judge_pairs([pair for pairs in by_file.values() for pair in pairs], chosen, model, report)
    results: dict[str, Any] = {}
    start = 0
    for file, pairs in by_file.items():
        results[file] = summarise(outcomes[start : start + len(pairs)])
        start += len(pairs)
    if errors is not None:
        _write(errors, mistake_rows(outcomes))
    if json:
        print_json({"files": results})
    else:
        _print(results)


def _encoder(name: str) -> Any:
    if name == NO_ENCODER:
        return None
    from cachestack.semantic.embed import SentenceEncoder

    return SentenceEncoder(name, batch_size=BATCH)


def _write(path: Path, rows: Any) -> None:
    try:
        with path.open("w", encoding="utf-8") as file:
            for row in rows:
                line = json_.dumps(row, ensure_ascii=False)
                file.write((line if is_encodable(line, "utf-8") else json_.dumps(row)) + "\n")
    except OSError as error:
        raise InputFileError(f"{path} cannot be written: {error}") from error


def _print(results: dict[str, Any]) -> None:
    for file, result in results.items():
        table = plain_table("", "pairs", "served", "rate", title=file)
        for name, label in (("should_hit", "should be served"), ("traps", "must not be served")):
            _row(table, label, result[name])
            for category, share in result["by_category"].items():
                if bool(share["should_hit"]) == (name == "should_hit"):
                    _row(table, f"  {category}", share)
        print_table(table)


def _row(table: Any, label: str, share: dict[str, Any]) -> None:
    table.add_row(label, f"{share['n']:,}", f"{share['served']:,}", f"{share['rate']:.1%}")
