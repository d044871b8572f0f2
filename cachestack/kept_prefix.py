"""The prefix that many items share, looked up, computed if need be, published, and leased while they are scored."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from cachestack.decisions import Reason
from cachestack.engines.base import Boundary, Computed, KVRun, Prompt
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer, PrefixPlan
from cachestack.requests import Generation

if TYPE_CHECKING:
    from cachestack.engines.transformers.scoring import LabelScorer


class KeptPrefix:
    """Ends its lease when its block ends. Before `open`, and where nothing can be reused, no prompt begins with it.

    `runs` cover `num_tokens`; `cached_tokens` of them were in the pool before. `reason` says what was found, or why
    nothing is reused.
    """

    def __init__(self, scorer: LabelScorer, prefix: PrefixLayer, policy: Policy, tenant: str) -> None:
        self._scorer = scorer
        self._prefix = prefix
        self._policy = policy
        self._tenant = tenant
        self._plan: PrefixPlan | None = None
        self._ids: tuple[int, ...] = ()
        self.runs: tuple[KVRun, ...] = ()
        self.cached_tokens = 0
        self.reason: Reason | None = None

    @property
    def is_open(self) -> bool:
        return self.reason is not None

    @property
    def num_tokens(self) -> int:
        return len(self._ids)

    def begins(self, ids: Sequence[int]) -> bool:
        """Whether a prompt begins with the prefix and goes on after it."""
        n = len(self._ids)
        return 0 < n < len(ids) and tuple(ids[:n]) == self._ids

    def open(self, first_items: Sequence[tuple[int, ...]]) -> None:
        """Find the prefix of these prompts (at least one), and have its KV ready."""
        if not self._policy.prefix.enabled:
            self.reason = Reason.DISABLED
        elif self._scorer.unsupported_cache is not None:
            self.reason = Reason.UNSUPPORTED_CACHE
        elif not (stable := self._scorer.stable_tokens(first_items)):
            self.reason = Reason.NO_BOUNDARY
        else:
            # One token more than the prefix, so that a look-up may match all of it and never more.
            self._fill(Prompt((*stable, first_items[0][len(stable)]), (Boundary(len(stable), "mark"),)))

    def _fill(self, prompt: Prompt) -> None:
        plan = self._plan = self._prefix.lookup(
            prompt,
            fingerprint=self._scorer.fingerprint,
            model=self._scorer.model,
            tenant=self._tenant,
            policy=self._policy.prefix,
            fallback=self._policy.fallback,
            unsupported=None,
        )
        stable = prompt.ids[:-1]
        runs = list(plan.past)
        done = self.cached_tokens = sum(run.num_tokens for run in runs)
        new: list[KVRun] = []
        for stop in sorted({*(p for p in plan.publish_at if done < p < len(stable)), len(stable)}):
            if done == stop:
                continue
            run = self._scorer.compute([*runs, *new], stable[done:stop])
            if run is None:
                self.reason = Reason.NOT_FINITE
                return
            new.append(run)
            done = stop
        asked = tuple(run for run in new if run.start + run.num_tokens in plan.publish_at)
        if asked:
            detail = {"dtype": self._scorer.dtype}
            fingerprint = self._scorer.fingerprint  # as it is now: the layer keeps nothing where it has changed
            computed = Computed(Generation(""), asked, stable, fingerprint=fingerprint, detail=detail)
            self._prefix.publish(plan, prompt, computed)
        self.runs = self._scorer.gather([*runs, *new])
        self._ids = stable
        self.reason = plan.lookup.reason

    def __enter__(self) -> KeptPrefix:
        if self._policy.prefix.enabled and self._scorer.unsupported_cache is None:
            _ = self._scorer.fingerprint  # hashes the weights, once a home: not on anybody's clock
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._plan is not None:
            self._plan.release()
