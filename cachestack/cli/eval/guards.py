"""`cachestack eval guards`: what each guard catches of the near misses of the corpus, and what it wrongly stops."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cachestack.cli.output import JsonOption, plain_table, print_json, print_table
from cachestack.corpus.load import Split, load_questions, pairs_of


def evaluate_guards(
    split: Annotated[Split, typer.Option("--split", help="Which part. The test part is for the last look.")] = (
        "validation"
    ),
    json: JsonOption = False,
) -> None:
    """For each guard: near misses caught, by kind, and rewordings rejected, with certainty and in doubt."""
    from cachestack.evaluation.guards import corpus_pairs, count, summarise_guards

    result = summarise_guards(count(corpus_pairs(pairs_of(load_questions(split)))))
    if json:
        print_json({"split": split, "guards": result})
    else:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    table = plain_table("certain", "near misses caught", "en", "fr", "rewordings stopped", "95% interval", "en", "fr")
    for name, found in result.items():
        caught, stopped = found["near_misses"], found["rewordings"]
        by_language = [found[key] for key in ("near_misses_by_language", "rewordings_by_language")]
        table.add_row(
            name,
            f"{caught['certain_rate']:.1%}",
            *(_rate(by_language[0], language) for language in ("en", "fr")),
            f"{stopped['certain_rate']:.2%}",
            f"{stopped['certain_low']:.2%}-{stopped['certain_high']:.2%}",
            *(_rate(by_language[1], language, 2) for language in ("en", "fr")),
        )
    print_table(table)
    table = plain_table("in doubt", "near misses", "rewordings")
    for name, found in result.items():
        table.add_row(name, f"{found['near_misses']['doubt_rate']:.1%}", f"{found['rewordings']['doubt_rate']:.1%}")
    print_table(table)
    table = plain_table("kind of near miss", "pairs", "certain, any guard", "the guards that catch most")
    *_, whole = result.values()
    for kind, share in whole["by_kind"].items():
        table.add_row(kind, f"{share['n']:,}", f"{share['certain_rate']:.1%}", _leaders(result, kind))
    print_table(table)


def _rate(shares: dict[str, Any], language: str, digits: int = 1) -> str:
    return f"{shares[language]['certain_rate']:.{digits}%}" if language in shares else ""


def _leaders(result: dict[str, Any], kind: str) -> str:
    *guards, _ = result.items()
    best = sorted(guards, key=lambda item: -item[1]["by_kind"][kind]["certain"])[:3]
    rates = ((name, found["by_kind"][kind]["certain_rate"]) for name, found in best)
    return ", ".join(f"{name} {rate:.1%}" for name, rate in rates if rate)
