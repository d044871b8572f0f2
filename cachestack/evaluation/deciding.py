"""What decided about a pair, in one word: a band, a guard, a verifier, or the reason why none was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.decisions import Reason
from cachestack.evaluation.judging import Outcome


def decided_by(outcome: Outcome) -> str:
    """Such as `exact`, `band:accept`, `guard:numbers`, `verifier:local:agree`, `below_threshold`, `beyond_window`.

    What served and what refused never share a word: a verifier that could not tell is `…:undecided` where that was a
    miss, and `…:undecided:served` where the policy serves in doubt.
    """
    return word_for(outcome.reason, outcome.detail, served=outcome.served)


def word_for(reason: Reason, detail: Mapping[str, Any], *, served: bool) -> str:
    """As `decided_by`, from a decision."""
    match reason:
        case Reason.GUARD_REJECTED:
            return f"guard:{detail.get('guard', 'unknown')}"
        case Reason.CONTEXT_DIFFERS:
            return f"context:{detail.get('kind', 'unknown')}"
        case Reason.SIMILAR:
            return f"band:{detail.get('band', 'accept')}"
        case Reason.VALIDATED:
            return f"verifier:{verifier_name(detail)}:{'undecided:served' if detail.get('in_doubt') else 'agree'}"
        case Reason.NOT_VALIDATED if not isinstance(detail.get("verifier"), Mapping):
            return f"band:{detail.get('band', 'validate')}:refuse"  # a policy without verifiers
        case Reason.NOT_VALIDATED:
            return f"verifier:{verifier_name(detail)}:{_refusal(detail)}"
        case _:
            return f"{reason.value}:served" if served and reason is not Reason.EXACT else reason.value


def verifier_name(detail: Mapping[str, Any]) -> str:
    """Which verifier was asked last; one that only reads words does not name itself."""
    verifier = detail.get("verifier")
    name = verifier.get("name") if isinstance(verifier, Mapping) else None
    return name if isinstance(name, str) and name else "lexical"


def _refusal(detail: Mapping[str, Any]) -> str:
    verifier = detail.get("verifier")
    said = verifier if isinstance(verifier, Mapping) else {}
    if "error" in said:
        return "failed"
    return "undecided" if detail.get("in_doubt") or said.get("agrees", False) is None else "refuse"
