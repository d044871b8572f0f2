"""`cachestack eval freshness`: labelled questions from files, or the corpus's own."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import typer

from cachestack.cli.eval.options import PolicyOption, PolicyTenantOption, chosen_policy
from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table
from cachestack.corpus.load import Split
from cachestack.errors import InputFileError

CORPUS = "corpus"
_NAMES = {"fast": "fast-changing", "slow": "slow-changing", "moving": "moving", "never": "never-changing"}


def evaluate_freshness(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE...]",
            help="JSONL with question, and changes (never, slow, fast) or time_dependent; none: the corpus's own.",
        ),
    ] = None,
    policy: PolicyOption = None,
    policies: PoliciesOption = None,
    tenant: PolicyTenantOption = None,
    split: Annotated[
        Split | None,
        typer.Option("--split", help="Which part, where lines name theirs; the corpus's: validation, unless given."),
    ] = None,
    half: Annotated[
        Literal["a", "b"] | None, typer.Option("--only-half", help="One half of each file's questions.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """How many moving questions would be cached long, and how many of the others would not."""
    from cachestack.evaluation.freshness import judge_all, summarise

    chosen = chosen_policy(policy, policies, tenant)
    now_s = time.time()
    results = {
        name: summarise(judge_all(questions, chosen, now_s))
        for name, questions in _questions(files or [], split, half).items()
    }
    if json:
        print_json(results)
        return
    for name, result in results.items():
        _print(name, result)


def _questions(files: list[str], split: Split | None, half: Literal["a", "b"] | None) -> dict[str, Any]:
    from cachestack.corpus import load_freshness
    from cachestack.evaluation.freshness import LabelledQuestion, in_half, read_questions

    if files:
        found = {file: read_questions(file) for file in files}
        if split is not None:
            found = {file: tuple(q for q in questions if q.split == split) for file, questions in found.items()}
    else:
        part = load_freshness(split or "validation")
        found = {CORPUS: tuple(LabelledQuestion(q.question, q.changes, q.language, q.split) for q in part)}
    if half is not None:
        found = {file: tuple(q for q in questions if in_half(q, half)) for file, questions in found.items()}
    for file, questions in found.items():
        if not questions:
            raise InputFileError(f"{file}: no questions are in the part that was asked for")
    return found


def _print(name: str, result: dict[str, Any]) -> None:
    from rich.markup import escape

    table = plain_table("", "questions", "taken for never", "slow", "fast", title=escape(name))
    for label, found in result["by_label"].items():
        table.add_row(_NAMES[label], f"{found['n']:,}", *(_rate(found[c]) for c in ("never", "slow", "fast")))
    print_table(table)
    table = plain_table("", "language", "share", "95% interval")
    languages = result["by_language"] if len(result["by_language"]) > 1 else {}
    for language, found in {"": result, **languages}.items():
        for label, share in found["cached_long"].items():
            _row(table, f"{_NAMES[label]}, cached long", language, share)
        for fate, share in found["never"].items():
            _row(table, f"never-changing, {fate}", language, share)
    print_table(table)
    if result["curve"]:
        table = plain_table("never-changing shortened", "moving cached long", "95% interval", "score")
        for point in result["curve"]:
            long = point["moving_cached_long"]
            table.add_row(f"{point['never_shortened']:.1%}", _rate(long), _interval(long), f"{point['threshold']:.3f}")
        print_table(table)
    table = plain_table("evidence", "questions", "judged wrongly")
    for cue, counts in list(result["by_evidence"].items())[:20]:
        wrong = counts.get("wrong", 0)
        table.add_row(escape(cue), f"{sum(counts.values()) - wrong:,}", f"{wrong:,}")
    print_table(table)


def _row(table: Any, what: str, language: str, share: dict[str, Any]) -> None:
    if share["n"]:
        table.add_row(what, language, f"{share['count']:,} of {share['n']:,}: {_rate(share)}", _interval(share))


def _rate(share: dict[str, Any]) -> str:
    return f"{share['rate']:.1%}"


def _interval(share: dict[str, Any]) -> str:
    low, high = share["interval"]
    return f"{low:.1%} to {high:.1%}"
