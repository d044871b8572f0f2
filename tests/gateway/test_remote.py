"""Official clients through the gateway to a scripted upstream: nothing of what a provider says is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pydantic
import pytest

from cachestack.gateway.config import GatewayConfig, load_config
from cachestack.gateway.server import Gateway
from tests.gateway.served import Served, eventually
from tests.upstream.calls import Call, Gate, error
from tests.upstream.server import Upstream

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ANTHROPIC_TOOL: Any = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]


class City(pydantic.BaseModel):
    name: str
    inhabitants: int


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def served(upstream: Upstream, tmp_path: Path) -> Iterator[Served]:
    retries = {"num_retries": 0}
    engines = {
        "openai": {"kind": "openai", "base_url": f"{upstream.base_url}", "names": ["gpt-*"], "retries": retries},
        "claude": {"kind": "anthropic", "base_url": upstream.root_url, "names": ["claude-*"], "retries": retries},
    }
    policies = tmp_path / "policies.yaml"
    policies.write_text("default: {fallback: {engine_error: [raise]}}")
    config = GatewayConfig(port=0, home=tmp_path, encoder="none", engines=engines, policies=policies)
    with Served(Gateway.of(config)) as served:
        yield served


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="mine", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="mine", max_retries=0) as client:
        yield client


def test_a_miss_is_the_provider_s_answer_as_it_is_and_the_second_time_a_hit(
    client: openai.OpenAI, upstream: Upstream
) -> None:
    asked: Any = {"model": "gpt-x", "messages": QUESTION, "temperature": 0}
    first, again = (client.chat.completions.with_raw_response.create(**asked) for _ in range(2))
    assert first.http_response.json()["id"] != again.http_response.json()["id"]
    assert again.headers["cache-status"] == "CacheStack; hit; detail=exact"
    assert first.parse().choices[0].message.content == again.parse().choices[0].message.content
    assert len(upstream.bodies()) == 1


def test_unknown_fields_pass_through_and_count(client: openai.OpenAI, upstream: Upstream) -> None:
    def ask(**more: Any) -> str:
        raw = client.chat.completions.with_raw_response.create(model="gpt-x", messages=QUESTION, extra_body=more)
        return raw.headers["cache-status"].split("; ")[1]

    assert ask(guided_regex="a+") == "fwd=uri-miss"
    assert upstream.last.body["guided_regex"] == "a+"
    assert ask(guided_regex="a+") == "hit"
    assert ask(guided_regex="b+") == "fwd=uri-miss"
    assert ask() == "fwd=uri-miss"
    assert ask(metadata={"request": "1"}, user="somebody", store=True) == "hit"


def test_the_caller_s_key_stays_here(client: openai.OpenAI, upstream: Upstream) -> None:
    client.chat.completions.create(model="gpt-x", messages=QUESTION)
    assert "mine" not in str(upstream.last.headers)


def test_tool_calls_whole_and_streamed(client: openai.OpenAI, upstream: Upstream) -> None:
    whole: Any = client.chat.completions.create(model="gpt-x", messages=QUESTION, tools=[TOOL])
    (call,) = whole.choices[0].message.tool_calls
    assert whole.choices[0].finish_reason == "tool_calls"
    with client.chat.completions.stream(model="gpt-x", messages=QUESTION, tools=[TOOL]) as stream:
        for _ in stream:
            pass
        final: Any = stream.get_final_completion()
    (streamed,) = final.choices[0].message.tool_calls
    assert final.choices[0].finish_reason == "tool_calls"
    assert (streamed.function.name, streamed.function.arguments) == (call.function.name, call.function.arguments)
    results: Any = [*QUESTION, whole.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    answer = client.chat.completions.create(model="gpt-x", messages=results, tools=[TOOL])
    assert answer.choices[0].message.content
    assert upstream.last.body["messages"][-1]["content"] == "sunny"
    assert len(upstream.bodies()) == 3


def test_structured_output(client: openai.OpenAI) -> None:
    for _ in range(2):
        parsed = client.chat.completions.parse(model="gpt-x", messages=QUESTION, response_format=City)
        assert isinstance(parsed.choices[0].message.parsed, City)


def test_a_stream_has_the_upstream_s_usage(client: openai.OpenAI, upstream: Upstream) -> None:
    def ask() -> list[Any]:
        return list(
            client.chat.completions.create(
                model="gpt-x", messages=QUESTION, stream=True, stream_options={"include_usage": True}
            )
        )

    first, again = ask(), ask()
    texts = ["".join(c.choices[0].delta.content or "" for c in chunks if c.choices) for chunks in (first, again)]
    assert texts[0] == texts[1] != ""
    assert first[-1].usage.completion_tokens == again[-1].usage.completion_tokens > 0
    assert first[-2].choices[0].finish_reason == again[-2].choices[0].finish_reason == "stop"
    assert len(upstream.bodies()) == 1


def test_responses_with_tools_whole_and_streamed(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", **TOOL["function"], "strict": False}
    whole = client.responses.create(model="gpt-x", input="What is the weather in Paris?", tools=[tool])
    (call,) = [item for item in whole.output if item.type == "function_call"]
    with client.responses.stream(model="gpt-x", input="What is the weather in Paris?", tools=[tool]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    (streamed,) = [item for item in final.output if item.type == "function_call"]
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments)
    assert "response.function_call_arguments.delta" in kinds
    text = client.responses.create(model="gpt-x", input="Hello there")
    with client.responses.stream(model="gpt-x", input="Hello there") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == text.output_text


def test_anthropic_tools_whole_and_streamed(claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "claude-x", "max_tokens": 99, "messages": QUESTION, "tools": [ANTHROPIC_TOOL]}
    whole = claude.messages.create(**asked)
    (call,) = [block for block in whole.content if block.type == "tool_use"]
    assert whole.stop_reason == "tool_use"
    with claude.messages.stream(**asked) as stream:
        final = stream.get_final_message()
    (streamed,) = [block for block in final.content if block.type == "tool_use"]
    assert (streamed.name, streamed.input) == (call.name, call.input)
    assert final.stop_reason == "tool_use"


def test_anthropic_text_is_a_hit_the_second_time(claude: anthropic.Anthropic, upstream: Upstream) -> None:
    asked: Any = {"model": "claude-x", "max_tokens": 99, "messages": QUESTION}
    whole = claude.messages.create(**asked)
    with claude.messages.stream(**asked) as stream:
        assert stream.get_final_message().content[0].text == whole.content[0].text
    assert len(upstream.bodies()) == 1


def test_a_beta_header_is_another_contract(claude: anthropic.Anthropic, upstream: Upstream) -> None:
    asked: Any = {"model": "claude-x", "max_tokens": 99, "messages": QUESTION}
    claude.messages.create(**asked)
    assert "anthropic-beta" not in upstream.last.headers
    claude.messages.create(**asked, extra_headers={"anthropic-beta": "something-2026-01-01"})
    assert len(upstream.bodies()) == 2
    assert upstream.last.headers["anthropic-beta"] == "something-2026-01-01"


def test_openai_s_beta_header_is_another_contract_and_sent_on(client: openai.OpenAI, upstream: Upstream) -> None:
    asked: Any = {"model": "gpt-x", "messages": QUESTION}
    client.chat.completions.create(**asked)
    client.chat.completions.create(**asked, extra_headers={"OpenAI-Beta": "something=v2"})
    client.chat.completions.create(**asked, extra_headers={"OpenAI-Beta": "something=v2"})
    assert [seen.headers.get("openai-beta") for seen in upstream.requests] == [None, "something=v2"]


@pytest.mark.parametrize(
    ("call", "kind", "status"),
    [
        (error(429, "slow down", retry_after="7"), openai.RateLimitError, 429),
        (error(500, "broken"), openai.InternalServerError, 500),
        (error(400, "no such thing", kind="invalid_request_error"), openai.BadRequestError, 400),
        (Call(status=200, body={"error": {"message": "in truth an error"}}), openai.InternalServerError, 502),
        (Call(cut_at=1), openai.InternalServerError, 502),
    ],
)
def test_what_goes_wrong_is_told_and_never_kept(
    client: openai.OpenAI, upstream: Upstream, call: Call, kind: type[openai.APIStatusError], status: int
) -> None:
    """Trap 8: an error is not replayed as an answer."""
    upstream.script(call)
    with pytest.raises(kind) as caught:
        client.chat.completions.create(model="gpt-x", messages=QUESTION)
    assert caught.value.status_code == status
    if status == 429:
        assert caught.value.response.headers["retry-after"] == "7"
        assert caught.value.body["message"] == "slow down"
    assert client.chat.completions.create(model="gpt-x", messages=QUESTION).choices[0].message.content


@pytest.mark.parametrize("call", [Call(cut_at=2), Call(malformed_at=2), Call(error_at=2), Call(ends_at=2)])
def test_a_stream_that_breaks_ends_in_an_error_and_is_never_kept(
    client: openai.OpenAI, upstream: Upstream, call: Call
) -> None:
    upstream.script(call)
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="gpt-x", messages=QUESTION, stream=True))
    raw = client.chat.completions.with_raw_response.create(model="gpt-x", messages=QUESTION)
    assert raw.headers["cache-status"] == "CacheStack; fwd=uri-miss; stored"


def test_a_client_that_leaves_ends_the_call_upstream(client: openai.OpenAI, upstream: Upstream) -> None:
    gate = Gate()
    upstream.script(Call(pause=(3, gate)))
    stream = client.chat.completions.create(model="gpt-x", messages=QUESTION, stream=True)
    gate.wait_reached()
    stream.close()
    upstream.wait_for(lambda seen: seen.num_cancelled == 1)
    gate.open()


def test_two_at_once_call_the_upstream_once(client: openai.OpenAI, upstream: Upstream, served: Served) -> None:
    """Trap 25."""
    gate = Gate()
    upstream.script(Call(before=gate))

    def ask() -> Any:
        return client.chat.completions.with_raw_response.create(model="gpt-x", messages=QUESTION)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask)
        gate.wait_reached()
        second = pool.submit(ask)
        flights = served.gateway.stack._flights
        assert eventually(lambda: sum(len(flight.seats) for flight in flights._flights.values()) == 1)
        gate.open()
        raw = [first.result(), second.result()]
    assert len(upstream.bodies()) == 1
    assert len({one.parse().choices[0].message.content for one in raw}) == 1
    assert sorted("collapsed" in one.headers["cache-status"] for one in raw) == [False, True]


def test_a_file_says_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(
        "encoder: none\nhome: state\nengines:\n  a: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: m}\n"
    )
    gateway = Gateway.of(load_config(tmp_path / "gateway.yaml", environ={}, port=0))
    assert gateway.config.home == tmp_path / "state"
    assert gateway.models.find("m").engine == gateway.models.find("a").engine == "a"
    gateway.stack.close()
