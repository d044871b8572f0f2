"""Labelling many texts by constrained scoring, over one kept prefix.

The chat template, the system prompt and the fixed beginning of the item template are the same for every item: they are
computed once, kept by the prefix layer under the tenant's salt, and the rest of each item is packed behind them.
An item whose tokens do not begin with that prefix is computed whole; nothing is ever guessed at the seam. One that was
asked before is not computed again: in this window of items its scores are there, before that its kept logits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cachestack.classified import ClassifyReport, ClassifySummary, Label
from cachestack.classifying import Classifying, OnResults, Progress
from cachestack.errors import UsageError
from cachestack.kept_prefix import KeptPrefix
from cachestack.labelling import Deciding, Scores
from cachestack.passes import TenantRows
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.rows import LogitRows

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine

__all__ = ["ClassifyReport", "ClassifySummary", "Label", "classify", "spread"]


def classify(
    engine: TransformersEngine,
    prefix: PrefixLayer,
    policy: Policy,
    texts: Sequence[str],
    labels: Iterable[str],
    *,
    prompt: str,
    template: str = "{text}",
    tenant: str = "default",
    user: str | None = None,
    scores: Scores = "sum",
    min_probability: float = 0.0,
    min_mass: float = 0.0,
    rows: LogitRows | None = None,
    verify: int = 0,
    baseline: bool = False,
    progress: Progress | None = None,
    on_results: OnResults | None = None,
    timer: Callable[[], float] = time.perf_counter,
) -> ClassifyReport:
    """Label each text.

    `prompt`: the stable system text. `template` makes an item's user message: `{text}` is replaced, other braces stay.
    `scores`, `min_probability` and `min_mass`: what labels are compared by, and below what share or mass no label is
    given (see `cachestack.labelling`). `rows`: kept logits, so that what was asked before costs no pass.
    `verify` items, spread over the texts, or all with `baseline`, are computed again as whole prompts and compared.
    `on_results` gets each stretch of results as it is ready, in input order, with the index of its first item.

    A text that cannot be scored (empty, too long for the model) gives a Label with an error; the others go on. Raises
    LabelError for unusable labels, UsageError for a template without `{text}` and for thresholds that are no shares.
    """
    check_template(template)
    how = Deciding(scores, min_probability, min_mass)
    if isinstance(texts, str):
        raise UsageError("texts are a list of texts, not one text")
    if verify < 0:
        raise UsageError(f"verify must be a number of items, not {verify}")
    from cachestack.engines.transformers.labels import check_labels
    from cachestack.engines.transformers.scoring import LabelScorer

    labels = labels if isinstance(labels, str) else tuple(labels)
    check_labels(labels)  # before a model is opened
    scorer = LabelScorer(engine, labels, prompt=prompt, template=template, whole=scores == "mean")
    compared = frozenset(range(len(texts)) if baseline else spread(len(texts), verify))
    with KeptPrefix(scorer, prefix, policy, tenant, users=(user,)) as kept:
        shown = TenantRows.of(rows, scorer, policy, tenant)
        run = Classifying(scorer, kept, shown, user, how, texts, compared, progress, on_results, timer)
        run.go()
        return ClassifyReport(tuple(run.results), run.summary(baseline=baseline))


def check_template(template: str) -> None:
    """Raises UsageError for a template without `{text}`."""
    if "{text}" not in template:
        raise UsageError(f"the template {template!r} has no {{text}}; write {{text}} where the item's text belongs")


def spread(num_items: int, num_chosen: int) -> tuple[int, ...]:
    """Indices of `num_chosen` items evenly spread, the first and last included where there are two."""
    if num_chosen <= 1 or num_items <= 1:
        return tuple(range(min(num_chosen, num_items)))
    n = min(num_chosen, num_items)
    return tuple(i * (num_items - 1) // (n - 1) for i in range(n))
