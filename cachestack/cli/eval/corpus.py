"""`cachestack eval corpus`: the questions that come with CacheStack, judged as `eval pairs` would."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
from cachestack.corpus.load import SOURCE, Split, load_questions, pairs_of
from cachestack.errors import UsageError
from cachestack.evaluation.pairs import pair_of


def evaluate_corpus(
    split: Annotated[Split, typer.Option("--split", help="Which part. The test part is for the last look.")] = (
        "validation"
    ),
    policy: PolicyOption = None,
    policies: PoliciesOption = None,
    tenant: PolicyTenantOption = None,
    encoder: EncoderOption = DEFAULT_ENCODER,
    sweep: SweepOption = None,
    mistakes: Annotated[
        Path | None,
        typer.Option("--mistakes", metavar="FILE", help="Write wrongly served and missed pairs; not of the test part."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """The pairs of cachestack-pairs, as `eval pairs` judges them: no file is needed."""
    if mistakes is not None and split == "test":
        raise UsageError(
            "the test part gives totals only: a pair that was read can be tuned on; use --split validation"
        )
    check_plot(sweep)
    chosen = chosen_policy(policy, policies, tenant)
    name = f"{SOURCE}/{split}"
    pairs = tuple(pair_of(row, f"{name}:{row['id']}") for row in pairs_of(load_questions(split)))
    report_on({name: pairs}, Wanted(chosen, encoder, json, mistakes, sweep))
