"""The second opinion on a pair: does what both texts say show that one answer serves both?

A verifier may be slow and may fail; whoever calls it treats any failure as "does not agree".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cachestack.semantic.text import Text


@dataclass(frozen=True, slots=True)
class Agreement:
    """`agrees` is None where the verifier cannot tell. `score` is from 0 to 1; `evidence` is JSON-able."""

    agrees: bool | None
    score: float
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Side:
    """One question as a verifier sees it. `states`: its packed token states, or empty."""

    text: Text
    states: bytes = b""


def probability(log_odds: float) -> float:
    """NaN stays NaN: that is no agreement."""
    if math.isnan(log_odds):
        return math.nan
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, log_odds))))


class Verifier(Protocol):
    """Asked only about pairs that no guard is certain to be different. `similarity` is the cosine."""

    @property
    def name(self) -> str: ...

    def verify(self, cached: Side, asked: Side, similarity: float) -> Agreement: ...


class TextVerifier(Protocol):
    """Reads the two texts themselves; may take time and may fail. `score`: the first verifier's, from 0 to 1."""

    def verify_texts(self, cached: str, asked: str, score: float) -> Agreement: ...
