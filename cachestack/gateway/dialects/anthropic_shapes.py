"""What a message of Anthropic's looks like, whole or streamed."""

from __future__ import annotations

from typing import Any

from cachestack.requests import FinishReason, Usage

STOP_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def message_of(trace_id: str, model: str) -> dict[str, Any]:
    """A message that has no content yet."""
    return {
        "id": f"msg_{trace_id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_of(Usage()),
    }


def usage_of(usage: Usage) -> dict[str, Any]:
    """Anthropic counts what came from its cache beside `input_tokens`, not within."""
    return {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens),
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    }
