"""Anthropic's messages through a wrapped client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic as sdk
import pytest
from anthropic import Anthropic, AsyncAnthropic, Stream, omit
from anthropic.types import Message

from tests.upstream.calls import Call, Gate, error
from tests.upstream.server import Upstream

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}


def ask(text: str) -> Any:
    return {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": text}]}


def text_of(events: Any) -> str:
    return "".join(event.delta.text for event in events if event.type == "content_block_delta")


def test_a_hit_is_the_clients_own_object(stack: CacheStack, anthropic: Anthropic, upstream: Upstream) -> None:
    client = stack.wrap_client(anthropic, tenant="acme")
    upstream.script(Call(cached_tokens=5, cache_write_tokens=3))
    first = client.messages.create(**ask(QUESTION))
    exact = client.messages.create(**ask(QUESTION), system=omit)
    similar = client.messages.create(**ask(REWORDED))
    assert {type(made) for made in (first, exact, similar)} == {Message}
    assert [made.content[0].text for made in (first, exact, similar)] == [f"Answer 1: {QUESTION}"] * 3
    assert len(upstream.requests) == 1
    assert first.usage.cache_creation_input_tokens == 3
    prompt_tokens = first.usage.input_tokens + 5 + 3
    assert (exact.usage.input_tokens, exact.usage.cache_read_input_tokens) == (0, prompt_tokens)
    assert exact.usage.output_tokens == first.usage.output_tokens > 0
    assert exact.stop_reason == "end_turn"


def test_streams(stack: CacheStack, anthropic: Anthropic, upstream: Upstream) -> None:
    client = stack.wrap_client(anthropic, tenant="acme")
    runs = []
    for _ in range(2):
        stream = client.messages.create(**ask(QUESTION), stream=True)
        assert isinstance(stream, Stream)
        runs.append(list(stream))
    miss, hit = runs
    assert text_of(miss) == text_of(hit) == f"Answer 1: {QUESTION}"
    kinds = [[e.type for e in run if e.type != "content_block_delta"] for run in runs]
    assert kinds[0] == kinds[1]
    with client.messages.stream(**ask(REWORDED)) as helper:
        assert "".join(helper.text_stream) == f"Answer 1: {QUESTION}"
        final = helper.get_final_message()
    assert final.usage.output_tokens == miss[-2].usage.output_tokens > 0
    assert final.usage.cache_read_input_tokens == miss[0].message.usage.input_tokens
    assert client.messages.create(**ask(QUESTION)).content[0].text == f"Answer 1: {QUESTION}"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("how", [{"reasoning": "Hm."}, {"finish": "stop_sequence"}, {"finish": "refusal"}], ids=str)
@pytest.mark.parametrize("streams", [False, True])
def test_what_is_more_than_text_is_never_kept(
    stack: CacheStack, anthropic: Anthropic, upstream: Upstream, how: dict[str, Any], streams: bool
) -> None:
    said = []
    for client in (anthropic, stack.wrap_client(anthropic, tenant="acme")):
        upstream.script(Call(text="All is well.", **how))
        made: Any = client.messages.create(**ask(QUESTION), stream=streams)
        parts = [part.model_dump() for part in made] if streams else [made.model_dump()]
        said.append([{k: v for k, v in part.items() if k not in ("id", "message")} for part in parts])
    assert said[0] == said[1]
    assert stack.performer.store.size().num_entries == 0


def test_tool_calls_pass_through_and_are_never_kept(make_stack: Any, anthropic: Anthropic, upstream: Upstream) -> None:
    stack = make_stack("default: {semantic: {allow_tools: true}}")
    client = stack.wrap_client(anthropic, tenant="acme")
    for _ in range(2):
        made = client.messages.create(**ask(QUESTION), tools=[TOOL])
        assert (made.stop_reason, made.content[0].name) == ("tool_use", "weather")
        with client.messages.stream(**ask(QUESTION), tools=[TOOL]) as stream:
            assert stream.get_final_message().content[0].name == "weather"
    assert len(upstream.requests) == 4
    assert stack.performer.store.size().num_entries == 0


@pytest.mark.parametrize(
    "other",
    [
        {"max_tokens": 65},
        {"system": "Be kind."},
        {"system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]},
        {"metadata": {"user_id": "7"}},
        {"extra_headers": {"anthropic-beta": "x"}},
        {"extra_body": {"top_k": 4}},
        {"stop_sequences": ["x"]},
        {"messages": [{"role": "user", "content": "Answer in rhymes from now on."},
                      {"role": "assistant", "content": "I will."},
                      {"role": "user", "content": QUESTION}]},
    ],
    ids=str,
)  # fmt: skip
def test_all_that_is_asked_with_counts(
    stack: CacheStack, anthropic: Anthropic, upstream: Upstream, other: dict[str, Any]
) -> None:
    client = stack.wrap_client(anthropic, tenant="acme")
    client.messages.create(**ask(QUESTION))
    for _ in range(2):
        client.messages.create(**ask(QUESTION) | other)
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("how", [{"cut_at": 4}, {"ends_at": 4}, {"malformed_at": 3}, {"error_at": 3}], ids=str)
def test_a_broken_stream_breaks_as_without_us_and_is_not_kept(
    stack: CacheStack, anthropic: Anthropic, upstream: Upstream, how: dict[str, Any]
) -> None:
    outcomes: list[Any] = []
    for client in (anthropic, stack.wrap_client(anthropic, tenant="acme")):
        upstream.script(Call(text="All is well here.", **how))
        seen: list[Any] = []
        try:
            for event in client.messages.create(**ask(QUESTION), stream=True):
                seen.append(event.type)
        except Exception as failure:
            seen.append(type(failure))
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]
    assert stack.performer.store.size().num_entries == 0


def test_errors_and_options(stack: CacheStack, anthropic: Anthropic, upstream: Upstream) -> None:
    client = stack.wrap_client(anthropic, tenant="acme")
    upstream.script(error(429, retry_after="3"))
    with pytest.raises(sdk.RateLimitError):
        client.messages.create(**ask(QUESTION))
    with pytest.raises(sdk.APIStatusError, match="nothing cached serves") as not_cached:
        client.with_options(max_retries=2).messages.create(
            **ask(QUESTION), extra_body={"cachestack": {"only_if_cached": True}}
        )
    assert not_cached.value.status_code == 504
    assert len(upstream.requests) == 1
    client.messages.create(**ask(QUESTION), extra_body={"cachestack": {"tags": ["faq"]}})
    assert "cachestack" not in upstream.last.body
    assert stack.invalidate(tenant="acme", tag="faq") == 1


def test_two_tenants_never_share(stack: CacheStack, anthropic: Anthropic, upstream: Upstream) -> None:
    for name in ("acme", "other"):
        stack.wrap_client(anthropic, tenant=name).messages.create(**ask(QUESTION))
    assert len(upstream.requests) == 2


async def test_the_async_client(stack: CacheStack, async_anthropic: AsyncAnthropic, upstream: Upstream) -> None:
    client = stack.wrap_client(async_anthropic, tenant="acme")
    first = await client.messages.create(**ask(QUESTION))
    assert first.content[0].text == f"Answer 1: {QUESTION}"
    for question in (QUESTION, REWORDED):
        async with client.messages.stream(**ask(question)) as helper:
            assert await helper.get_final_text() == f"Answer 1: {QUESTION}"
    events = [event async for event in await client.messages.create(**ask("Why is the sky blue?"), stream=True)]
    assert text_of(events) == "Answer 2: Why is the sky blue?"
    again = await client.messages.create(**ask("Why is the sky blue?"))
    assert again.content[0].text == "Answer 2: Why is the sky blue?"
    gate = Gate()
    upstream.script(error(500), Call(pause=(4, gate)))
    with pytest.raises(sdk.InternalServerError):
        await client.messages.create(**ask("Who wrote Hamlet?"))
    async with client.messages.stream(**ask("Who wrote Hamlet?")) as helper:
        await anext(helper)
    upstream.wait_for(lambda u: u.num_cancelled == 1)
    assert stack.performer.store.size().num_entries == 2
    await client.close()
