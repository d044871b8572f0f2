"""A cached answer, as every store keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
    `without_history` is the digest of the contract without the history, where there was one; `context` says what of it
    the question leaned on (see semantic/context), and is empty where that is not known.

    Where it comes from: `engine` by its name in the stack, `request_id` of the request that was answered, `source`
    (`engine`; `given` by a library that called the model itself; empty for entries from before this was noted), and
    `confirmed_by`, the users whose requests got this answer, where the policy asks for that.

    `changes`: how soon another answer is right (never, slow, fast; "" where that was not judged). `own_state`: the
    answer is about the asker, `principal`. `ends_at_s`: how far its use may move `expires_at_s`; 0 where it may not.
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
    without_history: str = ""
    context: str = ""
    engine: str = ""
    request_id: str = ""
    source: str = ""
    confirmed_by: tuple[str, ...] = ()
    changes: str = ""
    own_state: bool = False
    ends_at_s: float = 0.0

    @property
    def group(self) -> str:
        """Within which contracts it is found by meaning."""
        return self.without_history or self.contract

    def is_live(self, now_s: float, max_age_s: float = math.inf) -> bool:
        """Whether it may be served now to someone who takes answers up to `max_age_s` old."""
        return self._is_of_the_past(now_s) and now_s < min(self.expires_at_s, self.created_at_s + max_age_s)

    def is_stale(self, now_s: float, max_age_s: float, stale_within_s: float) -> bool:
        """Whether it may be served as a stale answer, so long after it stopped being live for this asker."""
        expired_at_s = min(self.expires_at_s, self.created_at_s + max_age_s)
        return self._is_of_the_past(now_s) and now_s < min(self.stale_until_s, expired_at_s + stale_within_s)

    def _is_of_the_past(self, now_s: float) -> bool:
        begin_s = self.created_at_s
        return now_s >= begin_s or now_s >= begin_s - min(CLOCK_SLACK_S, self.expires_at_s - begin_s)

    def used(self, now_s: float, sliding_s: float) -> Entry:
        """The entry after a use, where use prolongs: it never lives beyond `ends_at_s`."""
        return replace(self, expires_at_s=max(self.expires_at_s, min(self.ends_at_s, now_s + sliding_s)))

    def as_dict(self) -> dict[str, Any]:
        """Plain values; `vector` and `states` stay bytes."""
        return {"v": ENTRY_VERSION} | {name: _plain(getattr(self, name)) for name in self.__slots__}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Entry:
        """The entry of `as_dict`. Raises ValueError, KeyError or TypeError for anything else."""
        fields = brought_forward(values)
        fields["partition"] = Partition(**fields["partition"])
        fields["tags"] = tuple(fields["tags"])
        fields["part_versions"] = tuple(fields.get("part_versions", ()))
        fields["confirmed_by"] = tuple(fields.get("confirmed_by", ()))
        return Entry(**fields)


UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From an older version's fields to those of the version after it. There is no older one yet."""


def can_read(version: object) -> bool:
    """Whether entries of this version can be brought forward to the present one."""
    while version != ENTRY_VERSION:
        if not isinstance(version, int) or version not in UPGRADES:
            return False
        version += 1
    return True


def brought_forward(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as the present version has them, without the version. Raises ValueError or KeyError."""
    fields = dict(values)
    version = fields.pop("v")
    if not can_read(version):
        raise ValueError("entry has another version")
    while version != ENTRY_VERSION:
        fields = UPGRADES[version](fields)
        version += 1
    return fields


def _plain(value: Any) -> Any:
    if isinstance(value, Partition):
        names: dict[str, Any] = {"tenant": value.tenant, "user": value.user, "role": value.role}
        names |= {"epoch": value.epoch} if value.epoch else {}
        return names | {"area": value.area} if value.area else names
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry found by meaning. `similarity` is the cosine, from -1 to 1, higher is closer."""

    entry: Entry
    similarity: float


@dataclass(frozen=True, slots=True)
class Selector:
    """Which entries to invalidate: all conditions that are given must hold. At least one must be given.

    `user`: whoever asked, whose scope it lies in, or who confirmed it. `version` is that of the request or of any part
    of its prompt.
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
            and (self.user is None or self.user in (entry.partition.user, entry.principal, *entry.confirmed_by))
            and (self.tag is None or self.tag in entry.tags)
            and (self.version is None or self.version in (entry.version, *entry.part_versions))
            and (self.created_before_s is None or entry.created_at_s < self.created_before_s)
            and (self.entry_id is None or entry.entry_id == self.entry_id)
        )
