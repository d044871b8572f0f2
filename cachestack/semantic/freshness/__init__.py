"""Whether the answer to a question moves with time, and how long one may therefore be kept and served."""

from __future__ import annotations

from cachestack.semantic.freshness.classifying import Freshness, freshness_of
from cachestack.semantic.freshness.cues import Changes

__all__ = ["Changes", "Freshness", "freshness_of"]
