"""OpenAI's `/v1/embeddings`, by the encoder that the semantic cache uses."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from cachestack.bodies.offered import Models
from cachestack.bodies.openai_chat import NO_EFFECT
from cachestack.bodies.reading import Fields
from cachestack.errors import RequestError
from cachestack.gateway.faults import Refused, not_found
from cachestack.gateway.jsonbody import JsonBody
from cachestack.gateway.requesting import Exchange
from cachestack.gateway.stack_port import StackPort
from cachestack.semantic.base import Encoder

_MAX_TEXTS = 2048


class Embeddings:
    def __init__(self, port: StackPort, models: Models, body: JsonBody) -> None:
        self._port = port
        self._models = models
        self._body = body

    async def __call__(self, exchange: Exchange) -> None:
        async with self._body.read(exchange) as (_, body):
            await self._answer(exchange, body)

    async def _answer(self, exchange: Exchange, body: dict[str, Any]) -> None:
        fields = Fields(body)
        fields.drop(*NO_EFFECT)
        encoder = self._encoder(fields.required_text("model"))
        texts = _texts(fields.take("input"))
        form = fields.text("encoding_format") or "float"
        dimensions = fields.whole("dimensions", 1)
        if form not in ("float", "base64"):
            raise RequestError(f"encoding_format must be float or base64, not {form}")
        if fields.rest:
            raise RequestError(f"{', '.join(sorted(fields.rest))} is not supported here; leave it out")
        loop = asyncio.get_running_loop()
        async with exchange.while_there():
            document = await loop.run_in_executor(self._port.threads, _embed, encoder, texts, form, dimensions)
            await exchange.answer({**document, "model": self._models.encoder})

    def _encoder(self, name: str) -> Encoder:
        encoder = self._port.stack.performer.encoder
        if encoder is None or name != self._models.encoder:
            raise _no_encoder(name, self._models.encoder)
        return encoder


def _no_encoder(name: str, there: str | None) -> Refused:
    hint = "this gateway has no encoder" if there is None else f"embeddings are made by {there}"
    return not_found(f"the model {name!r} does not embed here; {hint}", code="model_not_found", param="model")


def _texts(given: Any) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not (isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)):
        raise RequestError("input must be text or a list of texts; token numbers are not supported")
    if len(texts) > _MAX_TEXTS:
        raise RequestError(f"input has {len(texts)} texts; at most {_MAX_TEXTS} are embedded at a time")
    return texts


def _embed(encoder: Encoder, texts: Sequence[str], form: str, dimensions: int | None) -> dict[str, Any]:
    if dimensions not in (None, encoder.dimension):
        raise RequestError(f"dimensions must be {encoder.dimension}, the encoder's own, or be left out")
    for number, text in enumerate(texts):
        if not text.strip():
            raise RequestError(f"input.{number} is empty; there is nothing to embed")
        if not encoder.fits_window(text):
            window = encoder.window_tokens
            raise RequestError(
                f"input.{number} is longer than the encoder's window of {window} tokens; it is not cut off"
            )
    vectors = encoder.encode(texts)
    count = getattr(encoder, "count_tokens", None)
    num_tokens = 0 if count is None else sum(count(text) for text in texts)
    rows = [
        base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii") if form == "base64" else vector.tolist()
        for vector in vectors
    ]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)],
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }
