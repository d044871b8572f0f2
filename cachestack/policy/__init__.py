"""Policies: a section a file."""

from cachestack.policy.admission import AdmissionPolicy
from cachestack.policy.budget import BudgetPolicy
from cachestack.policy.freshness import FreshnessPolicy
from cachestack.policy.limits import LimitsPolicy, RetentionPolicy
from cachestack.policy.model import DecodePolicy, FallbackPolicy, PrefixPolicy
from cachestack.policy.prices import PricePolicy
from cachestack.policy.section import Section
from cachestack.policy.semantic import SemanticPolicy
from cachestack.policy.whole import Policy

__all__ = [
    "AdmissionPolicy",
    "BudgetPolicy",
    "DecodePolicy",
    "FallbackPolicy",
    "FreshnessPolicy",
    "LimitsPolicy",
    "Policy",
    "PrefixPolicy",
    "PricePolicy",
    "RetentionPolicy",
    "Section",
    "SemanticPolicy",
]
