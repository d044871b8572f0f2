"""`cachestack explain`: requests in both shapes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from cachestack.access import OpenAuthenticator
from cachestack.bodies.offered import Offered
from cachestack.build import build_on
from cachestack.cli.app import main
from cachestack.cli.explain import request_of
from cachestack.engines.functions import FunctionEngine
from cachestack.errors import InputFileError
from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import Gateway
from cachestack.keys import contract_of, exact_key
from cachestack.observers import Ended
from cachestack.policy import SemanticPolicy
from cachestack.requests import Message, Request, Sampling
from cachestack.semantic.layer import partition_of
from cachestack.stack import CacheStack
from tests.gateway.served import ScriptedEngine, Served

CONFIG = GatewayConfig(port=0)

BODY = {
    "model": "gpt-x",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How do I reset my password?"},
    ],
    "temperature": 0,
    "max_tokens": 64,
    "stop": ["\n"],
    "stream": True,
    "logit_bias": {"1": 2},
}


def test_a_body_of_openai_as_a_request():
    request = request_of(BODY, tenant="acme", name="r.json")
    assert request.tenant == "acme"
    assert request.model == "gpt-x"
    assert request.sampling == Sampling(temperature=0, stop=("\n",), max_new_tokens=64)
    assert request.extra == {"dialect": "openai.chat", "engine": "remote", "fields": {"logit_bias": {"1": 2}}}
    assert request.messages[0] == Message("system", "Be brief.")


def test_our_own_shape():
    document = {"prompt": "Hello", "system": "Be brief.", "tenant": "acme", "user": "ana", "tags": ["t"], "seed": None}
    request = request_of(document, tenant=None, name="r.json")
    assert (request.tenant, request.user, request.tags, request.system) == ("acme", "ana", ("t",), ("Be brief.",))
    assert request_of(document, tenant="other", name="r.json").tenant == "other"
    turns = {"messages": [{"role": "user", "content": "Hello"}], "max_new_tokens": 5, "user": "ana"}
    assert request_of(turns, tenant=None, name="r.json").user == "ana"


def test_user_in_a_body_of_openai_is_no_wall():
    assert request_of(BODY | {"user": "ana"}, tenant=None, name="r.json").user is None


TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
BODIES: list[tuple[str, str, dict]] = [
    ("chat", "/v1/chat/completions", BODY),
    ("chat", "/v1/chat/completions", BODY | {"tools": TOOLS, "seed": 1, "user": "ana", "metadata": {"a": "b"}}),
    ("chat", "/v1/chat/completions", BODY | {"max_completion_tokens": 9, "response_format": {"type": "json_object"}}),
    (
        "chat",
        "/v1/chat/completions",
        {"model": "gpt-x", "messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}, IMAGE]}]},
    ),
    ("completions", "/v1/completions", {"model": "gpt-x", "prompt": "Once upon", "max_tokens": 5, "best_of": 2}),
    ("responses", "/v1/responses", {"model": "gpt-x", "input": "Hello?", "instructions": "Be brief.", "store": False}),
    (
        "messages",
        "/v1/messages",
        {"model": "gpt-x", "max_tokens": 9, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi?"}]},
    ),
]


@pytest.mark.parametrize(("endpoint", "path", "body"), BODIES)
@pytest.mark.parametrize("in_process", [False, True])
def test_the_exact_key_is_that_of_the_gateway(tmp_path, endpoint, path, body, in_process):
    """What is asked over HTTP and what is explained meet the same entry."""
    seen: list[Ended] = []
    engine = ScriptedEngine("gpt-x" if in_process else "")
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    stack.observe(seen.append)
    gateway = Gateway(CONFIG, stack, [offered(engine, in_process)], OpenAuthenticator("acme"))
    with Served(gateway) as served, served.http() as http:
        status = http.post(path, json=body | {"stream": False}).status_code
    if status == 400:  # what the engine here cannot do is refused by both
        with pytest.raises(InputFileError, match="in-process"):
            request_of(body, tenant="acme", name="r.json", endpoint=endpoint, in_process=in_process)
        return
    mine = request_of(body, tenant="acme", name="r.json", endpoint=endpoint, in_process=in_process, engine="scripted")
    assert status == 200
    assert keys_of(mine) == keys_of(seen[0].request)


def offered(engine: ScriptedEngine, in_process: bool) -> Offered:
    return Offered("scripted", engine.model, () if in_process else ("*",), in_process=in_process)


def keys_of(request: Request) -> str:
    contract = contract_of(request, request.model or "gpt-x")
    return exact_key(partition_of(request, SemanticPolicy()), contract, request.question)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "give one of messages"),
        ({"prompt": "a", "messages": []}, "give one of messages"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"messages": [{"role": "user", "content": 5}]}, "must be text or a list of parts"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "wizard"),
        ({"messages": [{"role": "user", "content": "a"}], "temperature": "hot"}, "temperature must be a number"),
        ({"prompt": "a", "temperature": "hot"}, "temperature must be a number"),
        ({"prompt": "a", "max_tokens": 5}, "max_tokens"),
        ({"prompt": "a", "tags": 5}, "r.json"),
        ({"prompt": "a", "extra": 5}, "r.json"),
        ({"prompt": 5}, "a prompt is text"),
        ({"input": []}, "input"),
    ],
)
def test_what_is_no_request(document, message):
    with pytest.raises(InputFileError, match=message):
        request_of(document, tenant=None, name="r.json")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder_path: Path) -> Path:
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path / "home"))
    return tmp_path


def explained(capsys, *arguments: str):
    assert main(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_for_a_server_it_says_what_the_cache_would_do(home, capsys):
    file = home / "r.json"
    file.write_text(json.dumps(BODY))
    first = explained(capsys, str(file), "--tenant", "acme")
    assert first["would"] == "engine"
    assert [s["reason"] for s in first["trace"]["steps"]][:2] == ["policy_resolved", "no_entry"]
    with CacheStack.without_engine() as stack:
        request = request_of(BODY, tenant="acme", name="r.json")
        stack.respond(request, FunctionEngine("remote", "gpt-x", lambda: "Click on the link."))
    again = explained(capsys, str(file), "--tenant", "acme")
    assert (again["would"], again["answer"], again["tenant"]) == ("exact", "Click on the link.", "acme")
    file.write_text(json.dumps(BODY | {"messages": [BODY["messages"][0], {"role": "user", "content": "How can I reset my password?"}]}))  # fmt: skip # noqa: E501
    assert explained(capsys, str(file), "--tenant", "acme")["would"] == "semantic"
    assert explained(capsys, str(file), "--tenant", "other")["would"] == "engine"
    assert main(["explain", str(file), "--tenant", "acme"]) == 0
    assert "would serve a cached answer (semantic)" in capsys.readouterr().out


def test_for_the_model_that_runs_here_it_says_what_is_reused(home, capsys, llm_path, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps({"prompt": "Hello", "system": "Be brief."}).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    found = explained(capsys, "-", "--tenant", "acme")
    assert found["would"] == "engine"
    assert found["prompt_tokens"] > found["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("{", "is not JSON"), ("[1]", "one JSON object"), ('{"model": "m"}', "give one of messages")],
)
def test_files_that_are_none(tmp_path, capsys, text, message):
    file = tmp_path / "r.json"
    file.write_text(text)
    assert main(["explain", str(file)]) == 2
    assert message in capsys.readouterr().err
    assert main(["explain", str(tmp_path / "no.json")]) == 2
