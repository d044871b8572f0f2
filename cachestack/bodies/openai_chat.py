"""A body of `/v1/chat/completions`."""

from __future__ import annotations

from typing import Any

from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models
from cachestack.bodies.reading import Asked, Fields, request_of
from cachestack.bodies.turns import Turns, add_turns
from cachestack.requests import Sampling

_ROLES = ("system", "developer", "user", "assistant", "tool")
NO_EFFECT = (
    "metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier",
    "service_tier", "store", "user",
)  # fmt: skip
"""Who pays, who asks, how fast, and what is kept elsewhere: nothing of it changes what the model answers."""


def read_chat(models: Models, body: dict[str, Any], given: Given) -> Call:
    """Raises RequestError."""
    fields = Fields(body)
    fields.drop(*NO_EFFECT)
    model = fields.required_text("model")
    stream, include_usage = fields.flag("stream"), bool(fields.mapping("stream_options").get("include_usage"))
    turns = Turns()
    add_turns(turns, fields.take("messages"), _ROLES)
    limit = fields.whole("max_completion_tokens", 1)
    marks = {} if limit is None else {"limit": "max_completion_tokens"}  # there are servers that know only one name
    limit = fields.whole("max_tokens", 1) if limit is None else limit  # of two, the old name counts as unknown
    sampling = Sampling(
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        seed=fields.whole("seed"),
        stop=fields.stop("stop"),
        max_new_tokens=limit,
        n=fields.whole("n", 1) or 1,
    )
    tools = (*fields.items("tools"), *fields.open_tools("functions", "web_search_options"))
    asked = Asked("openai.chat", turns, sampling, tools, fields.take("response_format"), fields.rest, marks)
    offered = models.find(model)
    request = request_of(asked, offered, model, body, given)
    return Call(request, model, offered.engine, stream, include_usage)
