"""Labelling many texts by constrained scoring, over one kept prefix.

The chat template, the system prompt and the fixed beginning of the item template are the same for every item: they are
computed once, kept by the prefix layer under the tenant's salt, and the rest of each item is packed behind them.
An item whose tokens do not begin with that prefix is computed whole; nothing is ever guessed at the seam. One that was
asked before is not computed again: in this window of items its scores are there, before that its kept logits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from cachestack.classified import ClassifyReport, ClassifySummary, Label
from cachestack.errors import ContextTooLong, RequestError, UsageError
from cachestack.kept_prefix import KeptPrefix
from cachestack.labelling import Decider, Deciding, Scores
from cachestack.passes import TenantRows, decider, score_alone, score_behind
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.rows import LogitRows

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine
    from cachestack.engines.transformers.scoring import LabelScorer, LabelScores

__all__ = ["ClassifyReport", "ClassifySummary", "Label", "classify", "spread"]

WINDOW_ITEMS = 512
"""Items tokenised at a time, so that memory does not grow with the file."""

FIRST_ITEMS = 32
"""Items whose prompts are compared to find the prefix."""

Progress = Callable[[int, int], None]
"""Called with the number of items done and of all items: first with none done, then as results are ready."""

OnResults = Callable[[int, Sequence[Label]], None]
"""Called with the index of the first of some results, and these results, in input order."""


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
        run = _Run(scorer, kept, shown, user, how, texts, compared, progress, on_results, timer)
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


@dataclass(frozen=True, slots=True)
class _Item:
    """An item that can be scored: its place in the input and its tokens."""

    index: int
    ids: tuple[int, ...]


_Twins = Mapping[tuple[int, ...], Sequence[_Item]]


class _Run:
    """One classification under way. Times are kept apart: ours, tokenising (both sides pay it), the baseline's."""

    def __init__(
        self,
        scorer: LabelScorer,
        kept: KeptPrefix,
        rows: TenantRows | None,
        user: str | None,
        how: Deciding,
        texts: Sequence[str],
        compared: frozenset[int],
        progress: Progress | None,
        on_results: OnResults | None,
        timer: Callable[[], float],
    ) -> None:
        self._scorer = scorer
        self._kept = kept
        self._rows = rows
        self._user = user
        self._how = how
        self._decider: Decider | None = None
        self._yardstick: Decider | None = None
        self._texts = texts
        self._compared = compared
        self._progress = progress
        self._on_results = on_results
        self._timer = timer
        self._ready: dict[int, Label] = {}
        self._shares: list[float] = []
        self._tokenise_s = self._score_s = self._baseline_s = self._max_diff = 0.0
        self._num_whole = self._num_compared = self._mismatches = self._num_repeated = 0
        self._prompt_tokens = self._reused_tokens = 0
        self.results: list[Label] = []

    def go(self) -> None:
        self._report_progress()
        for start in range(0, len(self._texts), WINDOW_ITEMS):
            items = self._tokenised(range(start, min(start + WINDOW_ITEMS, len(self._texts))))
            new, twins = self._without_twins(items)
            known, new = self._known(new)
            if (new or (known and self._how.scores == "prior")) and not self._kept.is_open:
                began = self._timer()
                self._kept.open([item.ids for item in new[:FIRST_ITEMS]] or self._scorer.content_free())
                self._score_s += self._timer() - began
            self._answer(known, twins)
            for group in self._groups(new):
                self._score(group, twins)
            self._hand_out()

    def _tokenised(self, indices: range) -> list[_Item]:
        """Items of one window; those that cannot be scored get their result here."""
        began = self._timer()
        items: list[_Item] = []
        for index in indices:
            try:
                items.append(_Item(index, self._scorer.tokenise(self._texts[index])))
            except (RequestError, ContextTooLong) as error:
                self._ready[index] = Label(None, error=str(error))
        self._tokenise_s += self._timer() - began
        return items

    def _without_twins(self, items: Sequence[_Item]) -> tuple[list[_Item], _Twins]:
        """Each prompt once, in order, and the other items of the same prompt by its tokens."""
        if not self._kept.is_allowed:
            return list(items), {}
        twins: dict[tuple[int, ...], list[_Item]] = {}
        new: list[_Item] = []
        for item in items:
            if item.ids in twins:
                twins[item.ids].append(item)
            else:
                twins[item.ids] = []
                new.append(item)
        return new, twins

    def _known(self, items: Sequence[_Item]) -> tuple[list[tuple[_Item, LabelScores]], list[_Item]]:
        """Those that kept logits answer, with their scores, and the others."""
        if self._rows is None:
            return [], list(items)
        began = self._timer()
        found = [(item, self._rows.find(self._scorer, item.ids, self._user)) for item in items]
        self._score_s += self._timer() - began
        known = [(item, scores) for item, scores in found if scores is not None]
        return known, [item for item, scores in found if scores is None]

    def _answer(self, known: Sequence[tuple[_Item, LabelScores]], twins: _Twins) -> None:
        if not known:
            return
        began = self._timer()
        self._decided_by()  # a prior takes passes, which are counted here
        self._score_s += self._timer() - began
        for item, scores in known:
            self._repeat((item, *twins.get(item.ids, ())), scores)
        self._hand_out()

    def _groups(self, items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
        """Packs, and single items that do not begin with the prefix, ordered by their first item."""
        from cachestack.engines.transformers.packing import plan_packs

        fitting = [item for item in items if self._kept.begins(item.ids)]
        lengths = [len(item.ids) - self._kept.num_tokens for item in fitting]
        packs = [[fitting[i] for i in pack] for pack in plan_packs(lengths, self._scorer.pack_tokens)]
        others = [[item] for item in items if not self._kept.begins(item.ids)]
        yield from sorted([*packs, *others], key=lambda group: group[0].index)

    def _score(self, group: Sequence[_Item], twins: _Twins) -> None:
        began = self._timer()
        if self._kept.begins(group[0].ids):
            prompts = [item.ids for item in group]
            scores = score_behind(self._scorer, self._kept, self._rows, prompts, [self._user] * len(group))
            self._shares += [self._kept.num_tokens / len(item.ids) for item in group]
            self._reused_tokens += self._kept.num_tokens * len(group)
        else:
            scores = (score_alone(self._scorer, self._rows, group[0].ids, self._user),)
            self._shares.append(0.0)
            self._num_whole += 1
        self._decided_by()
        self._score_s += self._timer() - began
        self._prompt_tokens += sum(len(item.ids) for item in group)
        for item, scored in zip(group, scores, strict=True):
            self._settle(item, scored)
            self._repeat(twins.get(item.ids, ()), scored)
        self._hand_out()

    def _repeat(self, items: Sequence[_Item], scored: LabelScores) -> None:
        """Items whose scores are known already: none of their tokens is computed."""
        for item in items:
            self._num_repeated += 1
            self._prompt_tokens += len(item.ids)
            self._reused_tokens += len(item.ids)
            self._settle(item, scored)

    def _settle(self, item: _Item, scored: LabelScores) -> None:
        by = self._decided_by()
        self._ready[item.index] = by.label(scored.scores)
        if item.index in self._compared:
            self._compare(item, scored, by)

    def _decided_by(self) -> Decider:
        if self._decider is None:
            self._decider = decider(self._scorer, self._how, self._kept, self._rows)
        return self._decider

    def _compare(self, item: _Item, ours: LabelScores, ours_by: Decider) -> None:
        """The same item as a whole prompt, right after its pack: both sides meet the machine in the same state."""
        began = self._timer()
        if self._yardstick is None:
            self._yardstick = decider(self._scorer, self._how, None, None)
        whole = self._scorer.whole(item.ids)
        self._baseline_s += self._timer() - began
        self._num_compared += 1
        # The best label, given or not: a threshold is no part of the comparison.
        self._mismatches += self._yardstick.best(whole.scores) != ours_by.best(ours.scores)
        self._max_diff = max(self._max_diff, self._scorer.difference(ours, whole))

    def _hand_out(self) -> None:
        """Pass on what is ready, as far as it is in input order without a gap."""
        start = len(self.results)
        while (label := self._ready.pop(len(self.results), None)) is not None:
            self.results.append(label)
        if len(self.results) == start:
            return
        if self._on_results is not None:
            self._on_results(start, self.results[start:])
        self._report_progress()

    def _report_progress(self) -> None:
        if self._progress is not None:
            self._progress(len(self.results), len(self._texts))

    def summary(self, *, baseline: bool) -> ClassifySummary:
        compared = self._num_compared > 0
        return ClassifySummary(
            num_items=len(self._texts),
            seconds=self._tokenise_s + self._score_s,
            static_share=median(self._shares) if self._shares else None,
            prompt_tokens=self._prompt_tokens,
            # The first to use the prefix computes what was not kept before.
            reused_tokens=max(0, self._reused_tokens - self._kept.computed_tokens),
            prefix_tokens=self._kept.num_tokens,
            cached_tokens=self._kept.cached_tokens,
            num_whole=self._num_whole,
            num_errors=sum(label.error is not None for label in self.results),
            compared=self._num_compared,
            baseline_s=self._tokenise_s + self._baseline_s if baseline else None,
            label_mismatches=self._mismatches if compared else None,
            max_logit_diff=self._max_diff if compared else None,
            by_first_token=self._scorer.labels.by_first_token,
            reason=self._kept.reason,
            scores=self._how.scores,
            num_abstained=sum(label.abstained for label in self.results),
            num_repeated=self._num_repeated,
        )
