"""The ways to the same logits that are timed against each other, over one kept prefix.

Every way computes logits at the scoring position only, in the same process, with the model, attention, threads and
flags of the engine. Ours are the product's own calls: the look-up with its lease, the fork, the pass, the labels'
scores and the end of the lease are all in the time. Tokenising is in none.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from cachestack.bench.prompt import FewShot
from cachestack.decisions import Reason
from cachestack.engines.base import Boundary, Prompt, exhaust
from cachestack.engines.transformers.adapter import cache_argument, forward
from cachestack.engines.transformers.kv import new_cache
from cachestack.engines.transformers.packing import plan_packs
from cachestack.errors import EngineError, UsageError
from cachestack.policy import FallbackPolicy, PrefixPolicy
from cachestack.prefix.layer import PrefixLayer, PrefixPlan
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Message, Request, Sampling

if TYPE_CHECKING:
    from cachestack.engines.transformers.engine import TransformersEngine

POOL_BYTES = 4 * 1024**3  # a limit that no model met here reaches
TENANT = "bench"
DECLARED_ONLY = PrefixPolicy(min_tokens=1, keep_conversations=False)
EVERYTHING = PrefixPolicy(min_tokens=1)
# One token is chosen and none is fed: a request that ends with the prompt's pass.
ONE_TOKEN = Request((Message("user", "bench"),), sampling=Sampling(temperature=0, max_new_tokens=1))


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """`run(i)` computes for the ticket `i`, and `num_items` tickets from `i` on in a pack. What it returns is logits
    `[items, vocabulary]`, or None for a way whose logits are not handed out."""

    name: str
    run: Callable[[int], torch.Tensor | None]
    num_items: int = 1


class Ways:
    """All columns of one prefix. Making it computes the prefix twice: for the recipe, and for our pool."""

    def __init__(self, engine: TransformersEngine, prompts: FewShot, *, max_pack_items: int | None = None) -> None:
        if engine.unsupported_cache is not None:
            raise UsageError(f"the prefixes of this model cannot be kept: {engine.unsupported_cache}")
        if not prompts.scorer.pack_tokens:
            raise UsageError(
                "this model takes no 4-D masks, so that nothing can be packed; use sdpa or eager attention"
            )
        self.prompts = prompts
        self._engine = engine
        self._model = engine.loaded.model
        self.pack_items = len(plan_packs([len(s) for s in prompts.suffixes], prompts.scorer.pack_tokens)[0])
        if max_pack_items is not None:
            self.pack_items = min(self.pack_items, max_pack_items)
        self._kept = new_cache(self._model.config)  # the recipe's: Transformers' own cache, by its own rules
        forward(self._model, input_ids=self._ids(prompts.prefix), cache=self._kept)
        self._layer = _empty_layer()
        self.cold(0)

    @property
    def columns(self) -> dict[str, Column]:
        """By name, in the order of a first repetition. No answer of before is used in any: each one computes."""
        columns = (
            Column("whole", self.whole),
            Column("recipe", self.recipe),
            Column("single", self.single),
            Column("packed", self.packed, self.pack_items),
            Column("floor", self.floor),
            Column("cold", self.cold_again),
            Column("miss", self.miss),
            Column("miss_keeping", self.miss_keeping),
        )
        return {column.name: column for column in columns}

    def whole(self, index: int) -> torch.Tensor:
        return forward(self._model, input_ids=self._ids(self.prompts.whole(index)))[0]

    def floor(self, index: int) -> torch.Tensor:
        """The suffix as if it were a prompt: other logits, and the least that an item can cost in a pass of its own."""
        return forward(self._model, input_ids=self._ids(self.prompts.suffix(index)))[0]

    def recipe(self, index: int) -> torch.Tensor:
        """What is written by hand: keep the prefix's cache, feed the suffix, crop it away again."""
        suffix = self._ids(self.prompts.suffix(index))
        with torch.no_grad():
            logits: torch.Tensor = self._model(
                input_ids=suffix, **{cache_argument(self._model): self._kept}, use_cache=True, logits_to_keep=1
            ).logits
        self._kept.crop(-suffix.shape[1])
        return logits[0]

    def single(self, index: int) -> torch.Tensor:
        with self.hit(index) as plan:
            return self._scored(plan, index, 1)

    def packed(self, index: int) -> torch.Tensor:
        with self.hit(index) as plan:
            return self._scored(plan, index, self.pack_items)

    def cold_again(self, index: int) -> None:
        """The first run with a declared prefix, on a pool that holds nothing."""
        self._layer, kept = _empty_layer(), self._layer
        try:
            self.cold(index)
        finally:
            self._layer = kept

    def cold(self, index: int) -> None:
        """Look-up, prefill split at the prefix's end, one token chosen, prefix published."""
        prompt = self.declared(index)
        with self._planned(prompt, DECLARED_ONLY) as plan:
            computed = exhaust(self._engine.stream_tokens(ONE_TOKEN, prompt, plan.past, plan.publish_at))
            published = self._layer.publish(plan, prompt, computed)
        if published is None or published.num_tokens != len(self.prompts.prefix):
            raise EngineError(f"the prefix was not kept: {published.reason if published else 'nothing was asked for'}")

    def miss(self, index: int) -> None:
        """A prompt without a boundary, of which nothing is kept."""
        self._without_boundary(index, DECLARED_ONLY)

    def miss_keeping(self, index: int) -> None:
        """The same under the default policy, which keeps it as the beginning of a conversation."""
        self._layer, kept = _empty_layer(), self._layer
        try:
            self._without_boundary(index, EVERYTHING)
        finally:
            self._layer = kept

    def cold_row(self, index: int) -> torch.Tensor:
        """Logits of a first run: the prefix's pass, then the suffix's."""
        run = self.prompts.scorer.compute((), self.prompts.prefix)
        if run is None:
            raise EngineError("the prefix has values that are not finite; check the model and its dtype")
        row: torch.Tensor = self.prompts.scorer.score((run,), [self.prompts.suffix(index)])[0].row
        return row

    def declared(self, index: int) -> Prompt:
        return Prompt(self.prompts.whole(index), (Boundary(len(self.prompts.prefix), "mark"),))

    def hit(self, index: int, fingerprint: str | None = None) -> Planned:
        """A look-up that finds the whole prefix; its lease ends with the block.

        Without `fingerprint` the engine is asked, which looks at all weights for changes, as each request does.
        """
        return self._planned(self.declared(index), DECLARED_ONLY, fingerprint)

    def _scored(self, plan: PrefixPlan, index: int, num_items: int) -> torch.Tensor:
        scored = self.prompts.scorer.score(plan.past, self.prompts.pack(index, num_items))
        return torch.stack([item.row for item in scored])

    def _without_boundary(self, index: int, policy: PrefixPolicy) -> None:
        prompt = replace(self.declared(index), boundaries=(), refusal=Reason.NO_BOUNDARY)
        with self._planned(prompt, policy) as plan:
            computed = exhaust(self._engine.stream_tokens(ONE_TOKEN, prompt, plan.past, plan.publish_at))
            self._layer.publish(plan, prompt, computed)

    def _planned(self, prompt: Prompt, policy: PrefixPolicy, fingerprint: str | None = None) -> Planned:
        return Planned(
            self._layer.lookup(
                prompt,
                fingerprint=fingerprint or self._engine.fingerprint,
                model=self._engine.model,
                tenant=TENANT,
                policy=policy,
                fallback=FallbackPolicy(),
            )
        )

    def _ids(self, ids: tuple[int, ...]) -> Any:
        return torch.tensor([ids], dtype=torch.long, device=self._engine.loaded.device)


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan whose lease ends with its block."""

    plan: PrefixPlan

    def __enter__(self) -> PrefixPlan:
        return self.plan

    def __exit__(self, *_: object) -> None:
        self.plan.release()


def _empty_layer() -> PrefixLayer:
    return PrefixLayer(BlockPool(POOL_BYTES), secrets.token_bytes(32))
