"""Measure before you optimise: what keeping a prompt's stable part would save for given items, on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from cachestack.classify import check_template, spread
from cachestack.classifying import FIRST_ITEMS
from cachestack.errors import ContextTooLong, RequestError, UsageError

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine
    from cachestack.engines.transformers.scoring import LabelScorer

Verdict = Literal["worth it", "little", "no"]

NUM_TIMED_PROMPTS = 5
NUM_TIMED_PACKS = 3
WORTH_SPEEDUP = 1.5
LITTLE_SPEEDUP = 1.1
# Without labels, any one stands in: one row of logits is what a first token costs, whatever the label.
STAND_IN_LABELS = ("yes",)


@dataclass(frozen=True, slots=True)
class Range:
    """Smallest, middle and largest of some values."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Range:
        return cls(min(values), median(values), max(values))

    def to_json(self) -> dict[str, float]:
        return {"min": round(self.min, 4), "median": round(self.median, 4), "max": round(self.max, 4)}


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians on this machine, and what follows for all items.

    `whole_ms`: an item as a whole prompt, nothing kept. `packed_ms`: an item in a pack behind the kept prefix.
    `prefix_ms`: computing the prefix, once. `whole_s` and `kept_s`: all items either way.
    """

    whole_ms: float
    packed_ms: float
    prefix_ms: float
    whole_s: float
    kept_s: float

    @property
    def speedup(self) -> float:
        return self.whole_s / self.kept_s

    def to_json(self) -> dict[str, float]:
        return {
            "whole_ms": round(self.whole_ms, 2),
            "packed_ms": round(self.packed_ms, 2),
            "prefix_ms": round(self.prefix_ms, 2),
            "whole_s": round(self.whole_s, 3),
            "kept_s": round(self.kept_s, 3),
            "speedup": round(self.speedup, 2),
        }


@dataclass(frozen=True, slots=True)
class MeasureReport:
    """`num_unclean` items do not begin with the prefix's tokens and would be computed whole. `num_errors` items
    cannot be computed at all (empty, too long). `collisions`: labels that begin with the same token and so have to be
    scored whole; None where no labels were given. `static_share` is a fraction of each item's prompt."""

    num_items: int
    num_errors: int
    num_unclean: int
    prefix_tokens: int
    prompt_tokens: Range
    static_share: Range
    collisions: tuple[tuple[str, ...], ...] | None
    timing: Timing | None
    verdict: Verdict
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {
            "items": self.num_items,
            "errors": self.num_errors,
            "prefix_tokens": self.prefix_tokens,
            "prompt_tokens": self.prompt_tokens.to_json(),
            "static_share": self.static_share.to_json(),
            "token_clean": self.num_unclean == 0,
            "unclean_items": self.num_unclean,
            "label_collisions": None if self.collisions is None else [list(group) for group in self.collisions],
            "timing": None if self.timing is None else self.timing.to_json(),
            "verdict": self.verdict,
            "reason": self.reason,
        }


def measure(
    engine: TransformersEngine,
    prompt: str,
    texts: Sequence[str],
    *,
    template: str = "{text}",
    labels: Iterable[str] | None = None,
    timer: Callable[[], float] = time.perf_counter,
) -> MeasureReport:
    """Whether keeping `prompt` would pay for `texts`. All are tokenised; a few are computed, to time them.

    Raises UsageError where no text can be computed or the template has no `{text}`, and LabelError.
    """
    check_template(template)
    from cachestack.engines.transformers.labels import check_labels
    from cachestack.engines.transformers.scoring import LabelScorer

    if labels is not None:
        labels = labels if isinstance(labels, str) else tuple(labels)
        check_labels(labels)  # before a model is opened
    if not texts:
        raise UsageError("there is no item to measure: no texts were given")
    if isinstance(texts, str):
        raise UsageError("texts are a list of texts, not one text")
    scorer = LabelScorer(engine, labels or STAND_IN_LABELS, prompt=prompt, template=template)
    prompts: list[tuple[int, ...]] = []
    first_error: str | None = None
    for text in texts:
        try:
            prompts.append(scorer.tokenise(text))
        except (RequestError, ContextTooLong) as error:
            first_error = first_error or str(error)
    if not prompts:
        raise UsageError(f"there is no item to measure: {first_error or 'no texts were given'}")
    stable = scorer.stable_tokens(prompts[:FIRST_ITEMS])
    n = len(stable)
    clean = [ids for ids in prompts if ids[:n] == stable and len(ids) > n]
    timing = None
    if n and clean and scorer.unsupported_cache is None:
        timing = _time(scorer, stable, clean, num_whole=len(prompts) - len(clean), timer=timer)
    verdict, reason = _judge(timing, scorer.unsupported_cache, n, len(prompts), len(prompts) - len(clean))
    return MeasureReport(
        num_items=len(texts),
        num_errors=len(texts) - len(prompts),
        num_unclean=len(prompts) - len(clean),
        prefix_tokens=n,
        prompt_tokens=Range.of([len(ids) for ids in prompts]),
        static_share=Range.of([n / len(ids) if ids[:n] == stable else 0.0 for ids in prompts]),
        collisions=scorer.labels.collisions if labels else None,
        timing=timing,
        verdict=verdict,
        reason=reason,
    )


