"""Labelling many texts by constrained scoring, over one kept prefix.

The chat template, the system prompt and the fixed beginning of the item template are the same for every item: they are
computed once, kept by the prefix layer under the tenant's salt, and the rest of each item is packed behind them.
An item whose tokens do not begin with that prefix is computed whole; nothing is ever guessed at the seam.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from cachestack.classified import ClassifyReport, ClassifySummary, Label
from cachestack.errors import ContextTooLong, RequestError, UsageError
from cachestack.kept_prefix import KeptPrefix
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer

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
    verify: int = 0,
    baseline: bool = False,
    progress: Progress | None = None,
    on_results: OnResults | None = None,
    timer: Callable[[], float] = time.perf_counter,
) -> ClassifyReport:
    """Label each text.

    `prompt`: the stable system text. `template` makes an item's user message: `{text}` is replaced, other braces stay.
    `verify` items, spread over the texts, or all with `baseline`, are computed again as whole prompts and compared.
    `on_results` gets each stretch of results as it is ready, in input order, with the index of its first item.

    A text that cannot be scored (empty, too long for the model) gives a Label with an error; the others go on. Raises
    LabelError for unusable labels, UsageError for a template without `{text}`.
    """
    check_template(template)
    if isinstance(texts, str):
        raise UsageError("texts are a list of texts, not one text")
    if verify < 0:
        raise UsageError(f"verify must be a number of items, not {verify}")
    from cachestack.engines.transformers.labels import check_labels
    from cachestack.engines.transformers.scoring import LabelScorer

    labels = labels if isinstance(labels, str) else tuple(labels)
    check_labels(labels)  # before a model is opened
    scorer = LabelScorer(engine, labels, prompt=prompt, template=template)
    compared = frozenset(range(len(texts)) if baseline else spread(len(texts), verify))
    with KeptPrefix(scorer, prefix, policy, tenant) as kept:
        run = _Run(scorer, kept, texts, compared, progress, on_results, timer)
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


class _Run:
    """One classification under way. Times are kept apart: ours, tokenising (both sides pay it), the baseline's."""

    def __init__(
        self,
        scorer: LabelScorer,
        kept: KeptPrefix,
        texts: Sequence[str],
        compared: frozenset[int],
        progress: Progress | None,
        on_results: OnResults | None,
        timer: Callable[[], float],
    ) -> None:
        self._scorer = scorer
        self._kept = kept
        self._texts = texts
        self._compared = compared
        self._progress = progress
        self._on_results = on_results
        self._timer = timer
        self._ready: dict[int, Label] = {}
        self._shares: list[float] = []
        self._tokenise_s = self._score_s = self._baseline_s = self._max_diff = 0.0
        self._num_whole = self._num_compared = self._mismatches = 0
        self._prompt_tokens = self._reused_tokens = 0
        self.results: list[Label] = []

    def go(self) -> None:
        self._report_progress()
        for start in range(0, len(self._texts), WINDOW_ITEMS):
            items = self._tokenised(range(start, min(start + WINDOW_ITEMS, len(self._texts))))
            if items and not self._kept.is_open:
                began = self._timer()
                self._kept.open([item.ids for item in items[:FIRST_ITEMS]])
                self._score_s += self._timer() - began
            for group in self._groups(items):
                self._score(group)
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

    def _groups(self, items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
        """Packs, and single items that do not begin with the prefix, ordered by their first item."""
        from cachestack.engines.transformers.packing import plan_packs

        fitting = [item for item in items if self._kept.begins(item.ids)]
        lengths = [len(item.ids) - self._kept.num_tokens for item in fitting]
        packs = [[fitting[i] for i in pack] for pack in plan_packs(lengths, self._scorer.pack_tokens)]
        others = [[item] for item in items if not self._kept.begins(item.ids)]
        yield from sorted([*packs, *others], key=lambda group: group[0].index)

    def _score(self, group: Sequence[_Item]) -> None:
        began = self._timer()
        if self._kept.begins(group[0].ids):
            suffixes = [item.ids[self._kept.num_tokens :] for item in group]
            scores = self._scorer.score(self._kept.runs, suffixes)
            if len(group) > 1 and not all(scored.is_finite for scored in scores):
                # A value that is not a number passes through any mask (0 × NaN): alone, it harms nobody else.
                scores = tuple(self._scorer.score(self._kept.runs, [suffix])[0] for suffix in suffixes)
            self._shares += [self._kept.num_tokens / len(item.ids) for item in group]
            self._reused_tokens += self._kept.num_tokens * len(group)
        else:
            scores = (self._scorer.whole(group[0].ids),)
            self._shares.append(0.0)
            self._num_whole += 1
        self._score_s += self._timer() - began
        self._prompt_tokens += sum(len(item.ids) for item in group)
        for item, scored in zip(group, scores, strict=True):
            self._ready[item.index] = self._label(scored)
            if item.index in self._compared:
                self._compare(item, scored)
        self._hand_out()

    def _label(self, scored: LabelScores) -> Label:
        if not scored.is_finite:
            return Label(None, error="the model's output is not a number")
        labels = self._scorer.labels.labels
        best = max(range(len(labels)), key=scored.scores.__getitem__)
        mass = math.fsum(math.exp(score) for score in scored.scores)
        share = 1 / math.fsum(math.exp(score - scored.scores[best]) for score in scored.scores)
        return Label(labels[best], share, min(mass, 1.0), dict(zip(labels, scored.scores, strict=True)))

    def _compare(self, item: _Item, ours: LabelScores) -> None:
        """The same item as a whole prompt, right after its pack: both sides meet the machine in the same state."""
        began = self._timer()
        whole = self._scorer.whole(item.ids)
        self._baseline_s += self._timer() - began
        self._num_compared += 1
        self._mismatches += self._label(whole).label != self._label(ours).label
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
            reused_tokens=max(0, self._reused_tokens - (self._kept.num_tokens - self._kept.cached_tokens)),
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
        )
