"""One call, shared by who asked for a stream and who did not: each gets all of an answer that is more than text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import Gateway
from tests.gateway.served import Served, eventually
from tests.upstream.calls import Call, Gate
from tests.upstream.server import Upstream

PARAMETERS: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
CALLS = (("weather", '{"city": "Paris"}'), ("weather", '{"city": "Rome"}'))
TWO_TOOLS = Call(tool_calls=CALLS)
TEXT_AND_TOOLS = Call(text="Let me look. One moment, please.", tool_calls=CALLS)
Ask = Callable[[bool], Any]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def served(upstream: Upstream, tmp_path: Path) -> Iterator[Served]:
    retries = {"num_retries": 0}
    engines: Any = {
        "openai": {"kind": "openai", "base_url": f"{upstream.base_url}", "names": ["gpt-*"], "retries": retries},
        "claude": {"kind": "anthropic", "base_url": upstream.root_url, "names": ["claude-*"], "retries": retries},
    }
    policies = tmp_path / "policies.yaml"
    policies.write_text("default: {semantic: {allow_tools: true}}")
    config = GatewayConfig(port=0, home=tmp_path, encoder="none", engines=engines, policies=policies)
    with Served(Gateway.of(config)) as served:
        yield served


def both(ask: Ask, leader_streams: bool, call: Call, upstream: Upstream, served: Served) -> tuple[Any, Any]:
    """What the leader got, and what a follower in the other mode got, of one call upstream."""
    gate = Gate()
    upstream.script(Call(**{name: getattr(call, name) for name in call.__slots__} | {"before": gate}))
    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(ask, leader_streams)
        gate.wait_reached()
        follower = pool.submit(ask, not leader_streams)
        flights = served.gateway.stack._flights
        has_joined = eventually(lambda: sum(len(flight.seats) for flight in flights._flights.values()) == 1, 10)
        gate.open()
        got = leader.result(60), follower.result(60)
    assert has_joined, [seen.body for seen in upstream.requests]
    assert len(upstream.requests) == 1
    return got


@pytest.mark.parametrize("leader_streams", [False, True])
@pytest.mark.parametrize(
    "call",
    [TWO_TOOLS, TEXT_AND_TOOLS, Call(refusal="I would rather not."), Call(text="Sunny it is.", logprobs=True)],
)
def test_chat(served: Served, upstream: Upstream, call: Call, leader_streams: bool) -> None:
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}

    def ask(streams: bool) -> Any:
        asked: Any = {"model": "gpt-x", "messages": QUESTION, "tools": [tool], "logprobs": call.logprobs}
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client:
            if not streams:
                made: Any = client.chat.completions.create(**asked)
            else:
                state = ChatCompletionStreamState(input_tools=[tool])
                usage: Any = {"include_usage": True}
                for chunk in client.chat.completions.create(**asked, stream=True, stream_options=usage):
                    state.handle_chunk(chunk)
                made = state.get_final_completion()
        (choice,) = made.choices
        calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or []]
        logprobs = choice.logprobs and [one.token for one in choice.logprobs.content]
        said = (choice.message.content or "", choice.message.refusal, calls, logprobs)
        return *said, choice.finish_reason, made.usage.completion_tokens

    leader, follower = both(ask, leader_streams, call, upstream, served)
    assert leader == follower
    assert leader[0] == (call.text or "") or call.text is None
    assert leader[1] == call.refusal
    if call.tool_calls:
        assert leader[2] == [(name, json.loads(arguments)) for name, arguments in call.tool_calls]


@pytest.mark.parametrize("leader_streams", [False, True])
@pytest.mark.parametrize("call", [TWO_TOOLS, TEXT_AND_TOOLS, Call(reasoning="Paris is a city.", tool_calls=CALLS)])
def test_messages(served: Served, upstream: Upstream, call: Call, leader_streams: bool) -> None:
    def ask(streams: bool) -> Any:
        asked: Any = {"model": "claude-x", "max_tokens": 99, "messages": QUESTION}
        asked["tools"] = [{"name": "weather", "input_schema": PARAMETERS}]
        with anthropic.Anthropic(base_url=served.url, api_key="x", max_retries=0) as client:
            if not streams:
                made: Any = client.messages.create(**asked)
            else:
                with client.messages.stream(**asked) as stream:
                    made = stream.get_final_message()
        kept = ("type", "text", "thinking", "signature", "name", "input")
        blocks = [{k: v for k, v in block.model_dump().items() if k in kept} for block in made.content]
        return blocks, made.stop_reason, made.usage.output_tokens

    leader, follower = both(ask, leader_streams, call, upstream, served)
    assert leader == follower
    assert [b["input"] for b in leader[0] if b["type"] == "tool_use"] == [{"city": "Paris"}, {"city": "Rome"}]


@pytest.mark.parametrize("leader_streams", [False, True])
@pytest.mark.parametrize("call", [TWO_TOOLS, TEXT_AND_TOOLS])
def test_responses(served: Served, upstream: Upstream, call: Call, leader_streams: bool) -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
    asked: Any = {"model": "gpt-x", "input": "What is the weather in Paris?", "tools": [tool]}

    def told(item: Any) -> Any:
        return item.arguments if item.type == "function_call" else "".join(part.text for part in item.content)

    def ask(streams: bool) -> Any:
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client:
            if not streams:
                return [(item.type, told(item)) for item in client.responses.create(**asked).output]
            said: dict[int, str] = {}
            with client.responses.stream(**asked) as stream:
                for event in stream:
                    if event.type in ("response.function_call_arguments.delta", "response.output_text.delta"):
                        said[event.output_index] = said.get(event.output_index, "") + event.delta
                final = stream.get_final_response()
            assert [said[i] for i in sorted(said)] == [told(item) for item in final.output]
            return [(item.type, told(item)) for item in final.output]

    leader, follower = both(ask, leader_streams, call, upstream, served)
    assert leader == follower
    assert [arguments for kind, arguments in leader if kind == "function_call"] == [a for _, a in CALLS]


@pytest.mark.parametrize("leader_streams", [False, True])
def test_completions(served: Served, upstream: Upstream, leader_streams: bool) -> None:
    def ask(streams: bool) -> Any:
        asked: Any = {"model": "gpt-x", "prompt": "Once upon", "extra_body": {"best_of": 1}}
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client:
            if not streams:
                return client.completions.create(**asked).choices[0].text
            return "".join(chunk.choices[0].text for chunk in client.completions.create(**asked, stream=True))

    leader, follower = both(ask, leader_streams, Call(text="a time there was"), upstream, served)
    assert leader == follower == "a time there was"


def test_a_provider_that_does_not_stream_is_streamed_from(served: Served, upstream: Upstream) -> None:
    """It was asked to, and answers in one piece all the same."""
    message = {"role": "assistant", "content": None, "tool_calls": [_called(i, *one) for i, one in enumerate(CALLS)]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    upstream.script(Call(body={"id": "x", "object": "chat.completion", "choices": [choice]}))
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0)
    with client, client.chat.completions.stream(model="gpt-x", messages=QUESTION, tools=[tool]) as stream:
        for _ in stream:
            pass
        made: Any = stream.get_final_completion()
    assert [one.function.arguments for one in made.choices[0].message.tool_calls] == [a for _, a in CALLS]
    assert made.choices[0].finish_reason == "tool_calls"


def _called(number: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
