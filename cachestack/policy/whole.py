"""A tenant's policy: what each layer may do, and what happens when it doubts."""

from __future__ import annotations

from cachestack.policy.limits import LimitsPolicy, RetentionPolicy
from cachestack.policy.model import DecodePolicy, FallbackPolicy, PrefixPolicy
from cachestack.policy.prices import PricePolicy
from cachestack.policy.section import Section
from cachestack.policy.semantic import SemanticPolicy


class Policy(Section):
    """One tenant's policy: a section a layer, one for fallback, one for retention, one for prices, one for limits."""

    semantic: SemanticPolicy = SemanticPolicy()
    prefix: PrefixPolicy = PrefixPolicy()
    decode: DecodePolicy = DecodePolicy()
    fallback: FallbackPolicy = FallbackPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    prices: PricePolicy = PricePolicy()
    limits: LimitsPolicy = LimitsPolicy()
