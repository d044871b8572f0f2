"""The official OpenAI client against the embedded models: misses and hits, whole and streamed, sync and async."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

from tests.gateway.served import Served

MESSAGES: Any = [
    {"role": "system", "content": "You are the help desk of ACME. Answer in one short sentence."},
    {"role": "user", "content": "How do I reset my password?"},
]


@pytest.fixture(scope="module")
def client(embedded: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{embedded.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_the_first_model_is_the_one_to_chat_with_and_the_encoder_is_last(
    client: openai.OpenAI, embedded: Served
) -> None:
    listed = [model.id for model in client.models.list()]
    assert listed[0] == embedded.model
    assert listed[-1] == "all-minilm-l6-v2"
    assert client.models.retrieve(listed[0]).owned_by == "cachestack"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("another")


def test_the_second_time_is_a_hit_with_the_same_answer_and_the_tokens_it_saved(
    client: openai.OpenAI, embedded: Served
) -> None:
    ask = client.chat.completions.with_raw_response
    raw = [ask.create(model=embedded.model, messages=MESSAGES, max_tokens=5) for _ in range(2)]
    assert [one.headers["cache-status"] for one in raw] == [
        "CacheStack; fwd=uri-miss; stored",
        "CacheStack; hit; detail=exact",
    ]
    first, again = (one.parse() for one in raw)
    assert first.choices[0].message.content == again.choices[0].message.content != ""
    assert first.choices[0].finish_reason == again.choices[0].finish_reason == "length"
    assert first.usage.completion_tokens == again.usage.completion_tokens == 5
    assert again.usage.prompt_tokens_details.cached_tokens == again.usage.prompt_tokens > 0
    assert first.id != again.id
    assert first.id.endswith(raw[0].headers["x-cachestack-trace"])


def test_the_same_meaning_is_a_hit(client: openai.OpenAI, embedded: Served) -> None:
    def ask(question: str) -> tuple[str, str | None]:
        raw = client.chat.completions.with_raw_response.create(
            model=embedded.model,
            messages=[MESSAGES[0], {"role": "user", "content": question}],
            max_tokens=40,
            stop=["."],
            temperature=0,
        )
        return raw.headers["cache-status"], raw.parse().choices[0].message.content

    ask("How can I change my mail address?")
    first, text = ask("How do I reset my password?")
    assert first.startswith("CacheStack; fwd=")
    assert ask("How can I reset my password?") == ("CacheStack; hit; detail=semantic", text)
    assert ask("How do I reset my username?")[0].startswith("CacheStack; fwd=")


@pytest.mark.parametrize("time", ["miss", "hit"])
def test_a_stream_ends_with_the_reason_and_with_the_usage_where_it_is_asked_for(
    client: openai.OpenAI, embedded: Served, time: str
) -> None:
    """Trap 9: a hit is a stream as well, with its usage."""
    chunks = list(
        client.chat.completions.create(
            model=embedded.model,
            messages=[{"role": "user", "content": "Say hello."}],
            max_tokens=6,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *pieces, last, usage = chunks
    assert pieces[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
    assert last.choices[0].finish_reason == "length"
    assert usage.choices == []
    assert usage.usage.completion_tokens == 6
    assert all(chunk.usage is None for chunk in [*pieces, last])
    assert len({chunk.id for chunk in chunks}) == 1


def test_no_usage_unless_it_is_asked_for(client: openai.OpenAI, embedded: Served) -> None:
    stream = client.chat.completions.create(model=embedded.model, messages=MESSAGES, max_tokens=5, stream=True)
    assert all(chunk.usage is None and chunk.choices for chunk in stream)


def test_the_streaming_helper_puts_the_answer_together(client: openai.OpenAI, embedded: Served) -> None:
    whole = client.chat.completions.create(model=embedded.model, messages=MESSAGES, max_tokens=5)
    with client.chat.completions.stream(model=embedded.model, messages=MESSAGES, max_completion_tokens=5) as stream:
        for _ in stream:
            pass
    completion = stream._state.current_completion_snapshot
    assert completion.choices[0].message.content == whole.choices[0].message.content


def test_completions(client: openai.OpenAI, embedded: Served) -> None:
    whole = [client.completions.create(model=embedded.model, prompt="Say one word.", max_tokens=4) for _ in range(2)]
    assert whole[0].choices[0].text == whole[1].choices[0].text
    stream = client.completions.create(model=embedded.model, prompt="Say one word.", max_tokens=4, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole[0].choices[0].text


def test_responses(client: openai.OpenAI, embedded: Served) -> None:
    asked: dict[str, Any] = {
        "model": embedded.model,
        "instructions": "Be brief.",
        "input": "Say one word.",
        "max_output_tokens": 16,
    }
    whole = client.responses.create(**asked)
    assert whole.output_text
    assert whole.usage.output_tokens <= 16
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    final = events[-1].response
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == {"completed": "response.completed", "incomplete": "response.incomplete"}[whole.status]
    assert [event.sequence_number for event in events] == sorted(event.sequence_number for event in events)
    assert final.output_text == whole.output_text
    assert final.usage.input_tokens_details.cached_tokens == whole.usage.input_tokens
    items = client.responses.create(
        model=embedded.model,
        input=[{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Say one word."}],
        max_output_tokens=16,
    )
    assert items.output_text


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings_are_the_encoder_s(client: openai.OpenAI, embedded: Served, form: str) -> None:
    texts = ["How do I reset my password?", "The weather is fine."]
    made = client.embeddings.create(model="all-minilm-l6-v2", input=texts, encoding_format=form)
    expected = embedded.gateway.stack.performer.encoder.encode(texts)
    rows: list[Any] = [row.embedding for row in made.data]
    if form == "base64":
        import base64

        rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
    assert np.allclose(rows, expected, atol=1e-6)
    assert made.usage.prompt_tokens > 0


def test_the_client_s_own_form_of_embeddings(client: openai.OpenAI) -> None:
    (row,) = client.embeddings.create(model="all-minilm-l6-v2", input="hello").data
    assert math.isclose(sum(x * x for x in row.embedding), 1, abs_tol=1e-4)
    with pytest.raises(openai.BadRequestError, match="window"):
        client.embeddings.create(model="all-minilm-l6-v2", input="word " * 400)
    with pytest.raises(openai.NotFoundError, match="all-minilm-l6-v2"):
        client.embeddings.create(model="text-embedding-3-small", input="hello")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response format"),
        ({"n": 2}, "n > 1"),
        ({"logprobs": True}, "logprobs"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"extra_body": {"guided_regex": "a+"}}, "guided_regex"),
    ],
)
def test_what_the_embedded_engine_cannot_do_is_refused_with_the_reason(
    client: openai.OpenAI, embedded: Served, more: dict, reason: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=reason):
        client.chat.completions.create(model=embedded.model, messages=MESSAGES, max_tokens=2, **more)


def test_an_image_is_refused_and_what_asks_for_nothing_is_not(client: openai.OpenAI, embedded: Served) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
    with pytest.raises(openai.BadRequestError, match="image_url"):
        client.chat.completions.create(
            model=embedded.model,
            messages=messages,
        )
    neutral: dict[str, Any] = {
        "frequency_penalty": 0,
        "logprobs": False,
        "parallel_tool_calls": True,
        "tool_choice": "none",
    }
    made = client.chat.completions.create(
        model=embedded.model, messages=MESSAGES, max_tokens=5, response_format={"type": "text"}, user="u", **neutral
    )
    assert made.choices[0].message.content


async def test_async_whole_and_streamed(embedded: Served) -> None:
    async with openai.AsyncOpenAI(base_url=f"{embedded.url}/v1", api_key="none", max_retries=0) as client:
        whole = await client.chat.completions.create(model=embedded.model, messages=MESSAGES, max_tokens=5)
        stream = await client.chat.completions.create(
            model=embedded.model, messages=MESSAGES, max_tokens=5, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == whole.choices[0].message.content
        responded = await client.responses.create(model=embedded.model, input="Say hello.", max_output_tokens=16)
        assert responded.output_text
