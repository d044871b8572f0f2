"""How sure a decision was, as one number: what thresholds are swept over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cachestack.decisions import Reason
from cachestack.evaluation.deciding import verifier_name
from cachestack.evaluation.judging import Outcome
from cachestack.policy import Policy

UNGRADED = ("lexical",)
"""Verifiers whose score is a share of words, nearly always all or nothing: no scale to sweep over."""


def score_of(outcome: Outcome) -> float | None:
    """The verifier's score where one was asked that grades, else the similarity.

    Infinite for the very same question, minus infinite where a guard refused; None where nothing was compared: another
    contract, a text beyond the window, a language of which the encoder knows nothing.
    """
    if outcome.reason is Reason.EXACT:
        return math.inf
    if outcome.reason is Reason.GUARD_REJECTED:
        return -math.inf
    score = verifier_score(outcome.detail)
    return similarity_of(outcome) if score is None else score


def similarity_of(outcome: Outcome) -> float | None:
    """The cosine alone: infinite for the very same question, None where nothing was compared."""
    if outcome.reason is Reason.EXACT:
        return math.inf
    return _number(outcome.detail.get("similarity"))


def verifier_score(detail: Mapping[str, Any]) -> float | None:
    """What a verifier that grades said, or None."""
    verifier = detail.get("verifier")
    if not isinstance(verifier, Mapping) or verifier_name(detail) in UNGRADED:
        return None
    return _number(verifier.get("score"))


def scale_of(outcomes: tuple[Outcome, ...]) -> str:
    """What `score_of` gives for these: `verifier:NAME`, several names joined by `+`, or `similarity`."""
    names = sorted({verifier_name(o.detail) for o in outcomes if verifier_score(o.detail) is not None})
    return f"verifier:{'+'.join(names)}" if names else "similarity"


def with_open_bands(policy: Policy) -> Policy:
    """The policy with all thresholds open: every pair that no guard is certain about gets a score of the last verifier,
    however far apart its texts are."""
    bands = {"reject_below": 0.0, "accept_from": 1.0, "doubt_score": 0.0, "accept_score": 1.0, "sensitive": False}
    return policy.model_copy(update={"semantic": policy.semantic.model_copy(update=bands)})


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None
