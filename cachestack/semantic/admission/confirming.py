"""Answers that other users must have got as well, before they serve all.

::

    user A's scope            claims (no request sees them)        what all share
    ┌───────────────┐         ┌───────────────────────┐            ┌───────────────┐
    │ A's answer    │←────────│ A, B asked this       │    enough  │ the answer,   │
    └───────────────┘         └───────────────────────┘   ───────→ │ confirmed by  │
    ┌───────────────┐              │                     agree     │ A and B       │
    │ B's answer    │←─────────────┘                               └───────────────┘
    └───────────────┘

An answer is kept in its user's own scope, and serves that user. The claims name only who asked; what they were
answered is read from each one's own entry, so that an entry that is removed counts for nothing. Answers that agree have
one entry id: whoever removes one, removes all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from cachestack.decisions import Reason
from cachestack.effects import FindExact
from cachestack.entries import Entry
from cachestack.keys import Contract, Partition, exact_key
from cachestack.semantic.layer import Asked

CLAIMS = "claims"
MAX_CLAIMANTS = 16
"""Of one question; the oldest go."""

SameAnswer = Callable[[str, str], bool]


def same_text(one: str, other: str) -> bool:
    """Equal but for letter case, white space and a full stop at the end."""
    return " ".join(one.casefold().split()).rstrip(" .") == " ".join(other.casefold().split()).rstrip(" .")


@dataclass(frozen=True, slots=True)
class Claim:
    """What became of an answer: CONFIRMED (it serves all), UNCONFIRMED or DISAGREED. `entry`: as it is to be kept, with
    what else is to be written."""

    reason: Reason
    entry: Entry
    ledger: Entry | None
    num_agreeing: int
    num_disagreeing: int


def claim(
    entry: Entry, asked: Asked, num_needed: int, same_answer: SameAnswer = same_text
) -> Generator[FindExact, Any, Claim]:
    """Compare an answer with those of other users to the very question. `entry`: as it would be kept for all; its
    principal is the user. Raises StoreError."""
    user, question = entry.principal, asked.request.question
    assert user is not None, "who has no user cannot confirm"
    at = replace(asked.partition, area=CLAIMS)
    key = exact_key(at, asked.contract, question)
    ledger: Entry | None = yield FindExact(at, key)
    others = [] if ledger is None else [name for name in ledger.confirmed_by if name != user]
    agreeing: list[Entry] = []
    num_disagreeing = 0
    for name in others:
        theirs: Entry | None = yield FindExact(*_own(asked.partition, name, asked.contract, question))
        if theirs is None or theirs.principal != name or theirs.expires_at_s <= entry.created_at_s:
            continue
        if same_answer(theirs.answer, entry.answer):
            agreeing.append(theirs)
        else:
            num_disagreeing += 1
    entry_id = agreeing[0].entry_id if agreeing else entry.entry_id
    if len(agreeing) >= num_needed:
        names = (*(theirs.principal or "" for theirs in agreeing), user)
        kept = replace(entry, entry_id=entry_id, confirmed_by=names)
        return Claim(Reason.CONFIRMED, kept, None, len(agreeing), num_disagreeing)
    partition, own_key = _own(asked.partition, user, asked.contract, question)
    kept = replace(entry, entry_id=entry_id, partition=partition, exact=own_key)
    names = (*others[-(MAX_CLAIMANTS - 1) :], user)
    noted = replace(
        entry,
        entry_id=f"claims-{key[:24]}",
        partition=at,
        exact=key,
        answer="",
        principal=None,
        vector=None,
        encoder=None,
        states=b"",
        confirmed_by=names,
    )
    reason = Reason.DISAGREED if num_disagreeing else Reason.UNCONFIRMED
    return Claim(reason, kept, noted, len(agreeing), num_disagreeing)


def _own(partition: Partition, user: str, contract: Contract, question: str) -> tuple[Partition, str]:
    own = replace(partition, user=user)
    return own, exact_key(own, contract, question)
