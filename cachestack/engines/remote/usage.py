"""Token counts from what providers say. What is no count is 0: figures suffer, answers don't."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.requests import Usage


def openai_usage(usage: Any) -> Usage:
    """Of chat and text completions, and of the Responses API, which has other names for the same."""
    if not isinstance(usage, Mapping):
        return Usage()
    prompt = count(usage.get("prompt_tokens", usage.get("input_tokens")))
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    details = details if isinstance(details, Mapping) else {}
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=min(count(details.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))), prompt),
        completion_tokens=count(usage.get("completion_tokens", usage.get("output_tokens"))),
        cache_write_tokens=min(count(details.get("cache_write_tokens")), prompt),
    )


def anthropic_usage(usage: Any) -> Usage:
    """`input_tokens` are there only those that the cache had no part in."""
    if not isinstance(usage, Mapping):
        return Usage()
    cached = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return Usage(
        prompt_tokens=count(usage.get("input_tokens")) + cached + written,
        cached_tokens=cached,
        completion_tokens=count(usage.get("output_tokens")),
        cache_write_tokens=written,
    )


def count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
