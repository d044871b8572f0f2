"""What an examination of an answer finds, and the kinds of answers that a policy may refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cachestack.decisions import Reason

REASON_OF: Mapping[str, Reason] = {
    "refusal": Reason.REFUSAL,
    "error": Reason.ERROR_TEXT,
    "cut_off": Reason.CUT_OFF,
    "placeholder": Reason.PLACEHOLDER,
    "asks_back": Reason.ASKS_BACK,
}
"""By the policy's names of kinds (`admission.refused`)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind`: one of REASON_OF. `evidence` says what gave it away, in the examination's own words: none of the
    answer's stand in it."""

    kind: str
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reason(self) -> Reason:
        return REASON_OF[self.kind]
