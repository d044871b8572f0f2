"""Traps that cost others hours, as an HTTP client meets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from cachestack.requests import Chunk, Delta, Generation, Request, Usage
from tests.gateway.served import ANSWER, ScriptedEngine, Served, chat, says

PATH = "/v1/chat/completions"
BASE = chat("Why is the sky blue?")


def ask(http: httpx.Client, body: dict[str, Any], path: str = PATH) -> str:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.headers["cache-status"].removeprefix("CacheStack; ").split("; ")[0]


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0}, {"top_p": 1}, {"max_tokens": 16}, {"max_completion_tokens": 17}, {"seed": 0}, {"stop": []},
        {"stop": "x"}, {"response_format": {"type": "text"}}, {"frequency_penalty": 0}, {"logit_bias": {}},
        {"parallel_tool_calls": True}, {"reasoning_effort": "low"}, {"unheard_of": None}, {"unheard_of": False},
    ],
    ids=str,
)  # fmt: skip
def test_an_omitted_parameter_is_not_its_zero(http: httpx.Client, engine: ScriptedEngine, more: dict) -> None:
    """Trap 2. An empty `stop` alone asks for what leaving it out asks for."""
    assert ask(http, BASE) == "fwd=uri-miss"
    assert ask(http, {**BASE, **more}) == ("hit" if more == {"stop": []} else "fwd=uri-miss")
    assert ask(http, {**BASE, **more}) == "hit"
    assert ask(http, BASE) == "hit"


@pytest.mark.parametrize(
    "more",
    [
        {"user": "u"}, {"metadata": {"a": "b"}}, {"stream_options": {"include_usage": True}}, {"store": True},
        {"service_tier": "flex"}, {"safety_identifier": "s"}, {"prompt_cache_key": "k"}, {"temperature": None},
        {"max_tokens": None}, {"stream": False}, {"messages": [{"content": "Why is the sky blue?", "role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Why is the sky blue?"}]}]},
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_change_the_answer_does_not_part_requests(http: httpx.Client, more: dict) -> None:
    """Trap 23, too."""
    assert ask(http, BASE) == "fwd=uri-miss"
    assert ask(http, {**BASE, **more}) == "hit"


USER = {"role": "user", "content": "And now?"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
MESSAGES = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER],
    [{"role": "developer", "content": "Be brief."}, USER],
    [{"role": "user", "content": "Be brief."}, USER],
    [{**USER, "name": "Ann"}],
    [{"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "now?"}]}],
    [{"role": "user", "content": [{"type": "text", "text": "And now?"}, IMAGE]}],
    [{"role": "user", "content": [IMAGE, {"type": "text", "text": "And now?"}]}],
    [{"role": "user", "content": [IMAGE]}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,BBBB"}}]}],
    [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}, USER],
    [{"role": "assistant", "content": None, "tool_calls": [{"id": "2", "type": "function"}]}, USER],
    [{"role": "assistant", "content": ""}, USER],
    [{"role": "tool", "content": "sunny", "tool_call_id": "1"}],
    [{"role": "tool", "content": "sunny", "tool_call_id": "2"}],
]


def test_messages_that_differ_in_anything_are_different_requests(http: httpx.Client) -> None:
    for messages in MESSAGES:
        assert ask(http, {"model": "scripted-1", "messages": messages}) == "fwd=uri-miss", messages
    for messages in MESSAGES:
        assert ask(http, {"model": "scripted-1", "messages": messages}) == "hit", messages


def test_endpoints_do_not_share_answers_of_a_remote_engine(http: httpx.Client) -> None:
    bodies = {
        PATH: chat("Hello?", max_tokens=16),
        "/v1/completions": {"model": "scripted-1", "prompt": "Hello?", "max_tokens": 16},
        "/v1/responses": {"model": "scripted-1", "input": "Hello?", "max_output_tokens": 16},
        "/v1/messages": {**chat("Hello?"), "max_tokens": 16},
    }
    assert [ask(http, body, path) for path, body in bodies.items()] == ["fwd=uri-miss"] * 4
    assert [ask(http, body, path) for path, body in bodies.items()] == ["hit"] * 4


@pytest.mark.parametrize("path", [PATH, "/v1/completions", "/v1/responses", "/v1/messages"])
def test_a_hit_on_a_stream_is_a_stream_with_its_usage(http: httpx.Client, path: str) -> None:
    """Trap 9, in all dialects."""
    body: dict[str, Any] = {"model": "scripted-1", "stream": True}
    match path:
        case "/v1/completions":
            body |= {"prompt": "Why?", "stream_options": {"include_usage": True}}
        case "/v1/responses":
            body |= {"input": "Why?"}
        case _:
            body |= {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 99}
            body |= {"stream_options": {"include_usage": True}} if path == PATH else {}
    made, again = http.post(path, json=body), http.post(path, json=body)
    assert again.headers["cache-status"] == "CacheStack; hit; detail=exact"
    assert again.headers["content-type"].startswith("text/event-stream")
    for answer in (made, again):
        assert '_tokens":' in answer.text
        assert answer.text.rstrip().endswith("[DONE]") == (path in (PATH, "/v1/completions"))


def test_an_answer_under_way_or_failed_leaves_no_placeholder(http: httpx.Client, engine: ScriptedEngine) -> None:
    """Trap 10: what is empty, or was never finished, is not found later."""
    engine.say = says("")
    assert ask(http, BASE) == "fwd=uri-miss"
    engine.say = says(" \n ")
    assert ask(http, BASE) == "fwd=uri-miss"
    engine.say = says(ANSWER)
    answer = http.post(PATH, json=BASE)
    assert answer.headers["cache-status"] == "CacheStack; fwd=uri-miss; stored"
    assert answer.json()["choices"][0]["message"]["content"] == ANSWER


def test_the_temperature_is_not_assumed(http: httpx.Client, engine: ScriptedEngine) -> None:
    """Trap 15: it is passed on as it was given, and what was not given stays so."""
    for body in (BASE, {**BASE, "temperature": 0}, {**BASE, "temperature": 0.7}, {**BASE, "temperature": 0.7}):
        ask(http, body)
    assert [request.sampling.temperature for request in engine.requests] == [None, 0.0, 0.7, 0.7]
    assert [request.body.get("temperature", "none") for request in engine.requests] == ["none", 0, 0.7, 0.7]


def test_a_cut_answer_is_replayed_for_the_same_limit_only(http: httpx.Client, engine: ScriptedEngine) -> None:
    engine.say = says("The parcel leaves the warehouse in Lyon on", finish_reason="length")
    assert ask(http, {**BASE, "max_tokens": 3}) == "fwd=uri-miss"
    again = http.post(PATH, json={**BASE, "max_tokens": 3})
    assert again.headers["cache-status"] == "CacheStack; hit; detail=exact"
    assert again.json()["choices"][0]["finish_reason"] == "length"
    assert ask(http, {**BASE, "max_tokens": 4}) == "fwd=uri-miss"


def test_pieces_that_are_more_than_text_are_passed_on_and_not_kept(scripted: Served, engine: ScriptedEngine) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    def say(request: Request) -> Iterator[str | Delta | Generation]:
        yield "Let me see. "
        yield Delta({"id": "theirs", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]})
        yield Generation("Let me see. ", "tool_calls", Usage(5, 0, 9), is_text=False)

    engine.say = say
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="x", max_retries=0) as client:
        for _ in range(2):
            chunks = list(client.chat.completions.create(**chat("Why?"), stream=True))
            named = [c.choices[0].delta.tool_calls[0].function.name for c in chunks if c.choices[0].delta.tool_calls]
            assert named == ["f"]
            assert chunks[-1].choices[0].finish_reason == "tool_calls"
            assert len({chunk.id for chunk in chunks}) == 1
    assert engine.num_calls == 2


def test_what_is_in_the_body_names_nobody(http: httpx.Client, engine: ScriptedEngine) -> None:
    """Neither tenant nor user nor role can be had by asking for them."""
    ask(http, {**BASE, "user": "admin", "tenant": "other", "role": "root", "epoch": 9})
    (request,) = engine.requests
    assert (request.tenant, request.user, request.role, request.epoch) == ("default", None, None, 0)
    assert isinstance(Chunk(""), Chunk)
