"""The scripted upstream is what real clients take it for, and sees what a test asks about."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from openai import APIConnectionError, InternalServerError, OpenAI, RateLimitError

from tests.upstream.calls import Call, Gate, error
from tests.upstream.server import Upstream

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASKED: Any = [{"role": "user", "content": "capital of France"}]


@pytest.fixture
def openai(upstream: Upstream) -> OpenAI:
    return OpenAI(base_url=upstream.base_url, api_key="key", max_retries=0)


@pytest.fixture
def anthropic(upstream: Upstream) -> Anthropic:
    return Anthropic(base_url=upstream.root_url, api_key="key", max_retries=0)


def test_openai_chat(upstream: Upstream, openai: OpenAI) -> None:
    upstream.script(Call(cached_tokens=7))
    made = openai.chat.completions.create(model="m", messages=ASKED)
    assert made.choices[0].message.content == "Answer 1: capital of France"
    assert made.usage.prompt_tokens_details.cached_tokens == 7
    assert upstream.last.body["messages"] == ASKED
    assert upstream.last.headers["authorization"] == "Bearer key"
    options: Any = {"include_usage": True}
    chunks = list(openai.chat.completions.create(model="m", messages=ASKED, stream=True, stream_options=options))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Answer 2: capital of France"
    assert chunks[-1].usage.completion_tokens == 5


def test_openai_tools_and_schemas(openai: OpenAI) -> None:
    made = openai.chat.completions.create(model="m", messages=ASKED, tools=[TOOL])
    assert made.choices[0].message.tool_calls[0].function.arguments == '{"city": "text"}'
    with openai.chat.completions.stream(model="m", messages=ASKED, tools=[TOOL]) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.tool_calls[0].function.name == "weather"
    schema = {"name": "s", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    wanted: Any = {"type": "json_schema", "json_schema": schema}
    made = openai.chat.completions.create(model="m", messages=ASKED, response_format=wanted)
    assert made.choices[0].message.content == '{"n": 1}'


def test_openai_responses_completions_embeddings_and_models(openai: OpenAI) -> None:
    assert openai.responses.create(model="m", input="hello").output_text == "Answer 1: hello"
    with openai.responses.stream(model="m", input="hello") as stream:
        assert stream.get_final_response().output_text == "Answer 2: hello"
    tool: Any = {"type": "function", **TOOL["function"], "strict": False}
    with openai.responses.stream(model="m", input="hello", tools=[tool]) as stream:
        assert stream.get_final_response().output[0].arguments == '{"city": "text"}'
    assert openai.completions.create(model="m", prompt="once").choices[0].text == "Answer 4: once"
    parts = openai.completions.create(model="m", prompt="once", stream=True)
    assert "".join(part.choices[0].text for part in parts) == "Answer 5: once"
    plain = openai.embeddings.create(model="m", input=["a", "b"], encoding_format="float").data[1].embedding
    assert openai.embeddings.create(model="m", input=["b"]).data[0].embedding == pytest.approx(plain)
    assert [model.id for model in openai.models.list()] == ["scripted", "scripted-large"]


def test_anthropic(upstream: Upstream, anthropic: Anthropic) -> None:
    upstream.script(Call(cached_tokens=5, cache_write_tokens=3))
    made = anthropic.messages.create(model="m", max_tokens=9, messages=ASKED)
    assert made.content[0].text == "Answer 1: capital of France"
    assert (made.usage.cache_read_input_tokens, made.usage.cache_creation_input_tokens) == (5, 3)
    upstream.script(Call(reasoning="thinking"))
    with anthropic.messages.stream(model="m", max_tokens=9, messages=ASKED) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]
    assert final.usage.output_tokens == 5
    tool: Any = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}
    with anthropic.messages.stream(model="m", max_tokens=9, messages=ASKED, tools=[tool]) as stream:
        assert stream.get_final_message().content[0].input == {"city": "text"}


def test_it_misbehaves_as_told(upstream: Upstream, openai: OpenAI) -> None:
    upstream.script(error(429, retry_after="3"), error(500), Call(cut_at=3), Call(cut_at=0))
    with pytest.raises(RateLimitError) as limited:
        openai.chat.completions.create(model="m", messages=ASKED)
    assert limited.value.response.headers["retry-after"] == "3"
    with pytest.raises(InternalServerError):
        openai.chat.completions.create(model="m", messages=ASKED)
    chunks = openai.chat.completions.create(model="m", messages=ASKED, stream=True)
    assert [next(chunks).choices[0].delta.content for _ in range(3)] == ["", "Answer", " 3:"]
    with pytest.raises(APIConnectionError):
        next(chunks)
    with pytest.raises(APIConnectionError):
        openai.chat.completions.create(model="m", messages=ASKED)


def test_a_client_that_leaves_is_seen(upstream: Upstream) -> None:
    gate, never = Gate(), Gate()
    upstream.script(Call(pause=(3, gate)), Call(before=never))
    body = {"model": "m", "messages": ASKED, "stream": True}
    with httpx.stream("POST", upstream.base_url + "/chat/completions", json=body) as response:
        assert next(response.iter_lines()).startswith("data: ")
        gate.wait_reached()
    upstream.wait_for(lambda u: u.num_cancelled == 1)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(upstream.base_url + "/chat/completions", json=body, timeout=httpx.Timeout(5.0, read=0.05))
    upstream.wait_for(lambda u: u.num_cancelled == 2)
    assert httpx.post(upstream.base_url + "/chat/completions", json=body | {"stream": False}).status_code == 200
    assert upstream.num_cancelled == 2
