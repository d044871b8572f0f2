"""A body of `/v1/completions`: one prompt.

To the engine in this process, a chat model, the prompt is what the user says. To others it is a beginning: every space
of it counts, and no other beginning is like it.
"""

from __future__ import annotations

from typing import Any

from cachestack.bodies.call import Call, Given
from cachestack.bodies.offered import Models
from cachestack.bodies.openai_chat import NO_EFFECT
from cachestack.bodies.reading import Asked, Fields, request_of
from cachestack.bodies.turns import Turns
from cachestack.errors import RequestError
from cachestack.requests import Sampling


def read_completion(models: Models, body: dict[str, Any], given: Given) -> Call:
    """Raises RequestError."""
    fields = Fields(body)
    fields.drop(*NO_EFFECT)
    model = fields.required_text("model")
    stream, include_usage = fields.flag("stream"), bool(fields.mapping("stream_options").get("include_usage"))
    offered = models.find(model)
    turns = Turns()
    turns.add("user" if offered.in_process else "assistant", _one_prompt(fields.take("prompt")))
    sampling = Sampling(
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        seed=fields.whole("seed"),
        stop=fields.stop("stop"),
        max_new_tokens=fields.whole("max_tokens", 1),
        n=fields.whole("n", 1) or 1,
    )
    asked = Asked("openai.completions", turns, sampling, extra=fields.rest)
    request = request_of(asked, offered, model, body, given)
    return Call(request, model, offered.engine, stream, include_usage)


def _one_prompt(prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise RequestError("prompt must be one text; several prompts, and prompts as token numbers, are not supported")
    return prompt
