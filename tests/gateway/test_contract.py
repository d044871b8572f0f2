"""What counts as the same request through the gateway, and what must not be kept: each pair differs in its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import Gateway
from tests.gateway.served import Served, eventually
from tests.upstream.calls import Call, Gate
from tests.upstream.server import Upstream

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
Post = Callable[..., httpx.Response]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def served(upstream: Upstream, tmp_path: Path) -> Iterator[Served]:
    retries = {"num_retries": 0}
    engines = {
        "openai": {"kind": "openai", "base_url": upstream.base_url, "names": ["gpt-*"], "retries": retries},
        "claude": {"kind": "anthropic", "base_url": upstream.root_url, "names": ["claude-*"], "retries": retries},
    }
    with Served(Gateway.of(GatewayConfig(port=0, home=tmp_path, encoder="none", engines=engines))) as served:
        yield served


@pytest.fixture
def post(served: Served) -> Iterator[Post]:
    models = {CHAT: "gpt-x", COMPLETIONS: "gpt-x", RESPONSES: "gpt-x", MESSAGES: "claude-x"}
    with served.http() as http:

        def post(path: str, **body: Any) -> httpx.Response:
            limit = {"max_tokens": 99} if path == MESSAGES else {}
            answer = http.post(path, json={"model": models[path], **limit, **body})
            assert answer.status_code == 200, answer.text
            return answer

        yield post


def _is_hit(answer: httpx.Response) -> bool:
    return answer.headers["cache-status"].startswith("CacheStack; hit")


@pytest.mark.parametrize("more", [{}, {"verbosity": "low"}])
def test_the_format_of_a_response_reaches_the_provider(post: Post, upstream: Upstream, more: dict[str, Any]) -> None:
    form = {"type": "json_schema", "name": "city", "schema": {"type": "object", "properties": {}}}
    for _ in range(2):
        post(RESPONSES, input="Which city?", text={"format": form, **more}, temperature=1)
        assert upstream.last.body["text"] == {"format": form, **more}


@pytest.mark.parametrize(
    ("path", "first", "other"),
    [
        (CHAT, {"messages": QUESTION, "max_tokens": 5}, {"messages": QUESTION, "max_completion_tokens": 5}),
        (COMPLETIONS, {"prompt": "def f():\n    "}, {"prompt": "def f():\n"}),
        (COMPLETIONS, {"prompt": "Once upon a time"}, {"prompt": "Once upon a time "}),
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in ("It costs 1\n2", "3")]}]},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in ("It costs 1", "2\n3")]}]},
        ),
    ],
)
def test_what_may_be_answered_otherwise_is_asked_again(
    post: Post, upstream: Upstream, path: str, first: dict[str, Any], other: dict[str, Any]
) -> None:
    assert not _is_hit(post(path, **first))
    assert not _is_hit(post(path, **other))
    assert _is_hit(post(path, **first))
    assert _is_hit(post(path, **other))


def test_a_field_cannot_pass_for_what_the_gateway_says(post: Post, upstream: Upstream) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    asked = [{"role": "user", "content": [{"type": "text", "text": "Hello?"}, image]}]
    assert not _is_hit(post(CHAT, messages=asked))
    request = served_request(post, upstream)
    text = [{"role": "user", "content": "Hello?"}]
    for forged in ({"beside": request["beside"]}, {"dialect": "openai.responses"}):
        assert not _is_hit(post(CHAT, messages=text, **forged))
    assert not _is_hit(post(RESPONSES, input="Hello?"))


def served_request(post: Post, upstream: Upstream) -> dict[str, Any]:
    """What stands beside the texts of the last request, as it is compared."""
    from cachestack.bodies.turns import Turns, add_turns

    turns = Turns()
    add_turns(turns, upstream.last.body["messages"], ("user",))
    return {"beside": turns.beside}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": QUESTION, "web_search_options": {}}),
        (CHAT, {"messages": QUESTION, "functions": [{"name": "weather", "parameters": {"type": "object"}}]}),
        (MESSAGES, {"messages": QUESTION, "mcp_servers": [{"type": "url", "url": "https://x.test", "name": "x"}]}),
    ],
)
def test_tools_of_every_kind_are_tools(post: Post, upstream: Upstream, path: str, body: dict[str, Any]) -> None:
    for number in (1, 2):
        assert post(path, **body).headers["cache-status"] == "CacheStack; fwd=bypass"
        assert len(upstream.requests) == number


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (MESSAGES, {"messages": QUESTION, "container": "container_1"}),
        (RESPONSES, {"input": "And then?", "conversation": "conv_1"}),
        (RESPONSES, {"input": "And then?", "previous_response_id": "resp_1"}),
        (RESPONSES, {"input": "And then?", "prompt": {"id": "pmpt_1", "variables": {"city": "Paris"}}}),
        (RESPONSES, {"input": "And then?", "prompt": {"id": "pmpt_1", "version": None}}),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "And then?"}]}),
    ],
)
def test_what_depends_on_what_the_provider_keeps_is_not_cached(
    post: Post, upstream: Upstream, path: str, body: dict[str, Any]
) -> None:
    for number in (1, 2):
        assert post(path, **body).headers["cache-status"] == "CacheStack; fwd=request"
        assert len(upstream.requests) == number


def test_a_kept_prompt_of_one_version_counts_as_it_is_named(post: Post) -> None:
    first, other = ({"id": "pmpt_1", "version": version} for version in ("1", "2"))
    assert not _is_hit(post(RESPONSES, input="Tell me the rest", prompt=first))
    assert not _is_hit(post(RESPONSES, input="Tell me the rest", prompt=other))
    assert _is_hit(post(RESPONSES, input="Tell me the rest", prompt=first))


def test_an_item_that_only_the_provider_has_whole_is_known_by_its_id(post: Post) -> None:
    for item_id in ("rs_1", "rs_2"):
        items = [{"type": "reasoning", "id": item_id, "summary": []}, {"role": "user", "content": "And then?"}]
        assert not _is_hit(post(RESPONSES, input=items))


def test_an_end_that_a_replay_could_not_tell_is_not_kept(post: Post, upstream: Upstream) -> None:
    upstream.script(Call(text="One, two", finish="stop_sequence"))
    first = post(MESSAGES, messages=QUESTION, stop_sequences=[", three"])
    again = post(MESSAGES, messages=QUESTION, stop_sequences=[", three"])
    assert first.json()["stop_reason"] == "stop_sequence"
    assert not _is_hit(again)


def test_who_shares_a_call_reads_nothing_of_whose_call_it_was(post: Post, upstream: Upstream, served: Served) -> None:
    gate = Gate()
    whole = {
        "id": "resp_1", "object": "response", "status": "completed", "model": "gpt-x", "metadata": {"ticket": "secret"},
        "user": "alice", "safety_identifier": "alice", "prompt_cache_key": "alice",
        "output": [{
            "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}],
        }],
    }  # fmt: skip
    upstream.script(Call(before=gate, body=whole))
    flights = served.gateway.stack._flights
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(
            post, RESPONSES, input="Weather?", metadata={"ticket": "secret"}, user="alice", safety_identifier="alice",
            prompt_cache_key="alice",
        )  # fmt: skip
        gate.wait_reached()
        second = pool.submit(post, RESPONSES, input="Weather?", user="bob")
        assert eventually(lambda: sum(len(flight.seats) for flight in flights._flights.values()) == 1)
        gate.open()
        own, shared = first.result(), second.result()
    assert own.json() == whole
    assert shared.json()["user"] == "bob"
    assert "alice" not in shared.text
    assert "secret" not in shared.text


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_what_is_nested_too_deeply_is_refused(served: Served, path: str) -> None:
    deep = "[" * 1015 + "]" * 1015
    body = '{"model": "%s", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello?"}], "x": %s}'
    with served.http() as http:
        answer = http.post(path, content=body % ("gpt-x" if path == CHAT else "claude-x", deep))
    assert answer.status_code == 400
    assert "nested too deeply" in answer.text
