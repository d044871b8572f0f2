"""`cachestack eval conversations`: the conversations that come with CacheStack, judged as `eval pairs` would."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cachestack.build import DEFAULT_ENCODER
from cachestack.cli.eval.judged import Wanted, report_on
from cachestack.cli.eval.options import EncoderOption, PolicyOption, PolicyTenantOption, chosen_policy
from cachestack.cli.options import PoliciesOption
from cachestack.cli.output import JsonOption
from cachestack.corpus.load import load_conversations
from cachestack.errors import UsageError
from cachestack.evaluation.conversations import Split, conversation_pairs


def evaluate_conversations(
    split: Annotated[
        Split, typer.Option("--split", help="Which part, by id. Word lists were written with the tuning part in view.")
    ] = "held-out",
    seed: Annotated[int, typer.Option("--seed", help="Draws the small talk and the other histories.")] = 0,
    policy: PolicyOption = None,
    policies: PoliciesOption = None,
    tenant: PolicyTenantOption = None,
    encoder: EncoderOption = DEFAULT_ENCODER,
    mistakes: Annotated[
        Path | None,
        typer.Option("--mistakes", metavar="FILE", help="Write wrongly served and missed pairs; not of held-out."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """The same last turn after other turns, and whole conversations in other words: what is served of each."""
    if mistakes is not None and split != "tuning":
        raise UsageError("only the tuning part shows its pairs: one that was read can be tuned on; use --split tuning")
    chosen = chosen_policy(policy, policies, tenant)
    by_set = conversation_pairs(load_conversations(), split, seed)
    report_on(
        {f"{name} ({split}, seed {seed})": pairs for name, pairs in by_set.items()},
        Wanted(chosen, encoder, json, mistakes),
    )
