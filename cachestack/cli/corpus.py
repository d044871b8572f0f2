"""`cachestack corpus`: the questions that come with CacheStack, checked, counted, and as pairs for `eval pairs`."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from cachestack.cli.output import JsonOption, plain_table, print_error, print_json, print_table, stderr_console
from cachestack.corpus.load import SPLITS, AnswerPart, Split, load_answers, load_conversations, load_questions, pairs_of
from cachestack.corpus.schema import Question

app = typer.Typer(help="Questions with rewordings and near misses (cachestack-pairs, CC BY 4.0).", no_args_is_help=True)
SplitOption = Annotated[Split, typer.Option("--split", help="Which part.")]


@app.command("check")
def check_command(json: JsonOption = False) -> None:
    """Check the installed corpus against its datasheet, and count it. Exit status 1 if something is wrong."""
    from cachestack.corpus.check import check

    splits: dict[str, Sequence[Question]] = {name: load_questions(name) for name in SPLITS}
    found = check(splits)
    counts = {
        "questions": found.num_questions,
        "rewordings": found.num_rewordings,
        "near_misses": found.num_near_misses,
        "conversations": len(load_conversations()),
        "answer_pairs": len(load_answers()),
        "french_share": round(found.french_share, 4),
        "far_share": round(found.far_share, 4),
        "masked_share": round(found.masked_share, 4),
        "by_split": {name: len(questions) for name, questions in splits.items()},
        "by_domain": dict(sorted(found.by_domain.items())),
        "by_kind": dict(sorted(found.by_kind.items())),
        "problems": list(found.problems),
    }
    if json:
        print_json(counts)
    else:
        table = plain_table("what", "number")
        for name, value in counts.items():
            if isinstance(value, dict):
                for key, number in value.items():
                    table.add_row(f"{name.removeprefix('by_')} {key}", str(number))
            elif name != "problems":
                table.add_row(name.replace("_", " "), str(value))
        print_table(table)
        for problem in found.problems:
            print_error(problem)
    if found.problems:
        raise typer.Exit(1)


@app.command("answers")
def answers_command(
    part: Annotated[AnswerPart, typer.Option("--part", help="Which part. The test part is for the last look.")] = "dev",
) -> None:
    """Write the pairs of answers of one part as JSONL, for `cachestack eval answers`."""
    pairs = load_answers(part)
    for pair in pairs:
        sys.stdout.write(pair.model_dump_json() + "\n")
    stderr_console().print(f"{len(pairs)} pairs of answers of the {part} part, CC BY 4.0")


@app.command("pairs")
def pairs_command(split: SplitOption = "validation") -> None:
    """Write the pairs of one split as JSONL, for `cachestack eval pairs`. The test part is for the last look."""
    pairs = list(pairs_of(load_questions(split)))
    for pair in pairs:
        sys.stdout.write(json_module.dumps(pair, ensure_ascii=False) + "\n")
    stderr_console().print(f"{len(pairs)} pairs of the {split} part, CC BY 4.0")
