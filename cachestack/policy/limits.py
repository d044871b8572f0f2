"""The section of a policy that limits what may be kept and asked for."""

from __future__ import annotations

from cachestack.policy.section import Bytes, Count, Money, Seconds, Section


class RetentionPolicy(Section):
    """How long and how much is kept."""

    ttl_s: Seconds = 86_400.0
    """Age at which an entry stops being served. Absolute: being used does not prolong it."""

    sliding_s: Seconds | None = None
    """Age since its last use at which an entry stops being served; `ttl_s` holds all the same. None: only `ttl_s`."""

    max_bytes: Bytes = 256 * 1024 * 1024
    """Entries of one tenant; beyond it the least recently used go."""

    max_entry_bytes: Bytes = 256 * 1024
    """A larger answer is not kept."""


class LimitsPolicy(Section):
    """How much may be asked for. None: no limit. What the cache serves counts as a request, and as nothing else."""

    requests_per_minute: Count | None = None
    """Requests of the tenant in any 60 seconds."""

    tokens_per_minute: Count | None = None
    """Tokens of prompts and answers that engines worked on for the tenant, in any 60 seconds."""

    spend_per_day: Money | None = None
    """What engines cost the tenant in any 24 hours, in the currency of the prices."""

    max_concurrent: Count | None = None
    """Requests of the tenant that may be under way at once."""

    user_requests_per_minute: Count | None = None
    """As `requests_per_minute`, for each user of the tenant; those without a user count as one."""

    user_tokens_per_minute: Count | None = None
    """As `tokens_per_minute`, for each user."""

    user_spend_per_day: Money | None = None
    """As `spend_per_day`, for each user."""

    user_max_concurrent: Count | None = None
    """As `max_concurrent`, for each user."""

    @property
    def has_spend_limit(self) -> bool:
        return self.spend_per_day is not None or self.user_spend_per_day is not None
