"""`cachestack eval answers`: labelled pairs of answers, told to be the same, different or unknown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachestack.cli.eval.judged import write_rows
from cachestack.cli.output import JsonOption, cell, plain_table, print_json, print_table, stage_bars
from cachestack.errors import UsageError

if TYPE_CHECKING:
    from cachestack.answers import Embed, Judging
    from cachestack.evaluation.answers import Compare

NO_ENCODER = "none"


def evaluate_answers(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="JSONL with x, y, same, and question, kind, language."),
    ],
    encoder: Annotated[
        str, typer.Option("--encoder", metavar="NAME", help="A known name, a folder, an id, or none.")
    ] = NO_ENCODER,
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="MODEL", help="A model that is asked where the rest does not know."),
    ] = None,
    judge_url: Annotated[
        str | None,
        typer.Option("--judge-url", metavar="URL", help="A server with OpenAI's API that has it; else it runs here."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Pairs of each file, from its start.")] = None,
    mistakes: Annotated[
        Path | None, typer.Option("--mistakes", metavar="FILE", help="Write what is not as labelled as JSONL.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare the answers of each pair: how often is the finding the label, wrong, or unknown, by kind and language."""
    from cachestack.evaluation.answers import compare_all, mistaken_rows, read_answers, summarise_answers

    if judge_url is not None and judge is None:
        raise UsageError("--judge-url says where the model of --judge is; give both")
    by_file = {str(file): read_answers(file, limit) for file in files}
    compare = _comparing(_embed(encoder), _judge(judge, judge_url))
    pairs = [pair for some in by_file.values() for pair in some]
    with stage_bars("answers") as report:
        compared = list(compare_all(pairs, compare, report))
    if mistakes is not None:
        write_rows(mistakes, mistaken_rows(compared))
    result = summarise_answers(compared)
    if json:
        print_json({"files": [*by_file], "encoder": encoder, "judge": judge, **result})
    else:
        _print(result)


def _comparing(embed: Embed | None, judge: Judging | None) -> Compare:
    from cachestack.answers import compare

    return lambda x, y, question: compare(x, y, question, embed=embed, judge=judge)


def _embed(name: str) -> Embed | None:
    if name == NO_ENCODER:
        return None
    from cachestack.answers.encoding import SentenceVectors
    from cachestack.semantic.opening import open_encoder

    return SentenceVectors(open_encoder(name))


def _judge(model: str | None, url: str | None) -> Judging | None:
    if model is None:
        return None
    from cachestack.answers.judging import AnswerJudge

    if url is None:
        from cachestack.engines.transformers.engine import TransformersEngine

        return AnswerJudge(TransformersEngine(model, name="judge"))
    from cachestack.build import remote_engines

    return AnswerJudge(
        remote_engines({"judge": {"kind": "openai", "base_url": url, "model": model}}, home=None)["judge"]
    )


def _print(result: dict[str, Any]) -> None:
    table = plain_table("labelled", "pairs", "called same", "called different", "unknown")
    for name, label in (("labelled_same", "the same"), ("labelled_different", "different")):
        shares = result[name]
        table.add_row(
            label, f"{shares['same']['n']:,}", *(_rate(shares[key]) for key in ("same", "different", "unknown"))
        )
    print_table(table)
    table = plain_table("kind (label)", "pairs", "same", "different", "unknown")
    for kind, shares in result["by_kind"].items():
        outcome = shares["labelled_same"] if kind.endswith("(same)") else shares["labelled_different"]
        counts = (f"{outcome[key]['count']:,}" for key in ("same", "different", "unknown"))
        table.add_row(cell(kind), f"{outcome['same']['n']:,}", *counts)
    print_table(table)
    table = plain_table("language", "wrongly the same", "wrongly different", "unknown")
    for language, shares in {"all": result, **result["by_language"]}.items():
        table.add_row(cell(language), *(_rate(shares[key]) for key in ("wrong_same", "wrong_different", "unknown")))
    print_table(table)
    table = plain_table("settled by", "right", "wrongly the same", "wrongly different", "unknown")
    for by, counts in result["by"].items():
        table.add_row(by, *(f"{count:,}" for count in counts.values()))
    times = result["ms"]
    table.caption = f"a pair: median {times['median']:.2f} ms, 95% {times['p95']:.2f} ms, at most {times['max']:.1f} ms"
    table.caption_justify = "left"
    print_table(table)


def _rate(share: dict[str, Any]) -> str:
    low, high = share["interval"]
    return f"{share['rate']:.1%} ({low:.1%} to {high:.1%})"
