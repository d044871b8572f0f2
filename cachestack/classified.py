"""What a classification gives: one Label an item, and a summary of what the run did and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Label:
    """One item's result.

    `probability` is the label's share among the labels; `mass` is what the model gave all labels together, out of
    everything it could have written: a small mass means that it would rather have said something else. `scores` are
    what the labels were compared by: log-probabilities, per token or less the prior where that was asked. `label` is
    None where `error` says why the item could not be scored, or where `why` says what a decision would have fallen
    short of: then the result `abstained`, and `probability` is that of the best label.
    """

    label: str | None
    probability: float | None = None
    mass: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    why: str | None = None

    @property
    def abstained(self) -> bool:
        """Whether the item was scored, but no label was certain enough."""
        return self.why is not None


@dataclass(frozen=True, slots=True)
class ClassifySummary:
    """What a run did and cost. `seconds` does not count loading the model, nor the comparison.

    `compared` items were computed again as whole prompts, one by one, by a pass without any cache; `baseline_s` is
    what that took, None unless it was asked for all items. `max_logit_diff` is over the full vocabulary row.
    `cached_tokens` of the prefix's `prefix_tokens` were in the pool before; of all items' `prompt_tokens` together,
    `reused_tokens` were not computed again. `num_repeated` items had been asked before, in this run or an earlier one,
    and cost no pass; `static_share` is of the others.
    """

    num_items: int
    seconds: float
    static_share: float | None
    prompt_tokens: int
    reused_tokens: int
    prefix_tokens: int
    cached_tokens: int
    num_whole: int
    num_errors: int
    compared: int = 0
    baseline_s: float | None = None
    label_mismatches: int | None = None
    max_logit_diff: float | None = None
    by_first_token: bool = True
    reason: str | None = None
    scores: str = "sum"
    num_abstained: int = 0
    num_repeated: int = 0

    @property
    def speedup(self) -> float | None:
        return self.baseline_s / self.seconds if self.baseline_s is not None and self.seconds > 0 else None

    def to_json(self) -> dict[str, Any]:
        """The summary as the command prints it."""
        return {
            "items": self.num_items,
            "seconds": round(self.seconds, 3),
            "baseline_seconds": None if self.baseline_s is None else round(self.baseline_s, 3),
            "speedup": None if self.speedup is None else round(self.speedup, 2),
            "label_mismatches": self.label_mismatches,
            "max_logit_diff": self.max_logit_diff,
            "static_share": None if self.static_share is None else round(self.static_share, 4),
            "compared": self.compared,
            "items_per_s": round(self.num_items / self.seconds, 2) if self.seconds > 0 else None,
            "prompt_tokens": self.prompt_tokens,
            "reused_tokens": self.reused_tokens,
            "prefix_tokens": self.prefix_tokens,
            "cached_tokens": self.cached_tokens,
            "whole_prompts": self.num_whole,
            "repeated": self.num_repeated,
            "errors": self.num_errors,
            "abstained": self.num_abstained,
            "scores": self.scores,
            "scored_by": "first_token" if self.by_first_token else "whole_label",
            "prefix_reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class ClassifyReport:
    """Results in input order; iterating gives one Label an item."""

    results: tuple[Label, ...]
    summary: ClassifySummary

    def __iter__(self) -> Iterator[Label]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Label:
        return self.results[index]
