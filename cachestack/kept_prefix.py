"""The prefix that many items share, looked up, computed if need be, published, and leased while they are scored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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

    `runs` cover `num_tokens`; `cached_tokens` of them were in the pool before. `computed_tokens` were computed, some of
    them more than once where the model was changed. `reason` says what was found, or why nothing is reused. `users`:
    whose requests use it.
    """

    def __init__(
        self,
        scorer: LabelScorer,
        prefix: PrefixLayer,
        policy: Policy,
        tenant: str,
        timer: Callable[[], float] = time.perf_counter,
        *,
        users: Sequence[str | None] = (None,),
    ) -> None:
        self._scorer = scorer
        self._timer = timer
        self._prefix = prefix
        self._policy = policy
        self._tenant = tenant
        self._users = users
        self._unpaid_tokens = 0
        self._plan: PrefixPlan | None = None
        self._ids: tuple[int, ...] = ()
        self._prompt: Prompt | None = None
        self._fingerprint = ""
        self.runs: tuple[KVRun, ...] = ()
        self.cached_tokens = 0
        self.computed_tokens = 0
        self.reason: Reason | None = None

    @property
    def is_open(self) -> bool:
        return self.reason is not None

    @property
    def is_allowed(self) -> bool:
        """Whether the policy lets anything be reused."""
        return self._policy.prefix.enabled

    def take_computed(self) -> int:
        """The computed tokens for the first who asks, to whom they are counted; 0 for the others."""
        taken, self._unpaid_tokens = self._unpaid_tokens, 0
        return taken

    @property
    def num_tokens(self) -> int:
        return len(self._ids)

    def begins(self, ids: Sequence[int]) -> bool:
        """Whether a prompt begins with the prefix and goes on after it."""
        n = len(self._ids)
        return 0 < n < len(ids) and tuple(ids[:n]) == self._ids

    def open(self, first_items: Sequence[tuple[int, ...]], *, num_items: int) -> None:
        """Find the prefix of these prompts (at least one of all items), and have its KV ready."""
        if self._may_open():
            self._open(self._scorer.stable_tokens(first_items), first_items[0], num_items)

    def open_at(self, stable: tuple[int, ...], item: tuple[int, ...], *, num_items: int) -> None:
        """Have the KV of a known prefix ready, with which `item` begins; with none, nothing is reused."""
        if self._may_open():
            self._open(stable, item, num_items)

    def _may_open(self) -> bool:
        if not self._policy.prefix.enabled:
            self.reason = Reason.DISABLED
        elif self._scorer.unsupported_cache is not None:
            self.reason = Reason.UNSUPPORTED_CACHE
        return self.reason is None

    def _open(self, stable: tuple[int, ...], item: tuple[int, ...], num_items: int) -> None:
        if not stable:
            self.reason = Reason.NO_BOUNDARY
        elif num_items == 1 and len(stable) < self._policy.prefix.min_tokens:
            self.reason = Reason.PREFIX_TOO_SHORT  # not kept for others, it would cost a single item one more pass
        else:
            # One token more than the prefix, so that a look-up may match all of it and never more.
            self._fill(Prompt((*stable, item[len(stable)]), (Boundary(len(stable), "mark"),)))

    def renew(self) -> None:
        """The same prefix, if it is open, of the model as it is now: KV of another state fits none of its passes."""
        if self._prompt is not None:
            self._ids, self.runs = (), ()
            self._release()
            self._fill(self._prompt)

    def _fill(self, prompt: Prompt) -> None:
        self._prompt, self._fingerprint = prompt, self._scorer.fingerprint
        plan = self._plan = self._look_up(prompt, self._users[0])
        stable = prompt.ids[:-1]
        runs = list(plan.past)
        done = num_cached = sum(run.num_tokens for run in runs)
        new: list[KVRun] = []
        cost = self._prefix.costs.of(plan.fingerprint)
        for stop in sorted({*(p for p in plan.publish_at if done < p < len(stable)), len(stable)}):
            if done == stop:
                continue
            with self._scorer.turn:  # waiting for others is not what a prefill costs
                began = self._timer()
                run = self._scorer.compute([*runs, *new], stable[done:stop], kv_dtype=plan.kv_dtype)
                cost.observe(stop - done, self._timer() - began, past_tokens=done)
            if run is None:
                self.reason = Reason.NOT_FINITE
                return
            new.append(run)
            done = stop
        asked = tuple(run for run in new if run.start + run.num_tokens in plan.publish_at)
        if asked:
            detail = {"dtype": plan.kv_dtype or self._scorer.dtype}
            fingerprint = self._scorer.fingerprint  # as it is now: the layer keeps nothing where it has changed
            computed = Computed(Generation(""), asked, stable, fingerprint=fingerprint, detail=detail)
            self._prefix.publish(plan, prompt, computed)
        self.runs = self._scorer.ready([*runs, *new])
        self._ids = stable
        self.cached_tokens = num_cached
        self.computed_tokens += done - num_cached
        self._unpaid_tokens = self.computed_tokens
        self.reason = plan.lookup.reason
        for user in self._users[1:]:  # the pool learns that they have it too
            self._look_up(prompt, user).release()

    def _look_up(self, prompt: Prompt, user: str | None) -> PrefixPlan:
        return self._prefix.lookup(
            prompt,
            fingerprint=self._fingerprint,
            model=self._scorer.model,
            tenant=self._tenant,
            user=user,
            policy=self._policy.prefix,
            fallback=self._policy.fallback,
            unsupported=None,
        )

    def __enter__(self) -> KeptPrefix:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        if self._plan is not None:
            self._plan.release()
            self._plan = None
