"""OpenAI's older `/v1/completions`: one prompt, one text.

To the engine in this process, a chat model, the prompt is what the user says. To others it is a beginning: every space
of it counts, and no other beginning is like it.
"""

from __future__ import annotations

import time
from typing import Any

from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models
from cachestack.bodies.openai_completions import read_completion
from cachestack.decisions import Response
from cachestack.gateway.dialect import Body
from cachestack.gateway.dialects.openai_chat import usage_of
from cachestack.gateway.dialects.openai_error import openai_error
from cachestack.gateway.faults import Fault
from cachestack.gateway.wire import DONE, event
from cachestack.requests import Chunk


class OpenAICompletions:
    def __init__(self, models: Models) -> None:
        self._models = models

    def parse(self, body: dict[str, Any], given: Given) -> Call:
        return read_completion(self._models, body, given)

    def body(self, call: Call, response: Response) -> Body:
        if response.body is not None:
            return response.body
        return {
            **_head(call, response.trace.request_id),
            "choices": [_choice(response.text, response.finish_reason)],
            "usage": usage_of(response.usage),
        }

    def events(self, call: Call, trace_id: str) -> CompletionEvents:
        return CompletionEvents(call, trace_id)


class CompletionEvents:
    """`text_completion` after `text_completion`, `[DONE]` at the end."""

    def __init__(self, call: Call, trace_id: str) -> None:
        self._trace_id = trace_id
        self._include_usage = call.include_usage
        self._head = _head(call, trace_id)

    def begin(self) -> bytes:
        return b""

    def feed(self, chunk: Chunk) -> bytes:
        if chunk.delta is not None:
            return event({**chunk.delta.body, **self._head})
        return event({**self._head, "choices": [_choice(chunk.text, None)]}) if chunk.text else b""

    def end(self, response: Response) -> bytes:
        return event({**self._head, "choices": [_choice("", response.finish_reason)]}) + self._over(response)

    def whole(self, response: Response) -> bytes:
        choices = (response.body or {}).get("choices") or []
        return b"".join(event({**self._head, "choices": [choice]}) for choice in choices) + self._over(response)

    def _over(self, response: Response) -> bytes:
        if not self._include_usage:
            return DONE
        usage = (response.body or {}).get("usage") or usage_of(response.usage)
        return event({**self._head, "choices": [], "usage": usage}) + DONE

    def failed(self, fault: Fault) -> bytes:
        return event(openai_error(fault, self._trace_id))


def _head(call: Call, trace_id: str) -> dict[str, Any]:
    created = int(time.time())
    return {"id": f"cmpl-{trace_id}", "object": "text_completion", "created": created, "model": call.model}


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
