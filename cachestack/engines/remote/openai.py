"""Any server that speaks OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.engines.remote.building import openai_body
from cachestack.engines.remote.dialects.base import RemoteDialect
from cachestack.engines.remote.dialects.openai_chat import Chat, Completions
from cachestack.engines.remote.dialects.openai_responses import Responses
from cachestack.engines.remote.engine import RemoteEngine
from cachestack.engines.remote.prompt_caching import Provider
from cachestack.requests import Request

OPENAI_URL = "https://api.openai.com/v1"
_CHAT = Chat()
_OWN: Mapping[str, RemoteDialect] = {d.name: d for d in (_CHAT, Completions(), Responses())}


class OpenAIEngine(RemoteEngine):
    """vLLM, SGLang, llama.cpp, TensorRT-LLM's server, Ollama, OpenAI itself (`provider`), or any other (`generic`).

    A request with a body of one of OpenAI's dialects is passed on as it is, but for the model where the engine has
    one, what `prompt_caching` adds, and usage being asked for in a stream. One without a body becomes a streamed chat
    completion. `stream_usage`: whether streams are asked for usage (None: all but `generic` servers).
    """

    def __init__(
        self,
        name: str,
        base_url: str = OPENAI_URL,
        *,
        provider: Provider = "generic",
        stream_usage: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, base_url, provider=provider, **options)
        self._stream_usage = provider != "generic" if stream_usage is None else stream_usage

    def _compile(self, request: Request) -> tuple[RemoteDialect, dict[str, Any]]:
        dialect = _OWN.get(request.dialect)
        if dialect is not None and request.body is not None:
            body = dict(request.body)
            if self.model:
                body["model"] = self.model
        else:
            dialect = _CHAT
            name = "max_completion_tokens" if self.provider == "openai" else "max_tokens"
            body = openai_body(request, self.model or request.model, max_tokens_name=name)
            body["stream"] = request.body is None or request.body.get("stream") is True
        if body.get("stream") is True and self._stream_usage and dialect.name != "openai.responses":
            options = body.get("stream_options")
            body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        return dialect, body

    def _auth(self) -> Mapping[str, str]:
        return {} if self._key is None else {"authorization": f"Bearer {self._key}"}
