"""`cachestack eval admission`: which of labelled answers would be kept."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cachestack.cli.eval.options import PolicyOption, PolicyTenantOption, chosen_policy
from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption, cell, plain_table, print_json, print_table, stage_bars
from cachestack.corpus.load import AnswerPart, load_admission
from cachestack.errors import UsageError

CORPUS = "corpus"


def evaluate_admission(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE.jsonl…", help="Lines of question, answer, kind, language; none: those of the corpus."
        ),
    ] = None,
    part: Annotated[
        AnswerPart | None, typer.Option("--part", help="Of the corpus. The test part is for the last look.")
    ] = None,
    policy: PolicyOption = None,
    policies: PoliciesOption = None,
    tenant: PolicyTenantOption = None,
    mistakes: Annotated[
        Path | None,
        typer.Option("--mistakes", metavar="FILE", help="Write what was judged wrongly; not of the test part."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Of refusals, errors and cut answers: how many would be kept; of good answers: how many would not. By kind and
    language, with 95% intervals."""
    from cachestack.evaluation.admission import judge_examples, mistakes_of, read_examples, summarise_admission

    if files and part is not None:
        raise UsageError("--part is of the corpus; leave it out beside files")
    chosen = part or "dev"
    if mistakes is not None and not files and chosen == "test":
        raise UsageError("the test part gives totals only: an answer that was read can be tuned on; use --part dev")
    named = (
        {str(file): read_examples(file) for file in files} if files else {f"{CORPUS}/{chosen}": load_admission(chosen)}
    )
    kinds = frozenset(chosen_policy(policy, policies, tenant).admission.refused)
    results: dict[str, Any] = {}
    wrong: list[dict[str, Any]] = []
    with stage_bars("answers") as report:
        for name, examples in named.items():
            judged = []
            for number, one in enumerate(judge_examples(examples, kinds), start=1):
                judged.append(one)
                report(name, number, len(examples))
            results[name] = summarise_admission(judged)
            wrong += mistakes_of(judged)
    if mistakes is not None:
        mistakes.write_text("".join(json_module.dumps(one, ensure_ascii=False) + "\n" for one in wrong), "utf-8")
    if json:
        print_json({"files": results})
        return
    for name, result in results.items():
        _print(name, result)


def _print(name: str, result: Mapping[str, Any]) -> None:
    from rich.markup import escape

    table = plain_table("", "answers", "not kept", "rate", "95% interval", "taken for", title=escape(name))
    _row(table, "refusals and errors", result["refusals_and_errors"])
    for kind, share in result["by_kind"].items():
        _row(table, f"  {kind}", share, ", ".join(f"{one} {n:,}" for one, n in share["taken_for"].items()))
    if len(result["by_language"]) > 1:
        for language, shares in result["by_language"].items():
            for kind, share in shares.items():
                _row(table, f"{language}: {kind}", share)
    times = result["ms_per_answer"]
    table.caption = f"an answer: median {times['median']:.2f} ms, 95% {times['p95']:.2f} ms"
    table.caption_justify = "left"
    print_table(table)


def _row(table: Any, label: str, share: Mapping[str, Any], taken_for: str = "") -> None:
    low, high = share["interval"]
    table.add_row(
        cell(label),
        f"{share['n']:,}",
        f"{share['refused']:,}",
        f"{share['rate']:.1%}" if share["n"] else "–",
        f"{low:.1%} to {high:.1%}" if share["n"] else "",
        cell(taken_for),
    )
