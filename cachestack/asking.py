"""From what callers write to a Request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cachestack.errors import RequestError
from cachestack.prompts import StructuredPrompt
from cachestack.requests import Message, Request, Sampling, as_messages

Prompt = str | Sequence[Message | Mapping[str, Any]] | StructuredPrompt


def as_request(prompt: Prompt | Request, **options: Any) -> Request:
    """A Request as it is, or one built from the options. Raises RequestError where both are given: an option beside a
    Request, its tenant above all, would have no effect."""
    if not isinstance(prompt, Request):
        return build_request(prompt, **options)
    if options:
        raise RequestError(f"a Request says everything itself; put {', '.join(sorted(options))} into it")
    return prompt


def build_request(
    prompt: Prompt,
    *,
    tenant: str = "default",
    user: str | None = None,
    role: str | None = None,
    system: str | None = None,
    model: str = "",
    temperature: float | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop: str | Sequence[str] = (),
    max_new_tokens: int | None = None,
    n: int = 1,
    tools: Sequence[Any] = (),
    response_format: Any = None,
    extra: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    version: str | None = None,
    ttl_s: float | None = None,
    stable_messages: int | None = None,
    store: bool = True,
    lookup: bool = True,
    only_if_cached: bool = False,
    max_age_s: float | None = None,
) -> Request:
    """A checked Request from text, messages or a StructuredPrompt. Raises RequestError.

    `stable_messages`: how many leading messages (system included) are the same from call to call. `extra` holds
    further parameters: they count in the contract and are not interpreted. `store=False` keeps the answer out of the
    cache, `lookup=False` does not look there; `only_if_cached` raises NotCached rather than call an engine. `ttl_s` can
    shorten the policy's time to live, not prolong it; `max_age_s` is how old a cached answer may be for this request.
    """
    part_versions: tuple[str | None, ...] = ()
    if isinstance(prompt, StructuredPrompt):
        if system is not None or stable_messages is not None:
            raise RequestError("a StructuredPrompt says its system text and what is stable itself; leave those options")
        stable_messages, part_versions = len(prompt.stable), prompt.versions
        prompt = prompt.messages
    if isinstance(tags, str):
        raise RequestError(f"tags must be a list of names, not the text {tags!r}")
    return Request(
        messages=as_messages(prompt, system),
        tenant=tenant,
        user=user,
        role=role,
        model=model,
        sampling=Sampling(
            temperature, top_p, seed, (stop,) if isinstance(stop, str) else tuple(stop), max_new_tokens, n
        ),
        tools=tuple(tools),
        response_format=response_format,
        extra=dict(extra or {}),
        tags=tuple(tags),
        version=version,
        part_versions=part_versions,
        ttl_s=ttl_s,
        stable_messages=stable_messages,
        store=store,
        lookup=lookup,
        only_if_cached=only_if_cached,
        max_age_s=max_age_s,
    )
