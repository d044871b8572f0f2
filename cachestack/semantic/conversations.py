"""Which candidates may serve a question in a conversation: those that lean on the same, by the policy.

Exact keys hold the whole history; by meaning a question meets entries of other histories. What this module refuses is
never served, whatever the verifier would say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from cachestack.entries import Candidate
from cachestack.keys import Contract
from cachestack.policy import SemanticPolicy
from cachestack.requests import Message
from cachestack.semantic.context import (
    NOTHING_BEFORE,
    Context,
    Meeting,
    compared,
    context_of,
    dumps,
    language_of,
    loads,
    turn_of,
)

WIDER = 8
"""How many times as many candidates are looked at where some are of other conversations."""
_UNKNOWN = Meeting(False, "unknown")
_OTHER_HISTORY = Meeting(False, "other_history")


@dataclass(frozen=True, slots=True)
class Sorted:
    """Candidates in order. `fitting` may serve; `meetings` says of each of them that is of another history why, by
    entry. `refused` are the others, with the reason."""

    fitting: tuple[Candidate, ...]
    refused: tuple[tuple[Candidate, Meeting], ...]
    meetings: dict[str, Meeting] = field(default_factory=dict)


def kept_context(contract: Contract, messages: Sequence[Message], policy: SemanticPolicy) -> str:
    """What an entry keeps of the turns before its question; empty where there were none, or the policy has no use."""
    if contract.is_first or policy.conversations == "same_history":
        return ""
    return dumps(context_of(messages))


def sort_out(
    contract: Contract, messages: Sequence[Message], candidates: Sequence[Candidate], policy: SemanticPolicy
) -> Sorted:
    """Candidates that are too far to be served stay among the fitting ones. Nothing is read of a request without
    history where all candidates are without one too."""
    exact = contract.digest
    fitting: list[Candidate] = []
    refused: list[tuple[Candidate, Meeting]] = []
    meetings: dict[str, Meeting] = {}
    context: Context | None = None
    for candidate in candidates:
        if candidate.entry.contract == exact or not candidate.similarity >= policy.reject_below:
            fitting.append(candidate)
            continue
        if policy.conversations == "same_history":
            refused.append((candidate, _OTHER_HISTORY))
            continue
        try:
            context = context_of(messages) if context is None else context
            meeting = _meeting(candidate, messages, context, contract.group, policy)
        except Exception as failure:  # fail closed: what could not be read was not seen to be the same
            meeting = Meeting(False, "unread", {"error": f"{type(failure).__name__}: {failure}"})
        if meeting.same:
            fitting.append(candidate)
            meetings[candidate.entry.entry_id] = meeting
        else:
            refused.append((candidate, meeting))
    return Sorted(tuple(fitting), tuple(refused), meetings)


def _meeting(
    candidate: Candidate, messages: Sequence[Message], context: Context, group: str, policy: SemanticPolicy
) -> Meeting:
    entry = candidate.entry
    cached = NOTHING_BEFORE if entry.contract == group else _loaded(entry.context)
    if cached is None:
        return _UNKNOWN
    language = language_of(messages)
    asked = turn_of(messages[-1].content, language or entry.language, context)
    meeting = compared(turn_of(entry.question, entry.language or language, cached), asked)
    too_little = (policy.conversations == "alone" and meeting.kind != "stands_alone") or (
        policy.sensitive and meeting.kind == "told_otherwise"
    )
    return Meeting(False, "leans", meeting.evidence) if meeting.same and too_little else meeting


@lru_cache(maxsize=1024)
def _loaded(text: str) -> Context | None:
    return loads(text) if text else None


def evidence_of(meeting: Meeting) -> dict[str, Any]:
    """For the trace."""
    return {"kind": meeting.kind, **({"evidence": dict(meeting.evidence)} if meeting.evidence else {})}
