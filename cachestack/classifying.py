"""One classification under way: windows of items, what is known of them, packs of the others, results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from cachestack.classified import ClassifySummary, Label
from cachestack.errors import ContextTooLong, RequestError
from cachestack.kept_prefix import KeptPrefix
from cachestack.labelling import Decider, Deciding
from cachestack.passes import TenantRows, decider, score_alone, score_behind

if TYPE_CHECKING:
    from cachestack.engines.transformers.scoring import LabelScorer, LabelScores

WINDOW_ITEMS = 512
"""Items tokenised at a time, so that memory does not grow with the file."""

FIRST_ITEMS = 32
"""Items whose prompts are compared to find the prefix."""

Progress = Callable[[int, int], None]
"""Called with the number of items done and of all items: first with none done, then as results are ready."""

OnResults = Callable[[int, Sequence[Label]], None]
"""Called with the index of the first of some results, and these results, in input order."""


@dataclass(frozen=True, slots=True)
class _Item:
    """An item that can be scored: its place in the input and its tokens."""

    index: int
    ids: tuple[int, ...]


_Twins = Mapping[tuple[int, ...], Sequence[_Item]]


class Classifying:
    """See `cachestack.classify.classify`, which makes one and calls `go` once.

    Times are kept apart: ours, tokenising (both sides pay it), the baseline's.
    """

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
        # Hashes the weights, once a home: not on anybody's clock.
        self._fingerprint = scorer.fingerprint if kept.is_allowed else ""
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
            self._notice_a_changed_model()
            known, new = self._known(new)
            if (new or (known and self._how.scores == "prior")) and not self._kept.is_open:
                began = self._timer()
                self._kept.open(
                    [item.ids for item in new[:FIRST_ITEMS]] or self._scorer.content_free(), num_items=len(self._texts)
                )
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

    def _notice_a_changed_model(self) -> None:
        """An adapter switched or a weight written to since the last pass: from here on all is of the model as it is."""
        if not self._kept.is_allowed or (now := self._scorer.fingerprint) == self._fingerprint:
            return
        self._fingerprint, self._decider, self._yardstick = now, None, None
        if self._rows is not None:
            self._rows = replace(self._rows, fingerprint=now)
        self._kept.renew()

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
        self._notice_a_changed_model()
        if self._kept.begins(group[0].ids):
            prompts = [item.ids for item in group]
            scores = score_behind(self._scorer, self._kept, self._rows, prompts, [self._user] * len(group))
            self._shares += [self._kept.num_tokens / len(item.ids) for item in group]
            self._reused_tokens += self._kept.num_tokens * len(group)
        else:
            scores = tuple(score_alone(self._scorer, self._rows, item.ids, self._user) for item in group)
            self._shares += [0.0] * len(group)
            self._num_whole += len(group)
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
