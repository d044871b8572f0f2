"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.engines.remote.building import anthropic_body
from cachestack.engines.remote.dialects.anthropic_messages import Messages
from cachestack.engines.remote.dialects.base import RemoteDialect
from cachestack.engines.remote.engine import RemoteEngine
from cachestack.requests import Request

ANTHROPIC_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
_MESSAGES = Messages()


class AnthropicEngine(RemoteEngine):
    """`base_url` is the server's root, without `/v1`. `default_max_tokens`: what the API must be told and a request
    built from values need not say."""

    def __init__(
        self, name: str, base_url: str = ANTHROPIC_URL, *, default_max_tokens: int = 4096, **options: Any
    ) -> None:
        super().__init__(name, base_url.rstrip("/").removesuffix("/v1"), provider="anthropic", **options)
        self._default_max_tokens = default_max_tokens

    def _compile(self, request: Request) -> tuple[RemoteDialect, dict[str, Any]]:
        if request.dialect == _MESSAGES.name and request.body is not None:
            body = dict(request.body)
            if self.model:
                body["model"] = self.model
        else:
            body = anthropic_body(request, self.model or request.model, default_max_tokens=self._default_max_tokens)
            body["stream"] = request.body is None or request.body.get("stream") is True
        return _MESSAGES, body

    def _auth(self) -> Mapping[str, str]:
        key = {} if self._key is None else {"x-api-key": self._key}
        return {"anthropic-version": API_VERSION, **key}
