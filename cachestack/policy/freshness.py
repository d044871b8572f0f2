"""The section of a policy that says how long answers are kept whose truth moves with time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, PlainSerializer, field_validator

from cachestack.policy.section import Seconds, Section

TTL = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Seconds; 0: such an answer is not kept."""


def _pairs(value: Any) -> Any:
    """A mapping as pairs in order: a policy is compared and hashed."""
    return tuple(sorted(value.items(), key=lambda pair: str(pair[0]))) if isinstance(value, Mapping) else value


Lives = Annotated[tuple[tuple[str, TTL], ...], BeforeValidator(_pairs), PlainSerializer(dict, dict[str, float])]
"""Written as a mapping: what it is for, and its TTL in seconds."""


class FreshnessPolicy(Section):
    """How long an answer is kept, by how soon another one would be right. Every TTL here only shortens: an answer lives
    for the shortest of all that apply to it, `retention.ttl_s` and the request's own among them."""

    enabled: bool = True
    """Off: questions are not judged by how soon their answers change, and relative times in them are not read."""

    never_ttl_s: Seconds | None = None
    """Of an answer that stays true ("who wrote ...", "how do I ..."); None: `retention.ttl_s`."""

    slow_ttl_s: TTL = 3600.0
    """Of one that changes within months or years: who holds an office, records, prices on a list. 0: not kept."""

    fast_ttl_s: TTL = 60.0
    """Of one that changes within days, or with its asker: weather, scores, stock, "my balance". 0: not kept."""

    unsure: Literal["never", "slow", "fast"] = "slow"
    """What a question is taken for that may or may not move with time."""

    own_state: Literal["same_user", "not_kept"] = "same_user"
    """Who may get the answer to "where is my order?", besides the walls: whoever asked it, or nobody. Those who ask
    without a user count as one."""

    timezone: str = "UTC"
    """Where a day ends for questions that say "today" or "this week": a name such as Europe/Paris."""

    by_tag: Lives = ()
    """TTL of answers with one of these tags, as a mapping; 0: not kept."""

    by_phrase: Lives = ()
    """TTL of answers to questions that hold one of these words or phrases, whole, in any letter case, with or
    without accents."""

    stable_tags: frozenset[str] = frozenset()
    """Tags whose answers you vouch for: their questions are taken for `never`, whatever they ask. Relative times count
    all the same."""

    stale_while_revalidate_s: TTL = 0.0
    """How long after its end an answer to the very same question is still served, at once, while a new one is made in
    the background. 0: the asker waits for the new one."""

    stale_if_error_s: TTL | None = None
    """How long after its end an answer to the very same question may serve where the engine fails. None: where
    `fallback.engine_error` says `stale`, for `fallback.stale_within_s`."""

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("not a time zone that is known here; a name such as Europe/Paris, or UTC") from None
        return name

    @field_validator("by_phrase")
    @classmethod
    def _not_empty(cls, lives: Lives) -> Lives:
        if any(not any(c.isalnum() for c in phrase) for phrase, _ in lives):
            raise ValueError("a phrase needs a letter or a digit")
        return lives
