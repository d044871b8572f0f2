"""A body of `/v1/messages`."""

from __future__ import annotations

from typing import Any

from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models
from cachestack.bodies.reading import Asked, Fields, request_of
from cachestack.bodies.turns import Turns, add_turns
from cachestack.errors import RequestError
from cachestack.requests import Sampling

_NO_EFFECT = ("metadata", "service_tier", "user_profile_id")


def read_message(models: Models, body: dict[str, Any], given: Given) -> Call:
    """Raises RequestError."""
    fields = Fields(body)
    fields.drop(*_NO_EFFECT)
    model = fields.required_text("model")
    stream = fields.flag("stream")
    limit = fields.whole("max_tokens", 1)
    if limit is None:
        raise RequestError("max_tokens is missing: give a whole number of at least 1")
    turns = Turns()
    system = fields.take("system")
    if system is not None:
        turns.add("system", system)
    add_turns(turns, fields.take("messages"), ("user", "assistant"))
    sampling = Sampling(
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        stop=fields.stop("stop_sequences"),
        max_new_tokens=limit,
    )
    tools = (*fields.items("tools"), *fields.open_tools("mcp_servers"))
    is_stateful = fields.rest.get("container") is not None
    asked = Asked("anthropic.messages", turns, sampling, tools, extra=fields.rest, is_stateful=is_stateful)
    offered = models.find(model)
    return Call(request_of(asked, offered, model, body, given), model, offered.engine, stream)
