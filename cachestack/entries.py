"""A cached answer, as every store keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachestack.keys import Partition
from cachestack.requests import FinishReason

ENTRY_VERSION = 1
CLOCK_SLACK_S = 60.0
"""How far in the future an entry may have been made: a clock that was set back must not prolong its life."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One answered question.

    `vector` is the question's embedding as little-endian float32 bytes of unit length, or None for an entry that is
    only served for the exact same question; `states` are its packed token states, made by the same encoder, or empty.
    Times are seconds since the epoch. `created_at_s` is when the question was
    asked: an answer knows nothing of what happened while it was made. An entry is live while `now < expires_at_s`, and
    may be served as a stale answer, where the policy allows it, until `stale_until_s`.
    `engine_s` is how long the engine took to make the answer. `part_versions` are those of the parts of its prompt.
    """

    entry_id: str
    partition: Partition
    contract: str
    exact: str
    question: str
    answer: str
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    model: str
    created_at_s: float
    expires_at_s: float
    stale_until_s: float
    principal: str | None = None
    version: str | None = None
    tags: tuple[str, ...] = ()
    vector: bytes | None = None
    encoder: str | None = None
    language: str | None = None
    engine_s: float = 0.0
    part_versions: tuple[str, ...] = ()
    states: bytes = b""

    def is_live(self, now_s: float, max_age_s: float = math.inf) -> bool:
        """Whether it may be served now to someone who takes answers up to `max_age_s` old."""
        return self._is_of_the_past(now_s) and now_s < min(self.expires_at_s, self.created_at_s + max_age_s)

    def is_stale(self, now_s: float, max_age_s: float, stale_within_s: float) -> bool:
        """Whether it may be served as a stale answer, so long after it stopped being live for this asker."""
        expired_at_s = min(self.expires_at_s, self.created_at_s + max_age_s)
        return self._is_of_the_past(now_s) and now_s < min(self.stale_until_s, expired_at_s + stale_within_s)

    def _is_of_the_past(self, now_s: float) -> bool:
        return now_s >= self.created_at_s - CLOCK_SLACK_S

    def as_dict(self) -> dict[str, Any]:
        """Plain values; `vector` and `states` stay bytes."""
        return {"v": ENTRY_VERSION} | {name: _plain(getattr(self, name)) for name in self.__slots__}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Entry:
        """The entry of `as_dict`. Raises ValueError, KeyError or TypeError for anything else."""
        fields = dict(values)
        if fields.pop("v") != ENTRY_VERSION:
            raise ValueError("entry has another version")
        fields["partition"] = Partition(**fields["partition"])
        fields["tags"] = tuple(fields["tags"])
        fields["part_versions"] = tuple(fields.get("part_versions", ()))
        return Entry(**fields)


def _plain(value: Any) -> Any:
    if isinstance(value, Partition):
        names: dict[str, Any] = {"tenant": value.tenant, "user": value.user, "role": value.role}
        return names | {"epoch": value.epoch} if value.epoch else names
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry found by meaning. `similarity` is the cosine, from -1 to 1, higher is closer."""

    entry: Entry
    similarity: float


@dataclass(frozen=True, slots=True)
class Selector:
    """Which entries to invalidate: all conditions that are given must hold. At least one must be given.

    `version` is that of the request or of any part of its prompt.
    """

    tenant: str | None = None
    user: str | None = None
    tag: str | None = None
    version: str | None = None
    created_before_s: float | None = None
    entry_id: str | None = None

    def matches(self, entry: Entry) -> bool:
        return (
            (self.tenant is None or entry.partition.tenant == self.tenant)
            and (self.user is None or self.user in (entry.partition.user, entry.principal))
            and (self.tag is None or self.tag in entry.tags)
            and (self.version is None or self.version in (entry.version, *entry.part_versions))
            and (self.created_before_s is None or entry.created_at_s < self.created_before_s)
            and (self.entry_id is None or entry.entry_id == self.entry_id)
        )
