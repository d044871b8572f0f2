"""Anthropic's `/v1/messages`."""

from __future__ import annotations

from typing import Any

from cachestack.bodies.anthropic_messages import read_message
from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models
from cachestack.decisions import Response
from cachestack.gateway.dialect import Body
from cachestack.gateway.dialects.anthropic_events import MessageEvents
from cachestack.gateway.dialects.anthropic_shapes import STOP_REASONS, message_of, usage_of


class AnthropicMessages:
    def __init__(self, models: Models) -> None:
        self._models = models

    def parse(self, body: dict[str, Any], given: Given) -> Call:
        return read_message(self._models, body, given)

    def body(self, call: Call, response: Response) -> Body:
        if response.body is not None:
            return response.body
        content = [{"type": "text", "text": response.text, "citations": None}] if response.text else []
        return {
            **message_of(response.trace.request_id, call.model),
            "content": content,
            "stop_reason": STOP_REASONS[response.finish_reason],
            "usage": usage_of(response.usage),
        }

    def events(self, call: Call, trace_id: str) -> MessageEvents:
        return MessageEvents(call, trace_id)
