"""One PrefixHint, said in each provider's words. A caller's own words are left as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal

import yaml

from cachestack.engines.remote.prefix_hint import PrefixHint
from cachestack.requests import Request

Provider = Literal["openai", "anthropic", "vllm", "sglang", "llama-cpp", "tensorrt-llm", "ollama", "generic"]
SALTED = ("vllm", "sglang")
ROUTING_HEADER = "x-cachestack-prefix"
HOSTED = ("openai", "anthropic")
"""Providers that do not put several servers of one's own behind one address."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    ttl: str
    seconds: float
    write_price: float


@dataclass(frozen=True, slots=True)
class AnthropicCache:
    """`read_price` and each lifetime's `write_price` are multiples of the input price."""

    max_breakpoints: int
    read_price: float
    lifetimes: tuple[Lifetime, ...]
    min_tokens: Mapping[str, int]
    min_tokens_unknown: int

    def min_tokens_of(self, model: str) -> int:
        fitting = [start for start in self.min_tokens if model.startswith(start)]
        return self.min_tokens[max(fitting, key=len)] if fitting else self.min_tokens_unknown

    def lifetime(self, hint: PrefixHint) -> Lifetime | None:
        """The shortest one in which as many reads as lately would repay the dearer write; None: none would."""
        for lifetime in self.lifetimes:
            extra, saved = lifetime.write_price - 1.0, 1.0 - self.read_price
            if hint.reads_within(lifetime.seconds) * saved > extra:
                return lifetime
        return None


@dataclass(frozen=True, slots=True)
class ProviderCaches:
    as_of: str
    openai_min_tokens: int
    openai_retention_24h: tuple[str, ...]
    anthropic: AnthropicCache


@lru_cache(maxsize=1)
def provider_caches() -> ProviderCaches:
    """The data file that ships with the package."""
    text = (resources.files(__package__) / "data" / "providers.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    theirs = values["anthropic"]
    return ProviderCaches(
        as_of=str(values["as_of"]),
        openai_min_tokens=values["openai"]["min_tokens"],
        openai_retention_24h=tuple(values["openai"]["retention_24h"]),
        anthropic=AnthropicCache(
            max_breakpoints=theirs["max_breakpoints"],
            read_price=theirs["read_price"],
            lifetimes=tuple(Lifetime(**lifetime) for lifetime in theirs["lifetimes"]),
            min_tokens=theirs["min_tokens"],
            min_tokens_unknown=theirs["min_tokens_unknown"],
        ),
    )


def with_hint(
    body: dict[str, Any], request: Request, hint: PrefixHint, provider: Provider, *, long_lived: bool = False
) -> dict[str, Any]:
    """The body with what the provider's cache is told; the one given is not changed.

    Where a provider's cache works by itself (llama.cpp, TensorRT-LLM, Ollama) nothing is added. `long_lived` asks
    OpenAI to keep prefixes for 24 hours.
    """
    caches = provider_caches()
    match provider:
        case "vllm" | "sglang":
            return {"cache_salt": hint.salt, **body}
        case "openai":
            if hint.num_tokens < caches.openai_min_tokens:
                return body
            said: dict[str, Any] = {"prompt_cache_key": hint.key}
            if long_lived and str(body.get("model", "")).startswith(caches.openai_retention_24h):
                said["prompt_cache_retention"] = "24h"
            return {**said, **body}
        case "anthropic":
            return _with_breakpoints(body, request, hint, caches.anthropic)
        case _:
            return body


def routing_headers(hint: PrefixHint, provider: Provider) -> dict[str, str]:
    """By which a load balancer sends what begins alike to the same server (deploy/nginx.conf). The value is an HMAC."""
    return {} if provider in HOSTED else {ROUTING_HEADER: hint.key}


def _with_breakpoints(
    body: dict[str, Any], request: Request, hint: PrefixHint, cache: AnthropicCache
) -> dict[str, Any]:
    """At most two breakpoints: behind the system text, and behind the last stable message."""
    if hint.num_tokens < cache.min_tokens_of(str(body.get("model", ""))) or _has_breakpoint(body):
        return body
    lifetime = cache.lifetime(hint)
    if lifetime is None:
        return body
    mark: dict[str, Any] = {"type": "ephemeral"} if lifetime.ttl == "5m" else {"type": "ephemeral", "ttl": lifetime.ttl}
    marked, places = dict(body), 0
    system = _marked(body.get("system"), mark)
    if system is not None:
        marked["system"], places = system, 1
    elif isinstance(body.get("tools"), list) and body["tools"] and isinstance(body["tools"][-1], dict):
        marked["tools"], places = [*body["tools"][:-1], body["tools"][-1] | {"cache_control": mark}], 1
    turns = body.get("messages")
    if isinstance(turns, list) and places < cache.max_breakpoints:
        num_system = len(request.messages) - len(turns)
        last = hint.num_messages - num_system - 1
        if num_system >= 0 and 0 <= last < len(turns) and isinstance(turns[last], dict):
            content = _marked(turns[last].get("content"), mark)
            if content is not None:
                marked["messages"] = [*turns[:last], turns[last] | {"content": content}, *turns[last + 1 :]]
    return marked


def _marked(content: Any, mark: Mapping[str, Any]) -> list[Any] | None:
    """Content with the mark on its last block; None where there is none that can carry it."""
    if isinstance(content, str) and content.strip():
        return [{"type": "text", "text": content, "cache_control": dict(mark)}]
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        last = content[-1]
        if last.get("type") in ("thinking", "redacted_thinking") or not str(last.get("text", "some")).strip():
            return None
        return [*content[:-1], content[-1] | {"cache_control": dict(mark)}]
    return None


def _has_breakpoint(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "cache_control" in value or any(_has_breakpoint(inner) for inner in value.values())
    return isinstance(value, list) and any(_has_breakpoint(inner) for inner in value)
