"""A tenant's policy: what each layer may do, and what happens when it doubts."""

from __future__ import annotations

from pydantic import model_validator

from cachestack.policy.admission import AdmissionPolicy
from cachestack.policy.budget import BudgetPolicy
from cachestack.policy.freshness import FreshnessPolicy
from cachestack.policy.limits import LimitsPolicy, RetentionPolicy
from cachestack.policy.model import DecodePolicy, FallbackPolicy, PrefixPolicy
from cachestack.policy.prices import PricePolicy
from cachestack.policy.section import Section
from cachestack.policy.semantic import SemanticPolicy


class Policy(Section):
    """One tenant's policy: a section a layer, and one each for fallback, retention, prices, limits, freshness, for what
    may be kept and for the error budget."""

    semantic: SemanticPolicy = SemanticPolicy()
    prefix: PrefixPolicy = PrefixPolicy()
    decode: DecodePolicy = DecodePolicy()
    fallback: FallbackPolicy = FallbackPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    prices: PricePolicy = PricePolicy()
    limits: LimitsPolicy = LimitsPolicy()
    admission: AdmissionPolicy = AdmissionPolicy()
    budget: BudgetPolicy = BudgetPolicy()
    freshness: FreshnessPolicy = FreshnessPolicy()

    @model_validator(mode="after")
    def _a_score_to_act_on(self) -> Policy:
        if self.budget.is_on and self.semantic.verifiers[:1] != ("local",):
            raise ValueError(
                "budget.max_wrong_hit_rate needs a score to act on: semantic.verifiers must begin with local"
            )
        return self

    @property
    def stale_if_error_s(self) -> float:
        """How long after its end an answer may serve where the engine fails; 0 where it may not."""
        if self.freshness.stale_if_error_s is not None:
            return self.freshness.stale_if_error_s
        return self.fallback.stale_within_s if "stale" in self.fallback.engine_error else 0.0

    @property
    def on_engine_error(self) -> tuple[str, ...]:
        """The steps of `fallback.engine_error`, with `stale` before the end where only `freshness` says so."""
        steps: tuple[str, ...] = self.fallback.engine_error
        if not self.freshness.stale_if_error_s or "stale" in steps:
            return steps
        return (*(step for step in steps if step != "raise"), "stale", "raise")
