"""LiteLLM: its response cache, kept in a stack.

::

    litellm.cache = CacheStackCache(stack, tenant="acme")
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cachestack.clients.dialect import turns_of
from cachestack.clients.openai_chat import generation
from cachestack.errors import MissingExtra, RequestError
from cachestack.integrations.aside import Aside
from cachestack.requests import Generation, Request

try:
    from litellm.caching.caching import Cache
except ImportError as error:
    raise MissingExtra("litellm") from error

if TYPE_CHECKING:
    from cachestack.aio import AsyncCacheStack
    from cachestack.stack import CacheStack

log = logging.getLogger("cachestack")

# How a call is made and followed, and by whom; not what is asked. All other arguments of a call count.
_NOT_ASKED = frozenset(
    {
        "acompletion", "api_key", "cache", "cache_key", "caching", "client", "fallbacks", "logger_fn", "max_retries",
        "messages", "metadata", "num_retries", "parent_otel_span", "preset_cache_key", "proxy_server_request",
        "request_timeout", "shared_session", "stream", "stream_options", "timeout", "ttl",
    }
)  # fmt: skip


class CacheStackCache(Cache):  # type: ignore[misc]
    """LiteLLM's cache for `completion` and `acompletion`, streamed or not, matched exactly and by meaning.

    The model, where it is served (`api_base`), earlier messages and all other arguments must be equal; what cannot be
    compared is not cached. Tool calls and what is more than one text are not kept. `tenant`, `user`, `role`: names, or
    functions of the call's arguments. LiteLLM's own controls hold: `cache={"no-cache": True, "no-store": True, "ttl":
    60, "s-maxage": 60}`. As with LiteLLM's own caches, a failure of the cache is logged and the model is called.
    """

    def __init__(
        self,
        stack: CacheStack | AsyncCacheStack,
        *,
        tenant: str | Callable[[Mapping[str, Any]], str],
        user: str | Callable[[Mapping[str, Any]], str | None] | None = None,
        role: str | Callable[[Mapping[str, Any]], str | None] | None = None,
        tags: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(
            **{"type": "local", "supported_call_types": ["completion", "acompletion"], "ttl": None} | options
        )
        self._aside = Aside(stack, "litellm", tenant="default", tags=tags)
        self._tenant, self._user, self._role = tenant, user, role

    def get_cache(self, dynamic_cache_object: Any = None, **call: Any) -> Any:
        request = self._asked(call, "no-cache")
        try:
            return None if request is None else _loaded(self._aside.find(request))
        except Exception as error:
            _warn(error)
            return None

    async def async_get_cache(self, dynamic_cache_object: Any = None, **call: Any) -> Any:
        request = self._asked(call, "no-cache")
        try:
            return None if request is None else _loaded(await self._aside.afind(request))
        except Exception as error:
            _warn(error)
            return None

    def add_cache(self, result: Any, **call: Any) -> None:
        request, made = self._asked(call, "no-store"), _made(result)
        try:
            if request is not None and made is not None:
                self._aside.keep(request, made)
        except Exception as error:
            _warn(error)

    async def async_add_cache(self, result: Any, dynamic_cache_object: Any = None, **call: Any) -> None:
        request, made = self._asked(call, "no-store"), _made(result)
        try:
            if request is not None and made is not None:
                await self._aside.akeep(request, made)
        except Exception as error:
            _warn(error)

    def _asked(self, call: Mapping[str, Any], unless: str) -> Request | None:
        """None for a call that this cache has no part in."""
        try:
            controls = call.get("cache") or {}
            if controls.get(unless) or not call.get("messages") or self.should_use_cache(**call) is not True:
                return None
            return self._request(call, controls)
        except Exception as error:
            _warn(error)
            return None

    def _request(self, call: Mapping[str, Any], controls: Mapping[str, Any]) -> Request:
        turns, others = turns_of([_plain(message) for message in call["messages"]], ("text",))
        last = turns[-1]
        asked = {
            name: value
            for name, value in call.items()
            if name not in _NOT_ASKED and not name.startswith("litellm_") and value is not None
        }
        contract = {
            "arguments": asked,
            "before": [[turn.role, turn.content] for turn in turns[:-1]],
            "others": others,
            "role": last.role,
            "namespace": controls.get("namespace"),
        }
        by_meaning = last.role == "user" and bool(last.content.strip())
        temperature = call.get("temperature")
        tools = [*(call.get("tools") or ()), *(call.get("functions") or ())]
        request = self._aside.request(
            last.content, contract, by_meaning=by_meaning, temperature=temperature, tools=tools
        )
        return replace(
            request,
            tenant=_named(self._tenant, call) or "",
            user=_named(self._user, call),
            role=_named(self._role, call),
            ttl_s=controls.get("ttl", self.ttl),
            max_age_s=controls.get("s-maxage", controls.get("s-max-age")),
        )


def _named(name: Any, call: Mapping[str, Any]) -> str | None:
    given: str | None = name(call) if callable(name) else name
    return given


def _plain(message: Any) -> dict[str, Any]:
    if isinstance(message, dict):
        return message
    if hasattr(message, "model_dump"):
        dumped: dict[str, Any] = message.model_dump(exclude_none=True)
        return dumped
    raise RequestError(f"a message is an object, not {type(message).__name__}")


def _made(result: Any) -> Generation | None:
    """The answer to keep; None where it is not one finished text."""
    try:
        text = result if isinstance(result, str) else result.model_dump_json(exclude_unset=True)
        body = json.loads(text)
        for choice in body["choices"]:
            if not any((choice["message"].get("provider_specific_fields") or {}).values()):
                choice["message"].pop("provider_specific_fields", None)
        read = generation(body)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not read.is_text or not read.text.strip() or read.finish_reason == "content_filter":
        return None
    return Generation(text, read.finish_reason, read.usage)


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _warn(error: Exception) -> None:
    log.warning("LiteLLM's call goes on uncached: %s: %s", type(error).__name__, error)
