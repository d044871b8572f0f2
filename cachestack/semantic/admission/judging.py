"""The judgement on one answer: kept for all, for its user alone, or for nobody, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from cachestack.decisions import Reason
from cachestack.policy import Policy
from cachestack.requests import Generation, Request
from cachestack.semantic.admission import examine
from cachestack.semantic.admission.disclosures import personal_data_in, secrets_in


class Scope(Enum):
    ALL = "all"
    USER = "user"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Admission:
    """`reason` and `detail`: why not for all."""

    scope: Scope
    reason: Reason | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


FOR_ALL = Admission(Scope.ALL)


def admission_of(request: Request, policy: Policy, made: Generation) -> Admission:
    """By what the answer says, and what stands in it and in the question. That it is text, and of what size, has been
    looked at before."""
    asks = request.question if request.messages[-1].role == "user" else ""
    admission = policy.admission
    if admission.refused:
        cut_by_request = bool(request.sampling.stop) or request.messages[-1].role == "assistant"
        ends_anywhere = made.finish_reason == "length" or cut_by_request
        found = examine(asks, request.system, made.text, admission.refused, may_end_anywhere=ends_anywhere)
        if found is not None:
            return Admission(Scope.NOBODY, found.reason, found.evidence)
    is_walled = "user" in policy.semantic.walls
    scope, reason, detail = Scope.ALL, None, dict[str, Any]()
    for kept, why, find in (
        (admission.secrets, Reason.SECRET, secrets_in),
        (admission.personal_data, Reason.PERSONAL_DATA, personal_data_in),
    ):
        if kept == "keep" or (kept == "scope_to_user" and is_walled):
            continue
        found_in = find(request.question, made.text, request.system, admission.public)
        if found_in is None:
            continue
        said = {"kinds": list(found_in.kinds), "where": list(found_in.where)}
        if kept == "refuse" or request.user is None:
            return Admission(Scope.NOBODY, why, said)
        if scope is Scope.ALL:
            scope, reason, detail = Scope.USER, why, said
    return FOR_ALL if reason is None else Admission(scope, reason, detail)
