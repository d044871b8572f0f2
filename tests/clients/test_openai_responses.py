"""OpenAI's responses through a wrapped client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI
from openai.types.responses import Response

from tests.upstream.calls import Call, error
from tests.upstream.server import Upstream

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
TOOL: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}


def text_of(events: Any) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_a_hit_is_the_clients_own_object(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    first = client.responses.create(model="m", input=QUESTION)
    as_items: Any = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]
    made = [
        client.responses.create(model="m", input=QUESTION),
        client.responses.create(model="m", input=REWORDED),
        client.responses.create(model="m", input=as_items),
    ]
    assert [type(hit) for hit in made] == [Response] * 3
    assert [hit.output_text for hit in made] == [first.output_text] * 3 == [f"Answer 1: {QUESTION}"] * 3
    assert len(upstream.requests) == 1
    assert made[0].usage.output_tokens == first.usage.output_tokens > 0
    assert made[0].usage.input_tokens_details.cached_tokens == made[0].usage.input_tokens == first.usage.input_tokens
    assert (made[0].status, made[0].object) == ("completed", "response")


def test_streams(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    runs = [list(client.responses.create(model="m", input=QUESTION, stream=True)) for _ in range(2)]
    assert text_of(runs[0]) == text_of(runs[1]) == f"Answer 1: {QUESTION}"
    kinds = [[e.type for e in run if e.type != "response.output_text.delta"] for run in runs]
    assert kinds[0] == kinds[1]
    assert [event.sequence_number for event in runs[1]] == list(range(len(runs[1])))
    with client.responses.stream(model="m", input=REWORDED) as helper:
        final = helper.get_final_response()
    assert final.output_text == f"Answer 1: {QUESTION}"
    assert final.usage.output_tokens == runs[0][-1].response.usage.output_tokens > 0
    assert client.responses.create(model="m", input=QUESTION).output_text == f"Answer 1: {QUESTION}"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("how", [{"refusal": "No."}, {"reasoning": "Hm."}], ids=str)
def test_only_text_is_kept_and_reasoning_that_says_nothing_does_not_hinder_it(
    stack: CacheStack, openai: OpenAI, upstream: Upstream, how: dict[str, Any], streams: bool
) -> None:
    said = []
    for client in (openai, stack.wrap_client(openai, tenant="acme")):
        upstream.script(Call(text="All is well.", **how))
        made: Any = client.responses.create(model="m", input=QUESTION, stream=streams)
        said.append([part.type for part in made] if streams else [item.type for item in made.output])
    assert said[0] == said[1]
    assert stack.performer.store.size().num_entries == ("reasoning" in how)


@pytest.mark.parametrize("how", [{"cut_at": 6}, {"ends_at": 6}, {"malformed_at": 5}, {"error_at": 5}], ids=str)
def test_a_broken_stream_breaks_as_without_us_and_is_not_kept(
    stack: CacheStack, openai: OpenAI, upstream: Upstream, how: dict[str, Any]
) -> None:
    outcomes: list[Any] = []
    for client in (openai, stack.wrap_client(openai, tenant="acme")):
        upstream.script(Call(text="All is well here.", **how))
        seen: list[Any] = []
        try:
            for event in client.responses.create(model="m", input=QUESTION, stream=True):
                seen.append(event.type)
        except Exception as failure:
            seen.append(type(failure))
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]
    assert stack.performer.store.size().num_entries == 0


def test_tool_calls_pass_through_and_are_never_kept(make_stack: Any, openai: OpenAI, upstream: Upstream) -> None:
    stack = make_stack("default: {semantic: {allow_tools: true}}")
    client = stack.wrap_client(openai, tenant="acme")
    for _ in range(2):
        made = client.responses.create(model="m", input=QUESTION, tools=[TOOL])
        assert [item.type for item in made.output] == ["function_call"]
        with client.responses.stream(model="m", input=QUESTION, tools=[TOOL]) as stream:
            assert stream.get_final_response().output[0].name == "weather"
    assert len(upstream.requests) == 4
    assert stack.performer.store.size().num_entries == 0


@pytest.mark.parametrize(
    "other",
    [
        {"instructions": "Be kind."},
        {"max_output_tokens": 5},
        {"reasoning": {"effort": "low"}},
        {"store": False},
        {"text": {"verbosity": "low"}},
    ],
    ids=str,
)
def test_all_that_is_asked_with_counts(
    stack: CacheStack, openai: OpenAI, upstream: Upstream, other: dict[str, Any]
) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    client.responses.create(model="m", input=QUESTION)
    for _ in range(2):
        client.responses.create(model="m", input=QUESTION, **other)
    assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    "state",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"background": True},
        {"prompt": {"id": "pmpt_1"}},
    ],
)
def test_what_the_provider_keeps_is_not_cached(
    stack: CacheStack, openai: OpenAI, upstream: Upstream, state: dict[str, Any]
) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    for _ in range(2):
        client.responses.create(model="m", input=QUESTION, **state)
    assert len(upstream.requests) == 2


async def test_the_async_client(stack: CacheStack, async_openai: AsyncOpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(async_openai, tenant="acme")
    upstream.script(error(400))
    with pytest.raises(BadRequestError):
        await client.responses.create(model="m", input=QUESTION)
    first = [event async for event in await client.responses.create(model="m", input=QUESTION, stream=True)]
    assert text_of(first) == f"Answer 2: {QUESTION}"
    assert (await client.responses.create(model="m", input=REWORDED)).output_text == f"Answer 2: {QUESTION}"
    async with client.responses.stream(model="m", input=QUESTION) as helper:
        assert (await helper.get_final_response()).output_text == f"Answer 2: {QUESTION}"
    assert len(upstream.requests) == 2
    await client.close()
