"""Which decisions by meaning are worth a look: how near each was to having gone the other way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cachestack.decisions import Reason
from cachestack.evaluation.deciding import word_for
from cachestack.evaluation.scores import verifier_score
from cachestack.policy import SemanticPolicy
from cachestack.requests import Message

FAR = 0.1
"""A pair whose cosine is so much below the threshold is no doubt."""

_COMPARED = (Reason.SIMILAR, Reason.VALIDATED, Reason.GUARD_REJECTED, Reason.NOT_VALIDATED, Reason.BELOW_THRESHOLD)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A pair that was compared: `a` kept, `b` asked. `margin`: how far the decision was from the other one, 0 the
    nearest; a guard that is certain adds 1. `times`: how often the pair came up."""

    margin: float
    a: tuple[Message, ...]
    b: tuple[Message, ...]
    served: bool
    decided_by: str
    similarity: float
    score: float | None
    threshold: float
    guard: str | None
    certain: bool
    place_a: str
    place_b: str
    tenant: str
    times: int = 1


def is_compared(reason: Reason) -> bool:
    """Whether two texts were compared by meaning."""
    return reason in _COMPARED


def margin_of(reason: Reason, detail: Mapping[str, Any], policy: SemanticPolicy) -> tuple[float, float]:
    """How far a decision was from the other one, and the threshold that it is measured from."""
    similarity = float(detail.get("similarity", 0.0))
    if reason is Reason.GUARD_REJECTED:
        return 1 - similarity + bool(detail.get("certain", True)), policy.reject_below
    score = verifier_score(detail)
    if score is not None:
        return abs(score - policy.accept_score), policy.accept_score
    threshold = policy.reject_below if reason is Reason.BELOW_THRESHOLD else policy.accept_from
    return abs(similarity - threshold), threshold


def doubt_of(
    reason: Reason,
    detail: Mapping[str, Any],
    policy: SemanticPolicy,
    *,
    served: bool,
    kept: str,
    asked: tuple[Message, ...],
    place: str,
    tenant: str,
) -> Doubt | None:
    """`kept` is the question of the entry that was compared. None for a pair that is far apart.

    An entry is only compared under the same contract: the turns before the last message are those of `asked`.
    """
    margin, threshold = margin_of(reason, detail, policy)
    if reason is Reason.BELOW_THRESHOLD and margin > FAR:
        return None
    return Doubt(
        margin=margin,
        a=(*asked[:-1], replace(asked[-1], content=kept)),
        b=asked,
        served=served,
        decided_by=word_for(reason, detail, served=served),
        similarity=float(detail.get("similarity", 0.0)),
        score=verifier_score(detail),
        threshold=threshold,
        guard=detail.get("guard"),
        certain=bool(detail.get("certain", False)),
        place_a=str(detail.get("entry_id", "")),
        place_b=place,
        tenant=tenant,
    )


class Doubts:
    """The pairs of the smallest margins, each once: `max_pairs` of them, in memory for at most four times as many."""

    def __init__(self, max_pairs: int) -> None:
        self._max_pairs = max_pairs
        self._found: dict[tuple[str, tuple[Message, ...], tuple[Message, ...]], Doubt] = {}

    def add(self, doubt: Doubt) -> None:
        key = (doubt.tenant, doubt.a, doubt.b)
        before = self._found.get(key)
        self._found[key] = doubt if before is None else replace(before, times=before.times + 1)
        if len(self._found) > 4 * self._max_pairs:
            kept = sorted(self._found.items(), key=lambda item: item[1].margin)[: 2 * self._max_pairs]
            self._found = dict(kept)

    def nearest(self) -> tuple[Doubt, ...]:
        """By margin, of equals in the order of the log."""
        return tuple(sorted(self._found.values(), key=lambda doubt: doubt.margin)[: self._max_pairs])
