"""OpenAI's chat completions through a wrapped client: its own objects, streams and errors, on a hit and on a miss."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import openai as sdk
import pytest
from openai import AsyncOpenAI, OpenAI, Stream, omit
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from cachestack.aio import AsyncCacheStack
from cachestack.errors import UsageError
from tests.upstream.calls import Call, Gate, error
from tests.upstream.server import Upstream

if TYPE_CHECKING:
    from cachestack.stack import CacheStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def text_of(chunks: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_a_hit_is_the_clients_own_object(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    assert type(client) is OpenAI
    assert client is not openai
    assert openai.copy is not None
    first = client.chat.completions.create(model="m", messages=ask(QUESTION))
    exact = client.chat.completions.create(model="m", messages=ask(QUESTION))
    similar = client.chat.completions.create(model="m", messages=ask(REWORDED))
    assert {type(first), type(exact), type(similar)} == {ChatCompletion}
    texts = [made.choices[0].message.content for made in (first, exact, similar)]
    assert texts == [f"Answer 1: {QUESTION}"] * 3
    assert len(upstream.requests) == 1
    assert exact.usage.prompt_tokens == first.usage.prompt_tokens > 0
    assert exact.usage.prompt_tokens_details.cached_tokens == exact.usage.prompt_tokens
    assert exact.usage.completion_tokens == first.usage.completion_tokens > 0
    assert exact.choices[0].finish_reason == "stop"
    assert exact.id != first.id
    assert stack.stats().by_tenant["acme"].requests == 3


def test_the_clients_own_copy_is_not_cached(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    stack.wrap_client(openai, tenant="acme").chat.completions.create(model="m", messages=ask(QUESTION))
    made = openai.chat.completions.create(model="m", messages=ask(QUESTION))
    assert made.choices[0].message.content == f"Answer 2: {QUESTION}"


def test_on_a_miss_the_providers_object_comes_as_it_is(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    body = {
        "id": "x-1", "object": "chat.completion", "created": 7, "model": "m-2026", "vendor": {"region": "mars"},
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}],
    }  # fmt: skip
    upstream.script(Call(body=body))
    client = stack.wrap_client(openai, tenant="acme")
    made = client.chat.completions.create(model="m", messages=ask(QUESTION))
    assert (made.id, made.created, made.model) == ("x-1", 7, "m-2026")
    assert made.model_extra == {"vendor": {"region": "mars"}}
    assert client.chat.completions.create(model="m", messages=ask(QUESTION)).choices[0].message.content == "Yes."


@pytest.mark.parametrize("include_usage", [True, False])
def test_streams(stack: CacheStack, openai: OpenAI, upstream: Upstream, include_usage: bool) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    options: Any = {"include_usage": include_usage}
    runs = []
    for _ in range(2):
        stream = client.chat.completions.create(model="m", messages=ask(QUESTION), stream=True, stream_options=options)
        assert isinstance(stream, Stream)
        with stream as chunks:
            runs.append(list(chunks))
    miss, hit = runs
    assert {type(chunk) for chunk in miss + hit} == {ChatCompletionChunk}
    assert text_of(miss) == text_of(hit) == f"Answer 1: {QUESTION}"
    assert miss[0].choices[0].delta.role == hit[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in hit if c.choices][-1] == "stop"
    assert len({chunk.id for chunk in hit}) == 1
    assert (hit[-1].usage is not None) is include_usage
    if include_usage:
        assert hit[-1].usage.completion_tokens == miss[-1].usage.completion_tokens > 0
    whole = client.chat.completions.create(model="m", messages=ask(QUESTION))
    assert whole.choices[0].message.content == f"Answer 1: {QUESTION}"
    assert len(upstream.requests) == 1


def test_an_answer_that_was_whole_is_streamed(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    client.chat.completions.create(model="m", messages=ask(QUESTION))
    with client.chat.completions.stream(model="m", messages=ask(QUESTION)) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == f"Answer 1: {QUESTION}"
    assert len(upstream.requests) == 1


def test_a_stream_that_is_left_early_is_not_kept(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script(Call(pause=(3, gate)))
    client = stack.wrap_client(openai, tenant="acme")
    with client.chat.completions.create(model="m", messages=ask(QUESTION), stream=True) as stream:
        next(stream)
        gate.wait_reached()
    upstream.wait_for(lambda u: u.num_cancelled == 1)
    assert stack.performer.store.size().num_entries == 0


def test_structured_output_and_raw_responses(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    class Count(BaseModel):
        n: int

    client = stack.wrap_client(openai, tenant="acme")
    for _ in range(2):
        made = client.chat.completions.parse(model="m", messages=ask(QUESTION), response_format=Count)
        assert made.choices[0].message.parsed == Count(n=1)
    raws = [client.chat.completions.with_raw_response.create(model="m", messages=ask(QUESTION)) for _ in range(2)]
    assert [raw.headers["cache-status"] for raw in raws] == [
        "CacheStack; fwd=miss; stored",
        "CacheStack; hit; detail=exact",
    ]
    assert raws[1].parse().choices[0].message.content == raws[0].parse().choices[0].message.content
    assert stack.report_wrong(raws[1].headers["x-cachestack-hit-id"], tenant="acme")
    with client.chat.completions.with_streaming_response.create(model="m", messages=ask(QUESTION)) as response:
        assert json.loads(response.read())["choices"][0]["message"]["content"].startswith("Answer 3")
    assert len(upstream.requests) == 3


@pytest.mark.parametrize(
    "other",
    [
        {"model": "m2"},
        {"temperature": 0},
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"stop": ["x"]},
        {"seed": 1},
        {"response_format": {"type": "text"}},
        {"extra_body": {"guided_regex": "a+"}},
        {"extra_headers": {"X-Persona": "pirate"}},
        {"extra_query": {"version": "2"}},
        {"messages": [{"role": "system", "content": "Be kind."}, *ask(QUESTION)]},
        {"messages": [{"role": "user", "content": QUESTION, "name": "bob"}]},
        {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:,x"}}, {"type": "text", "text": QUESTION}]}]},
    ],
    ids=str,
)  # fmt: skip
def test_all_that_is_asked_with_counts(
    stack: CacheStack, openai: OpenAI, upstream: Upstream, other: dict[str, Any]
) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    plain: dict[str, Any] = {"model": "m", "messages": ask(QUESTION)}
    client.chat.completions.create(**plain)
    for _ in range(2):
        client.chat.completions.create(**plain | other)
    assert len(upstream.requests) == 2, "once as it was, once with the other parameter"


def test_what_is_left_out_and_what_follows_a_call_do_not_count(
    stack: CacheStack, openai: OpenAI, upstream: Upstream
) -> None:
    client = stack.wrap_client(openai, tenant="acme", ignored_headers=["X-Correlation-Id"])
    client.chat.completions.create(model="m", messages=ask(QUESTION))
    client.chat.completions.create(model="m", messages=ask(QUESTION), temperature=omit, tools=omit, stream=False)
    parts: Any = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    client.chat.completions.create(model="m", messages=parts)
    client.chat.completions.create(
        model="m", messages=ask(QUESTION), extra_headers={"traceparent": "00-1", "X-Correlation-Id": "7"}
    )
    client.with_options(timeout=7).chat.completions.create(model="m", messages=ask(QUESTION))
    assert len(upstream.requests) == 1


def test_options_of_one_call_are_not_sent(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(openai, tenant="acme", tags=["all"])

    def create(**options: Any) -> str:
        made = client.chat.completions.create(
            model="m", messages=ask(QUESTION), extra_body={"cachestack": options, "top_k": 3}
        )
        return str(made.choices[0].message.content)

    assert create(store=False) == f"Answer 1: {QUESTION}"
    assert create(tags=["faq"]) == f"Answer 2: {QUESTION}"
    assert create(lookup=False, store=False) == f"Answer 3: {QUESTION}"
    assert create() == f"Answer 2: {QUESTION}"
    assert [set(body) for body in upstream.bodies()] == [{"messages", "model", "top_k"}] * 3
    assert stack.invalidate(tenant="acme", tag="faq") == 1
    with pytest.raises(sdk.InternalServerError, match="nothing cached serves") as not_cached:
        create(only_if_cached=True)
    assert not_cached.value.status_code == 504
    for bad in ({"tenant": "other"}, {"tags": "faq"}, {"ttl_s": -1}, {"store": "no"}):
        with pytest.raises(sdk.BadRequestError, match="CacheStack"):
            create(**bad)
    assert len(upstream.requests) == 3


def test_tool_calls_pass_through_and_are_never_kept(make_stack: Any, openai: OpenAI, upstream: Upstream) -> None:
    stack = make_stack("default: {semantic: {allow_tools: true}}")
    client = stack.wrap_client(openai, tenant="acme")
    for _ in range(2):
        made = client.chat.completions.create(model="m", messages=ask(QUESTION), tools=[TOOL])
        assert made.choices[0].message.tool_calls[0].function.name == "weather"
        with client.chat.completions.stream(model="m", messages=ask(QUESTION), tools=[TOOL]) as stream:
            message = stream.get_final_completion().choices[0].message
        assert message.tool_calls[0].function.name == "weather"
        assert json.loads(message.tool_calls[0].function.arguments) == {}
    assert len(upstream.requests) == 4
    assert stack.performer.store.size().num_entries == 0


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    "how", [{"refusal": "No."}, {"logprobs": True}, {"reasoning": "Hm."}, {"finish": "content_filter"}], ids=str
)
def test_what_is_more_than_text_is_never_kept(
    stack: CacheStack, openai: OpenAI, upstream: Upstream, how: dict[str, Any], streams: bool
) -> None:
    said = []
    for client in (openai, stack.wrap_client(openai, tenant="acme")):
        upstream.script(Call(text="All is well here.", **how))
        made: Any = client.chat.completions.create(model="m", messages=ask(QUESTION), stream=streams)
        parts = list(made) if streams else [made]
        said.append([part.model_dump()["choices"] for part in parts])
    assert said[0] == said[1]
    assert stack.performer.store.size().num_entries == 0


BROKEN = [{"cut_at": 3}, {"ends_at": 3}, {"malformed_at": 2}, {"error_at": 2}]


@pytest.mark.parametrize("how", BROKEN, ids=str)
def test_a_broken_stream_breaks_as_without_us_and_is_not_kept(
    stack: CacheStack, openai: OpenAI, upstream: Upstream, how: dict[str, Any]
) -> None:
    outcomes: list[Any] = []
    for client in (openai, stack.wrap_client(openai, tenant="acme")):
        upstream.script(Call(text="All is well here.", **how))
        seen: list[Any] = []
        try:
            for chunk in client.chat.completions.create(model="m", messages=ask(QUESTION), stream=True):
                seen.append(chunk.choices[0].delta.content)
        except Exception as failure:
            seen.append(type(failure))
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]
    assert stack.performer.store.size().num_entries == 0


@pytest.mark.parametrize("streams", [False, True])
def test_errors_are_the_clients_own(stack: CacheStack, openai: OpenAI, upstream: Upstream, streams: bool) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    upstream.script(error(429, retry_after="3"), error(400), error(500), Call(body={"error": {"message": "odd"}}))
    with pytest.raises(sdk.RateLimitError) as limited:
        client.chat.completions.create(model="m", messages=ask(QUESTION), stream=streams)
    assert limited.value.response.headers["retry-after"] == "3"
    with pytest.raises(sdk.BadRequestError):
        client.chat.completions.create(model="m", messages=ask(QUESTION), stream=streams)
    with pytest.raises(sdk.InternalServerError):
        client.chat.completions.create(model="m", messages=ask(QUESTION), stream=streams)
    assert len(upstream.requests) == 3, "the pipeline asks once: trying again is the client's own affair"
    made = client.chat.completions.create(model="m", messages=ask(QUESTION))
    assert made.choices is None
    assert stack.performer.store.size().num_entries == 0


def test_the_client_tries_again_by_its_own_rules(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(openai, tenant="acme").with_options(max_retries=2)
    upstream.script(error(503, retry_after="0.001"), error(503, retry_after="0.001"))
    made = client.chat.completions.create(model="m", messages=ask(QUESTION))
    assert made.choices[0].message.content == f"Answer 3: {QUESTION}"


def test_a_provider_that_is_not_there(stack: CacheStack) -> None:
    client = stack.wrap_client(OpenAI(base_url="http://127.0.0.1:9", api_key="k", max_retries=0), tenant="acme")
    with pytest.raises(sdk.APIConnectionError):
        client.chat.completions.create(model="m", messages=ask(QUESTION))


def test_a_stale_answer_serves_where_the_policy_says_so(make_stack: Any, openai: OpenAI, upstream: Upstream) -> None:
    stack = make_stack("default: {retention: {ttl_s: 0.000001}, fallback: {engine_error: [stale, raise]}}")
    client = stack.wrap_client(openai, tenant="acme")
    client.chat.completions.create(model="m", messages=ask(QUESTION))
    upstream.script(error(503), error(401), error(503))
    made = client.chat.completions.create(model="m", messages=ask(QUESTION))
    assert made.choices[0].message.content == f"Answer 1: {QUESTION}"
    with pytest.raises(sdk.AuthenticationError):
        client.chat.completions.create(model="m", messages=ask(QUESTION))
    chunks = client.chat.completions.create(model="m", messages=ask(QUESTION), stream=True)
    assert text_of(chunks) == f"Answer 1: {QUESTION}"


def test_two_tenants_never_share(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    clients = [stack.wrap_client(openai, tenant=name) for name in ("acme", "other")]
    for client in clients:
        client.chat.completions.create(model="m", messages=ask(QUESTION))
    assert len(upstream.requests) == 2
    whose = {"name": "acme"}
    client = stack.wrap_client(openai, tenant=lambda body: whose["name"])
    assert client.chat.completions.create(model="m", messages=ask(QUESTION)).choices[0].message.content == (
        f"Answer 1: {QUESTION}"
    )
    whose["name"] = "third"
    client.chat.completions.create(model="m", messages=ask(QUESTION))
    assert len(upstream.requests) == 3


def test_users_are_walls_where_the_policy_says_so(make_stack: Any, openai: OpenAI, upstream: Upstream) -> None:
    stack = make_stack("default: {semantic: {walls: [user]}}")
    for user, num_calls in (("ann", 1), ("bob", 2), ("ann", 2), (None, 3), (None, 4)):
        client = stack.wrap_client(openai, tenant="acme", user=user)
        client.chat.completions.create(model="m", messages=ask(QUESTION))
        assert len(upstream.requests) == num_calls


def test_threads_share_one_client(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    texts = ["What is the capital of France?", "How old is the universe?", "Who wrote Hamlet?", "Why is the sky blue?"]
    barrier = threading.Barrier(8)

    def one(i: int) -> str:
        barrier.wait()
        text = texts[i % 4]
        if i % 2:
            return text_of(client.chat.completions.create(model="m", messages=ask(text), stream=True))
        return str(client.chat.completions.create(model="m", messages=ask(text)).choices[0].message.content)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(one, range(8)))
    assert [answer.partition(": ")[2] for answer in made] == [texts[i % 4] for i in range(8)]


def test_each_response_can_be_seen(stack: CacheStack, openai: OpenAI) -> None:
    seen: list[Any] = []
    client = stack.wrap_client(openai, tenant="acme", on_response=seen.append)
    client.chat.completions.create(model="m", messages=ask(QUESTION))
    list(client.chat.completions.create(model="m", messages=ask(QUESTION), stream=True))
    assert [response.trace.served_from for response in seen] == ["engine", "exact"]
    assert seen[0].usage.completion_tokens == seen[1].usage.completion_tokens > 0


def test_other_calls_pass(stack: CacheStack, openai: OpenAI) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    assert [model.id for model in client.models.list()] == ["scripted", "scripted-large"]
    assert len(client.embeddings.create(model="m", input=["a"]).data[0].embedding) == 8


def test_what_is_no_text_passes_with_its_options_taken_out(
    stack: CacheStack, openai: OpenAI, upstream: Upstream
) -> None:
    client = stack.wrap_client(openai, tenant="acme")
    image: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}]
    for _ in range(2):
        client.chat.completions.create(model="m", messages=image, extra_body={"cachestack": {"tags": ["a"]}})
    assert [set(body) for body in upstream.bodies()] == [{"model", "messages"}] * 2


def test_what_cannot_be_wrapped_says_so(stack: CacheStack, openai: OpenAI) -> None:
    with pytest.raises(UsageError, match=r"not builtins\.dict"):
        stack.wrap_client({}, tenant="acme")
    with pytest.raises(UsageError, match="wrapped already"):
        stack.wrap_client(stack.wrap_client(openai, tenant="acme"), tenant="acme")


def test_closing_closes_the_connections_of_both(stack: CacheStack, upstream: Upstream) -> None:
    openai = OpenAI(base_url=upstream.base_url, api_key="key")
    client = stack.wrap_client(openai, tenant="acme")
    assert not client.is_closed()
    client.close()
    assert client.is_closed()
    assert openai.is_closed()


async def test_the_async_client(stack: CacheStack, async_openai: AsyncOpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(async_openai, tenant="acme")
    assert type(client) is AsyncOpenAI
    first = await client.chat.completions.create(model="m", messages=ask(QUESTION))
    assert first.choices[0].message.content == f"Answer 1: {QUESTION}"
    runs = []
    for question in (QUESTION, REWORDED, "Why is the sky blue?", "Why is the sky blue?"):
        async with await client.chat.completions.create(model="m", messages=ask(question), stream=True) as stream:
            runs.append(text_of([chunk async for chunk in stream]))
    assert runs == [f"Answer 1: {QUESTION}"] * 2 + ["Answer 2: Why is the sky blue?"] * 2
    async with client.chat.completions.stream(model="m", messages=ask(QUESTION)) as helper:
        final = await helper.get_final_completion()
    assert final.choices[0].message.content == f"Answer 1: {QUESTION}"
    assert len(upstream.requests) == 2
    await client.close()


async def test_async_errors_and_early_ends(stack: CacheStack, async_openai: AsyncOpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(async_openai, tenant="acme")
    upstream.script(error(429), Call(cut_at=3))
    with pytest.raises(sdk.RateLimitError):
        await client.chat.completions.create(model="m", messages=ask(QUESTION))
    with pytest.raises(Exception, match=r"incomplete|closed|peer|Connection"):
        _ = [c async for c in await client.chat.completions.create(model="m", messages=ask(QUESTION), stream=True)]
    gate = Gate()
    upstream.script(Call(pause=(3, gate)))
    async with await client.chat.completions.create(model="m", messages=ask(QUESTION), stream=True) as stream:
        await anext(stream)
    upstream.wait_for(lambda u: u.num_cancelled == 1)
    assert stack.performer.store.size().num_entries == 0
    await client.close()


def test_a_client_on_the_other_http_library(stack: CacheStack, upstream: Upstream) -> None:
    with httpx.Client(headers={"X-Mine": "1"}) as http:
        openai = OpenAI(base_url=upstream.base_url, api_key="key", max_retries=0, http_client=http)
        client = stack.wrap_client(openai, tenant="acme")
        for _ in range(2):
            assert text_of(client.chat.completions.create(model="m", messages=ask(QUESTION), stream=True))
        assert len(upstream.requests) == 1
        assert upstream.last.headers["x-mine"] == "1"


async def test_an_async_stack_wraps_as_well(stack: CacheStack, async_openai: AsyncOpenAI, upstream: Upstream) -> None:
    awaited = AsyncCacheStack(stack)
    client = awaited.wrap_client(async_openai, tenant="acme")
    for _ in range(2):
        made = await client.chat.completions.create(model="m", messages=ask(QUESTION))
        assert made.choices[0].message.content == f"Answer 1: {QUESTION}"

    @awaited.wrap(tenant="acme", model="m", name="f")
    async def later(prompt: str) -> str:
        return "from a coroutine"

    assert await later("Hello there") == "from a coroutine"
    await client.close()


async def test_tasks_share_one_client(stack: CacheStack, async_openai: AsyncOpenAI, upstream: Upstream) -> None:
    client = stack.wrap_client(async_openai, tenant="acme")
    texts = ["What is the capital of France?", "Who wrote Hamlet?", "Why is the sky blue?"]

    async def one(text: str) -> str:
        stream = await client.chat.completions.create(model="m", messages=ask(text), stream=True)
        return text_of([chunk async for chunk in stream])

    made = await asyncio.gather(*(one(texts[i % 3]) for i in range(12)))
    assert [answer.partition(": ")[2] for answer in made] == [texts[i % 3] for i in range(12)]
    assert len(upstream.requests) == 3
    await client.close()


def test_the_two_names_of_a_limit_are_not_one(stack: CacheStack, openai: OpenAI, upstream: Upstream) -> None:
    """There are servers that know only one of them, and answer at full length to the other."""
    client = stack.wrap_client(openai, tenant="acme")
    for _ in range(2):
        client.chat.completions.create(model="m", messages=ask(QUESTION), max_tokens=5)
        client.chat.completions.create(model="m", messages=ask(QUESTION), max_completion_tokens=5)
    assert len(upstream.requests) == 2
