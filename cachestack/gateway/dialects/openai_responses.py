"""OpenAI's `/v1/responses`. No answer is kept to be fetched or continued by its id: `previous_response_id` and
`conversation` are for a provider that keeps them."""

from __future__ import annotations

from typing import Any

from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models
from cachestack.bodies.openai_responses import read_response
from cachestack.decisions import Response
from cachestack.gateway.dialect import Body
from cachestack.gateway.dialects.responses_events import ResponseEvents
from cachestack.gateway.dialects.responses_shapes import finished, passed_on


class OpenAIResponses:
    def __init__(self, models: Models) -> None:
        self._models = models

    def parse(self, body: dict[str, Any], given: Given) -> Call:
        return read_response(self._models, body, given)

    def body(self, call: Call, response: Response) -> Body:
        return finished(call, response) if response.body is None else passed_on(call, response, response.body)

    def events(self, call: Call, trace_id: str) -> ResponseEvents:
        return ResponseEvents(call, trace_id)
