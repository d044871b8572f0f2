"""Whose errors a path answers with."""

from __future__ import annotations

from cachestack.gateway.dialects.anthropic_error import anthropic_error
from cachestack.gateway.dialects.openai_error import openai_error
from cachestack.gateway.requesting import ErrorShape

MESSAGES = "/v1/messages"


def shape_for(path: str) -> ErrorShape:
    return anthropic_error if path.startswith(MESSAGES) else openai_error
