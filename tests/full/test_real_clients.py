"""Clients that others wrote, through the gateway to a scripted upstream: the second answer is a hit."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import Gateway
from tests.gateway.served import Served
from tests.upstream.server import Upstream

pytestmark = pytest.mark.full
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NPM_S = 240


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def served(upstream: Upstream, tmp_path: Path) -> Iterator[Served]:
    engines: Any = {
        "openai": {"kind": "openai", "base_url": upstream.base_url, "names": ["gpt-*"]},
        "claude": {"kind": "anthropic", "base_url": upstream.root_url, "names": ["claude-*"]},
    }
    with Served(Gateway.of(GatewayConfig(port=0, home=tmp_path, encoder="none", engines=engines))) as served:
        yield served


def needs(*programs: str) -> pytest.MarkDecorator:
    lacking = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"{', '.join(lacking)} not installed")


def importable(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} not installed")


NODE = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[2] + "/v1", apiKey: "x", maxRetries: 0 });
const asked = { model: "gpt-x", messages: [{ role: "user", content: "What is the weather in Paris?" }] };
const said = [];
for (let i = 0; i < 2; i++) {
  const { data, response } = await client.chat.completions.create(asked).withResponse();
  said.push([data.choices[0].message.content, response.headers.get("cache-status")]);
}
let text = "";
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
const final = await client.chat.completions.stream({ ...asked, tools }).finalChatCompletion();
console.log(JSON.stringify({ said, text, tool: final.choices[0].message.tool_calls[0].function.name }));
"""


@needs("node", "npm")
def test_openai_s_client_for_node(served: Served, upstream: Upstream, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module", "private": true}')
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "openai"]
    installed = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, timeout=NPM_S)
    if installed.returncode:
        pytest.skip(f"npm cannot install openai: {installed.stderr.strip()[-200:]}")
    (tmp_path / "ask.js").write_text(NODE)
    done = subprocess.run(["node", "ask.js", served.url], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (first, _), (again, status) = told["said"]
    assert first == again == told["text"]
    assert status == "CacheStack; hit; detail=exact"
    assert told["tool"] == "weather"
    assert len(upstream.requests) == 2


@needs("curl")
def test_curl_whole_and_streamed(served: Served, upstream: Upstream) -> None:
    def curl(**more: Any) -> str:
        body = json.dumps({"model": "gpt-x", "messages": QUESTION, **more})
        command = ["curl", "-sSN", "--max-time", "30", f"{served.url}/v1/chat/completions", "-d", body]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    whole = json.loads(curl())["choices"][0]["message"]["content"]
    events = [line.removeprefix("data: ") for line in curl(stream=True).splitlines() if line]
    assert events.pop() == "[DONE]"
    assert "".join(json.loads(one)["choices"][0]["delta"].get("content", "") for one in events) == whole
    assert len(upstream.requests) == 1


@importable("litellm")
def test_litellm(served: Served, upstream: Upstream) -> None:
    litellm: Any = __import__("litellm")
    asked: Any = {"model": "openai/gpt-x", "messages": QUESTION, "api_base": f"{served.url}/v1", "api_key": "x"}
    first, again = (litellm.completion(**asked).choices[0].message.content for _ in range(2))
    streamed = "".join(c.choices[0].delta.content or "" for c in litellm.completion(**asked, stream=True))
    assert first == again == streamed
    assert len(upstream.requests) == 1


@importable("langchain_openai")
def test_langchain_s_chat_model(served: Served, upstream: Upstream) -> None:
    chat_models: Any = __import__("langchain_openai")
    model = chat_models.ChatOpenAI(model="gpt-x", base_url=f"{served.url}/v1", api_key="x")
    first, again = (model.invoke("What is the weather in Paris?").content for _ in range(2))
    assert first == again
    assert "".join(chunk.content for chunk in model.stream("What is the weather in Paris?")) == first
    bound = model.bind_tools([{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}])
    assert bound.invoke("What is the weather in Rome?").tool_calls[0]["name"] == "weather"


async def test_openai_s_asynchronous_client_with_tools_many_at_once(served: Served) -> None:
    tool: Any = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="x") as client:

        async def ask(city: str, streams: bool) -> tuple[str, str]:
            asked: Any = {"model": "gpt-x", "messages": [{"role": "user", "content": f"Weather in {city}?"}]}
            if streams:
                async with client.chat.completions.stream(**asked, tools=[tool]) as stream:
                    made: Any = await stream.get_final_completion()
            else:
                made = await client.chat.completions.create(**asked, tools=[tool])
            (call,) = made.choices[0].message.tool_calls
            results = [*asked["messages"], made.choices[0].message.model_dump(exclude_none=True)]
            results.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
            ended = await client.chat.completions.create(model="gpt-x", messages=results, tools=[tool])
            return call.function.name, ended.choices[0].message.content or ""

        answers = await asyncio.gather(*(ask(f"City {i // 2}", bool(i % 2)) for i in range(16)))
    assert all(name == "weather" and "sunny" in text for name, text in answers)


async def test_anthropic_s_asynchronous_client_with_tools_many_at_once(served: Served) -> None:
    async with anthropic.AsyncAnthropic(base_url=served.url, api_key="x") as client:

        async def ask(city: str, streams: bool) -> Any:
            asked: Any = {
                "model": "claude-x",
                "max_tokens": 99,
                "tools": [{"name": "weather", "input_schema": PARAMETERS}],
            }
            asked["messages"] = [{"role": "user", "content": f"Weather in {city}?"}]
            if not streams:
                made: Any = await client.messages.create(**asked)
            else:
                async with client.messages.stream(**asked) as stream:
                    made = await stream.get_final_message()
            (call,) = [block for block in made.content if block.type == "tool_use"]
            return made.stop_reason, call.name, set(call.input)

        answers = await asyncio.gather(*(ask(f"City {i // 2}", bool(i % 2)) for i in range(16)))
    assert all(answer == ("tool_use", "weather", {"city"}) for answer in answers)
