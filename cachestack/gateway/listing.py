"""`/v1/models`, and the one line of help at `/`."""

from __future__ import annotations

import time
from typing import Any

from cachestack.access import Authenticator
from cachestack.bodies.offered import Models
from cachestack.gateway.faults import not_found
from cachestack.gateway.requesting import Exchange


class Listing:
    """Chat models first, in the order of the configuration; the encoder last. So the first is always one to chat with.

    Where `anthropic-version` is sent, in Anthropic's shape.
    """

    def __init__(self, models: Models, authenticator: Authenticator) -> None:
        self._models = models
        self._authenticator = authenticator
        self._since_s = int(time.time())

    async def all(self, exchange: Exchange) -> None:
        headers = exchange.headers
        self._authenticator.authenticate(headers)
        if "anthropic-version" in headers:
            data = [_anthropic_row(name) for name in self._models.listed]
            ids = [row["id"] for row in data] or [None]
            await exchange.answer({"data": data, "has_more": False, "first_id": ids[0], "last_id": ids[-1]})
            return
        await exchange.answer({"object": "list", "data": [self._row(name) for name in self._models.listed]})

    async def one(self, exchange: Exchange) -> None:
        headers = exchange.headers
        self._authenticator.authenticate(headers)
        name = exchange.scope["path_params"]["model"]
        if name not in self._models.listed:
            raise not_found(f"the model {name!r} is not here", code="model_not_found", param="model")
        await exchange.answer(_anthropic_row(name) if "anthropic-version" in headers else self._row(name))

    def _row(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._since_s, "owned_by": "cachestack"}


def _anthropic_row(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def help_text(models: Models) -> str:
    return f"CacheStack: set an OpenAI client's base_url to this address plus /v1, and the model to {models.example!r}."
