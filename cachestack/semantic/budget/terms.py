"""What a budget lets one look-up do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cachestack.decisions import Best, Hit, Miss, Reason
from cachestack.entries import Candidate, Entry
from cachestack.policy import FallbackPolicy, SemanticPolicy
from cachestack.semantic.budget.state import Mode


@dataclass(frozen=True, slots=True)
class Terms:
    """`threshold`: None where nothing is served. `denied` entries were found wrong for this question, `right` ones were
    compared and found right, `due` ones were served for it so often that it is time to compare them. Entries from
    before `trusted_from_s` are not matched by meaning: what was found wrong about them is lost."""

    mode: Mode
    threshold: float | None
    denied: frozenset[str] = frozenset()
    right: frozenset[str] = frozenset()
    due: frozenset[str] = frozenset()
    trusted_from_s: float = 0.0

    def allowed(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return [
            c for c in candidates if c.entry.entry_id not in self.denied and c.entry.created_at_s >= self.trusted_from_s
        ]

    def policies(self, semantic: SemanticPolicy, fallback: FallbackPolicy) -> tuple[SemanticPolicy, FallbackPolicy]:
        """With the threshold of the moment, and the first verifier alone: it is its score that the budget watches."""
        return _at(semantic, 1.0 if self.threshold is None else self.threshold), _strict(fallback)

    def known(
        self, candidates: Sequence[Candidate], semantic: SemanticPolicy, now_s: float, max_age_s: float
    ) -> Hit[Entry] | None:
        """A pair that was compared and found right is served whatever its score."""
        if self.mode is not Mode.SERVING or not self.right:
            return None
        for candidate in candidates:
            entry = candidate.entry
            near = candidate.similarity >= (semantic.accept_from if semantic.sensitive else semantic.reject_below)
            if entry.entry_id in self.right and near and entry.is_live(now_s, max_age_s):
                detail = {"similarity": round(candidate.similarity, 4), "entry_id": entry.entry_id, "compared": True}
                return Hit(Reason.VALIDATED, entry, detail | {"age_s": round(now_s - entry.created_at_s, 3)})
        return None

    def applied(self, decision: Hit[Entry] | Miss) -> Hit[Entry] | Miss:
        """What may become of a decision; each says the state and the threshold in force."""
        told: dict[str, Any] = {"budget": {"state": self.mode.value, "threshold": self.threshold}}
        if isinstance(decision, Miss):
            return replace(decision, detail={**decision.detail, **told})
        if self.mode is Mode.SERVING and decision.value.entry_id in self.due:
            return Miss(
                Reason.DUE, {**decision.detail, **told}, best=Best(decision.value, score_of(decision.detail), True)
            )
        if self.mode is Mode.SERVING and (self.threshold is not None or decision.detail.get("compared")):
            return replace(decision, detail={**decision.detail, **told})
        reason = Reason.SUSPENDED if self.mode is Mode.SUSPENDED else Reason.SHADOW
        return Miss(reason, {**decision.detail, **told}, best=Best(decision.value, score_of(decision.detail), True))


def score_of(detail: Any) -> float:
    """The first verifier's score that a decision's detail tells; 1 for a pair that was compared."""
    said = detail.get("verifier")
    return float(said["score"]) if isinstance(said, dict) and said.get("score") is not None else 1.0


@lru_cache(maxsize=256)
def _at(semantic: SemanticPolicy, threshold: float) -> SemanticPolicy:
    changed = {"accept_score": threshold, "doubt_score": min(semantic.doubt_score, threshold)}
    return semantic.model_copy(update=changed | {"verifiers": semantic.verifiers[:1]})


@lru_cache(maxsize=64)
def _strict(fallback: FallbackPolicy) -> FallbackPolicy:
    return fallback.model_copy(update={"semantic_doubt": "miss"})
