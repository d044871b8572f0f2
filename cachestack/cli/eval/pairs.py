"""`cachestack eval pairs`: pairs with a judgement from files."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import typer

from cachestack.build import DEFAULT_ENCODER
from cachestack.cli.eval.judged import Wanted, report_on
from cachestack.cli.eval.options import (
    EncoderOption,
    PolicyOption,
    PolicyTenantOption,
    SweepOption,
    check_plot,
    chosen_policy,
)
from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption
from cachestack.errors import InputFileError, UsageError
from cachestack.evaluation.pairs import STDIN, Pair, read_pairs


def evaluate_pairs(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="JSONL with a, b, same_answer, and category, language; - is stdin."),
    ],
    policy: PolicyOption = None,
    policies: PoliciesOption = None,
    tenant: PolicyTenantOption = None,
    encoder: EncoderOption = DEFAULT_ENCODER,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Pairs of each file, from its start.")] = None,
    half: Annotated[
        Literal["a", "b"] | None,
        typer.Option("--only-half", help="One half of each file's pairs; those that share a text stay together."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Draws the halves; 0 unless given.")] = None,
    sweep: SweepOption = None,
    mistakes: Annotated[
        Path | None,
        typer.Option("--mistakes", "--errors", metavar="FILE", help="Write wrongly served and missed pairs as JSONL."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """For each pair: a asked and answered, b asked. Counts what was served of what should be, and of the traps."""
    if files.count(STDIN) > 1:
        raise UsageError("standard input (-) can be read once")
    if seed is not None and half is None:
        raise UsageError("--seed draws the halves of --only-half; give both, or neither")
    check_plot(sweep)
    chosen = chosen_policy(policy, policies, tenant)
    by_file = {file: _pairs(file, limit, half, seed or 0) for file in files}
    report_on(by_file, Wanted(chosen, encoder, json, mistakes, sweep))


def _pairs(file: str, limit: int | None, half: Literal["a", "b"] | None, seed: int) -> tuple[Pair, ...]:
    if half is None:
        return read_pairs(file, limit)
    from cachestack.evaluation.halves import only_half

    found = tuple(islice(only_half(read_pairs(file), half, seed), limit))
    if not found:
        raise InputFileError(f"{file}: no pairs are in half {half} with seed {seed}")
    return found