def _time(
    scorer: LabelScorer,
    stable: tuple[int, ...],
    clean: Sequence[tuple[int, ...]],
    *,
    num_whole: int,
    timer: Callable[[], float],
) -> Timing:
    """Whole prompts and packs, in turns, so that both meet the machine in the same state."""
    from cachestack.engines.transformers.packing import plan_packs

    n = len(stable)
    prompts = [clean[i] for i in spread(len(clean), NUM_TIMED_PROMPTS)]
    packs = plan_packs([len(ids) - n for ids in clean], scorer.pack_tokens)
    chosen = [packs[i] for i in spread(len(packs), NUM_TIMED_PACKS)]
    scorer.whole(prompts[0])  # the first pass of a process pays for its memory
    began = timer()
    run = scorer.compute((), stable)
    prefix_s = timer() - began
    if run is None:
        raise UsageError("the model's output for this prompt is not a number; check the model and its dtype")
    whole_s: list[float] = []
    item_s: list[float] = []
    for prompt, pack in _in_turns(prompts, chosen):
        began = timer()
        scorer.whole(prompt)
        whole_s.append(timer() - began)
        began = timer()
        scorer.score((run,), [clean[i][n:] for i in pack])
        item_s.append((timer() - began) / len(pack))
    whole, item = median(whole_s), median(item_s)
    return Timing(
        whole_ms=1000 * whole,
        packed_ms=1000 * item,
        prefix_ms=1000 * prefix_s,
        whole_s=whole * (len(clean) + num_whole),
        kept_s=prefix_s + item * len(clean) + whole * num_whole,
    )


def _in_turns(
    prompts: Sequence[tuple[int, ...]], packs: Sequence[tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """As many pairs as the longer list has; the shorter one starts again."""
    for i in range(max(len(prompts), len(packs))):
        yield prompts[i % len(prompts)], packs[i % len(packs)]


def _judge(
    timing: Timing | None, unsupported: str | None, num_prefix: int, num_items: int, num_unclean: int
) -> tuple[Verdict, str]:
    if unsupported is not None:
        return "no", f"this model's cache cannot be kept: {unsupported}"
    if timing is None:
        why = "the prompts share no tokens at their beginning" if not num_prefix else "no item begins with the prefix"
        return "no", f"{why}; put what is stable first"
    each = f"{timing.packed_ms:.0f} ms an item instead of {timing.whole_ms:.0f} ms"
    total = f"{timing.kept_s:.1f} s instead of {timing.whole_s:.1f} s for {num_items} items, prefix included"
    whole = f"; {num_unclean} items do not begin with the prefix and stay whole" if num_unclean else ""
    reason = f"{timing.speedup:.1f} times as fast: {each}; {total}{whole}"
    if timing.speedup >= WORTH_SPEEDUP:
        return "worth it", reason
    if timing.speedup >= LITTLE_SPEEDUP:
        return "little", reason
    if num_items < 3:
        return "no", f"the prefix would be used {num_items} time(s) and costs {timing.prefix_ms:.0f} ms; {reason}"
    return "no", f"the prefix is only {num_prefix} tokens long; {reason}"
