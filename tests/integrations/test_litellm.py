"""LiteLLM's response cache in a stack, against the scripted upstream."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.upstream.calls import Call, error
from tests.upstream.server import Upstream

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
litellm = pytest.importorskip(
    "litellm", reason="litellm pins versions that cachestack's own dependencies exclude; install it beside to test it"
)

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def ask(upstream: Upstream, text: str, **how: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "openai/m", "api_base": upstream.base_url, "api_key": "k", "messages": messages, **how}


def said(made: Any) -> str:
    return str(made.choices[0].message.content)


@pytest.fixture
def cached(stack: CacheStack) -> Iterator[Any]:
    from cachestack.integrations.litellm import CacheStackCache

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(litellm, "num_retries", 0)
        patch.setattr(litellm, "cache", CacheStackCache(stack, tenant="acme"))
        yield stack


def test_exact_and_by_meaning(cached: CacheStack, upstream: Upstream) -> None:
    texts = [said(litellm.completion(**ask(upstream, text))) for text in (QUESTION, QUESTION, REWORDED)]
    assert texts == [f"Answer 1: {QUESTION}"] * 3
    assert len(upstream.requests) == 1
    hit = litellm.completion(**ask(upstream, QUESTION))
    assert type(hit) is litellm.ModelResponse
    assert hit.usage.completion_tokens > 0


def test_streams(cached: CacheStack, upstream: Upstream) -> None:
    runs = [list(litellm.completion(**ask(upstream, text), stream=True)) for text in (QUESTION, REWORDED)]
    texts = ["".join(chunk.choices[0].delta.content or "" for chunk in run) for run in runs]
    assert texts == [f"Answer 1: {QUESTION}"] * 2
    assert said(litellm.completion(**ask(upstream, QUESTION))) == f"Answer 1: {QUESTION}"
    assert len(upstream.requests) == 1


async def test_it_can_be_awaited(cached: CacheStack, upstream: Upstream) -> None:
    assert said(await litellm.acompletion(**ask(upstream, QUESTION))) == f"Answer 1: {QUESTION}"
    async with asyncio.timeout(20):
        while not cached.performer.store.size().num_entries:  # LiteLLM writes in a task of its own
            await asyncio.sleep(0)
    assert said(await litellm.acompletion(**ask(upstream, REWORDED))) == f"Answer 1: {QUESTION}"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"model": "openai/m2"},
        {"temperature": 0},
        {"top_k": 3},
        {"extra_body": {"guided_regex": "a+"}},
        {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": QUESTION}]},
        {"cache": {"namespace": "other"}},
    ],
    ids=str,
)
def test_all_that_is_asked_with_counts(cached: CacheStack, upstream: Upstream, other: dict[str, Any]) -> None:
    litellm.completion(**ask(upstream, QUESTION))
    for _ in range(2):
        litellm.completion(**ask(upstream, QUESTION) | other)
    assert len(upstream.requests) == 2


def test_controls(cached: CacheStack, upstream: Upstream) -> None:
    litellm.completion(**ask(upstream, QUESTION), cache={"no-store": True})
    litellm.completion(**ask(upstream, QUESTION))
    litellm.completion(**ask(upstream, QUESTION), cache={"no-cache": True})
    assert len(upstream.requests) == 3
    assert said(litellm.completion(**ask(upstream, QUESTION))).startswith("Answer ")
    assert len(upstream.requests) == 3


def test_tool_calls_errors_and_cut_streams_are_not_kept(cached: CacheStack, upstream: Upstream) -> None:
    for _ in range(2):
        made = litellm.completion(**ask(upstream, QUESTION), tools=[TOOL])
        assert made.choices[0].message.tool_calls[0].function.name == "weather"
    upstream.script(error(429), Call(refusal="No."))
    with pytest.raises(litellm.RateLimitError):
        litellm.completion(**ask(upstream, QUESTION), max_retries=0)
    litellm.completion(**ask(upstream, QUESTION))
    assert cached.performer.store.size().num_entries == 0


def test_two_tenants_never_share(stack: CacheStack, upstream: Upstream) -> None:
    from cachestack.integrations.litellm import CacheStackCache

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(litellm, "cache", CacheStackCache(stack, tenant=lambda call: call["metadata"]["team"]))
        for team, num_calls in (("a", 1), ("b", 2), ("a", 2)):
            litellm.completion(**ask(upstream, QUESTION), metadata={"team": team})
            assert len(upstream.requests) == num_calls
        litellm.completion(**ask(upstream, QUESTION))
        assert len(upstream.requests) == 3, "no tenant, no cache"
