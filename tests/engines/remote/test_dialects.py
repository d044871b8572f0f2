"""What is sent and what is made of the answer, in each dialect, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachestack.errors import EngineError, RequestError
from cachestack.requests import Generation, Message, Request, Sampling
from tests.engines.remote.conftest import MakeEngine, as_body, ask, deltas_of, run, text_of
from tests.upstream.calls import Call
from tests.upstream.server import Upstream

CHAT = {"model": "theirs", "messages": [{"role": "user", "content": "capital of France"}]}
BODIES: dict[str, dict[str, Any]] = {
    "openai.chat": CHAT,
    "openai.completions": {"model": "theirs", "prompt": "capital of France"},
    "openai.responses": {"model": "theirs", "input": "capital of France"},
    "anthropic.messages": CHAT | {"max_tokens": 9},
}
ALL = pytest.mark.parametrize("dialect", BODIES)
EITHER = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


def kind_of(dialect: str) -> str:
    return "anthropic" if dialect.startswith("anthropic") else "openai"


def without_number(body: Any) -> Any:
    """The upstream numbers its answers."""
    return json.loads(json.dumps(body).replace("Answer 2", "Answer 1").replace("_2", "_1").replace("-2", "-1"))


@ALL
def test_a_streamed_answer_is_the_one_in_one_piece(dialect: str, make_engine: MakeEngine) -> None:
    engine = make_engine(kind_of(dialect))
    _, whole = run(engine, as_body(dialect, BODIES[dialect]))
    pieces, streamed = run(engine, as_body(dialect, BODIES[dialect] | {"stream": True}))
    assert text_of(pieces) == streamed.text == "Answer 2: capital of France"
    assert len(pieces) == 5
    assert whole.text == "Answer 1: capital of France"
    assert without_number(streamed.body) == whole.body
    assert streamed.usage == whole.usage
    assert whole.usage.completion_tokens == 5
    assert (whole.is_text, streamed.is_text, whole.finish_reason, streamed.finish_reason) == (
        True,
        True,
        "stop",
        "stop",
    )
    assert streamed.ttft_s > 0
    assert streamed.decode_s >= 0


@ALL
@EITHER
def test_a_body_is_passed_on_unharmed(dialect: str, streams: bool, make_engine: MakeEngine, upstream: Upstream) -> None:
    unknown = {"a_field_of_tomorrow": {"deep": [1, None, "é\u2028"]}, "logit_bias": {"50256": -100}, "user": "u"}
    body = BODIES[dialect] | unknown | {"stream": streams}
    request = as_body(dialect, body, tenant="acme", tags=("a",), user="someone", ttl_s=5.0, version="7")
    run(make_engine(kind_of(dialect), model=None, prompt_caching=False, **no_usage(dialect)), request)
    assert upstream.last.body == body
    run(make_engine(kind_of(dialect), model="ours", prompt_caching=False, **no_usage(dialect)), request)
    assert upstream.last.body == body | {"model": "ours"}
    assert "acme" not in json.dumps(dict(upstream.last.headers))


def no_usage(dialect: str) -> dict[str, Any]:
    return {} if dialect.startswith("anthropic") else {"stream_usage": False}


def test_keys_and_headers_are_sent_where_they_belong(
    make_engine: MakeEngine, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    run(make_engine(api_key_env="A_KEY", headers={"x-team": "t"}), ask())
    assert (upstream.last.headers["authorization"], upstream.last.headers["x-team"]) == ("Bearer secret", "t")
    run(make_engine("anthropic"), ask())
    assert (upstream.last.headers["x-api-key"], upstream.last.headers["anthropic-version"]) == ("key", "2023-06-01")


TOOLS: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
WITH_TOOLS: dict[str, dict[str, Any]] = {
    "openai.chat": {"tools": [{"type": "function", "function": {"name": "weather", "parameters": TOOLS}}]},
    "openai.responses": {"tools": [{"type": "function", "name": "weather", "parameters": TOOLS}]},
    "anthropic.messages": {"tools": [{"name": "weather", "input_schema": TOOLS}]},
}


@pytest.mark.parametrize("dialect", WITH_TOOLS)
def test_tool_calls_are_events_and_no_text(dialect: str, make_engine: MakeEngine, upstream: Upstream) -> None:
    engine, body = make_engine(kind_of(dialect)), BODIES[dialect] | WITH_TOOLS[dialect]
    _, whole = run(engine, as_body(dialect, body))
    pieces, streamed = run(engine, as_body(dialect, body | {"stream": True}))
    assert text_of(pieces) == ""
    assert without_number(streamed.body) == whole.body
    for made in (whole, streamed):
        assert (made.text, made.is_text, made.finish_reason) == ("", False, "tool_calls")
    arguments = "".join(json.dumps(delta) for delta in deltas_of(pieces))
    assert "weather" in arguments
    assert len(deltas_of(pieces)) > 3


@pytest.mark.parametrize("dialect", ["openai.chat", "openai.responses", "anthropic.messages"])
@EITHER
def test_structured_output_is_text(dialect: str, streams: bool, make_engine: MakeEngine) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    asked = {
        "openai.chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}},
        "openai.responses": {"text": {"format": {"type": "json_schema", "name": "s", "schema": schema}}},
        "anthropic.messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    }[dialect]
    _, made = run(make_engine(kind_of(dialect)), as_body(dialect, BODIES[dialect] | asked | {"stream": streams}))
    assert (made.text, made.is_text) == ('{"n": 1}', True)


@EITHER
def test_what_is_more_than_text_is_said_to_be(streams: bool, make_engine: MakeEngine, upstream: Upstream) -> None:
    upstream.script(Call(logprobs=True), Call(refusal="I won't", text=""), Call(reasoning="hm"), Call(reasoning="hm"))
    engine, body = make_engine(), CHAT | {"stream": streams}
    pieces, made = run(engine, as_body("openai.chat", body))
    assert (made.text, made.is_text) == ("Answer 1: capital of France", False)
    assert len(made.body["choices"][0]["logprobs"]["content"]) == 5
    if streams:
        assert text_of(pieces) == made.text, "the text is said once, as text"
        assert len(deltas_of(pieces)) == 5
        assert all("content" not in delta["choices"][0]["delta"] for delta in deltas_of(pieces))
    _, refused = run(engine, as_body("openai.chat", body))
    assert (refused.is_text, refused.body["choices"][0]["message"]["refusal"]) == (False, "I won't")
    pieces, thought = run(engine, as_body("openai.chat", body))
    assert (thought.text, thought.is_text) == ("Answer 3: capital of France", True)
    assert thought.body["choices"][0]["message"]["reasoning_content"] == "hm"
    _, blocks = run(make_engine("anthropic"), as_body("anthropic.messages", body | {"max_tokens": 9}))
    assert (blocks.text, blocks.is_text) == ("Answer 4: capital of France", False)
    assert blocks.body["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "signed"}


def test_several_answers_are_passed_on_and_no_text(make_engine: MakeEngine, upstream: Upstream) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    upstream.script(Call(body={"id": "x", "choices": [choice, choice | {"index": 1}]}))
    _, made = run(make_engine(), as_body("openai.chat", CHAT | {"n": 2}))
    assert not made.is_text
    assert len(made.body["choices"]) == 2


ENDS = [
    ("openai.chat", "length", "length", True),
    ("openai.chat", "content_filter", "content_filter", True),
    ("openai.chat", "abort", "stop", False),
    ("openai.completions", "length", "length", True),
    ("openai.responses", "incomplete", "length", True),
    ("anthropic.messages", "max_tokens", "length", True),
    ("anthropic.messages", "refusal", "content_filter", True),
    ("anthropic.messages", "pause_turn", "stop", False),
]


@pytest.mark.parametrize(("dialect", "said", "meant", "is_text"), ENDS)
@EITHER
def test_why_it_ended(
    dialect: str, said: str, meant: str, is_text: bool, streams: bool, make_engine: MakeEngine, upstream: Upstream
) -> None:
    upstream.script(Call(finish=said))
    _, made = run(make_engine(kind_of(dialect)), as_body(dialect, BODIES[dialect] | {"stream": streams}))
    assert (made.finish_reason, made.is_text) == (meant, is_text)


def test_a_request_without_a_body_is_built(make_engine: MakeEngine, upstream: Upstream) -> None:
    messages = (Message("system", "Be brief."), Message("user", "capital of France"))
    sampling = Sampling(0.2, 0.9, 7, ("\n",), 12)
    request = Request(messages, tenant="acme", sampling=sampling, extra={"top_k": 3, "model": "evil"}, tags=("t",))
    pieces, made = run(make_engine(prompt_caching=False), request)
    assert upstream.last.body == {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "capital of France"},
        ],
        "temperature": 0.2,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["\n"],
        "max_tokens": 12,
        "top_k": 3,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert (len(pieces), made.usage.completion_tokens) == (5, 5)
    without_seed = Request(messages, sampling=Sampling(0.2, 0.9, None, ("\n",)))
    run(make_engine("anthropic"), without_seed)
    assert upstream.last.body == {
        "model": "scripted",
        "max_tokens": 4096,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "capital of France"}],
        "temperature": 0.2,
        "top_p": 0.9,
        "stop_sequences": ["\n"],
        "stream": True,
    }
    with pytest.raises(RequestError, match="seed"):
        run(make_engine("anthropic"), request)


def test_a_conversation_of_another_dialect_is_converted(make_engine: MakeEngine, upstream: Upstream) -> None:
    messages = (Message("system", "Be brief."), Message("user", "capital of France"))
    theirs = {
        "model": "theirs",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "capital of France"}]}],
        "metadata": {"user_id": "u"},
        "stream": True,
    }
    sampling = Sampling(max_new_tokens=9)
    request = Request(messages, model="theirs", sampling=sampling, dialect="anthropic.messages", body=theirs)
    pieces, made = run(make_engine(prompt_caching=False), request)
    assert upstream.last.path == "/v1/chat/completions"
    assert upstream.last.body["messages"] == [{"role": m.role, "content": m.content} for m in messages]
    assert upstream.last.body["max_tokens"] == 9
    assert text_of(pieces) == made.text
    assert (made.is_text, made.body) == (True, None), "a body of another dialect would mislead"
    run(make_engine("anthropic"), as_body("openai.chat", CHAT))
    assert upstream.last.path == "/v1/messages"
    assert upstream.last.body["messages"] == CHAT["messages"]
    assert upstream.last.body["stream"] is False


IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("openai.chat", CHAT | WITH_TOOLS["openai.chat"], "tools"),
    ("openai.chat", CHAT | {"response_format": {"type": "json_object"}}, "response_format"),
    ("openai.chat", CHAT | {"logprobs": True}, "logprobs"),
    ("openai.chat", CHAT | {"unknown": 1}, "unknown"),
    ("openai.chat", {"messages": [{"role": "user", "content": [IMAGE]}]}, "image_url"),
    ("openai.chat", {"messages": [{"role": "user", "content": "a", "name": "n"}]}, "name"),
    ("openai.completions", BODIES["openai.completions"], "openai.completions"),
    ("openai.responses", {"input": "a", "previous_response_id": "r"}, "previous_response_id"),
    ("openai.responses", {"input": [{"type": "function_call_output", "output": "x"}]}, "no message"),
]


@pytest.mark.parametrize(("dialect", "body", "said"), REFUSED)
def test_what_cannot_be_converted_is_refused_and_named(
    dialect: str, body: dict[str, Any], said: str, make_engine: MakeEngine, upstream: Upstream
) -> None:
    with pytest.raises(RequestError, match=said):
        run(make_engine("anthropic"), as_body(dialect, body))
    assert upstream.requests == []


def test_a_model_must_be_named_somewhere(make_engine: MakeEngine, upstream: Upstream) -> None:
    with pytest.raises(RequestError, match="model"):
        run(make_engine(model=None), ask())
    run(make_engine(model=None), ask(model="asked"))
    assert upstream.last.body["model"] == "asked"


USAGES: list[Any] = [None, {"prompt_tokens": -5, "completion_tokens": "many"}, "none", {"prompt_tokens": True}, []]


@pytest.mark.parametrize("usage", USAGES)
@ALL
@EITHER
def test_usage_that_is_wrong_costs_figures_only(
    dialect: str, usage: Any, streams: bool, make_engine: MakeEngine, upstream: Upstream
) -> None:
    upstream.script(Call(usage=usage))
    _, made = run(make_engine(kind_of(dialect)), as_body(dialect, BODIES[dialect] | {"stream": streams}))
    assert made.text == "Answer 1: capital of France"
    counts = made.usage
    assert min(counts.prompt_tokens, counts.cached_tokens, counts.completion_tokens) >= 0
    assert counts.prompt_tokens == 0


@ALL
@EITHER
def test_cached_tokens_are_read_back(dialect: str, streams: bool, make_engine: MakeEngine, upstream: Upstream) -> None:
    upstream.script(Call(cached_tokens=40, cache_write_tokens=30))
    _, made = run(make_engine(kind_of(dialect)), as_body(dialect, BODIES[dialect] | {"stream": streams}))
    assert (made.usage.cached_tokens, made.usage.cache_write_tokens) == (40, 30)
    assert made.usage.prompt_tokens > 70


def test_a_server_that_does_not_stream_is_understood(make_engine: MakeEngine, upstream: Upstream) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}
    upstream.script(Call(body={"choices": [choice]}))
    pieces, made = run(make_engine(), ask())
    assert (pieces, made.text) == ([], "Paris.")


def generation_of(engine: Any, request: Request) -> Generation:
    return run(engine, request)[1]


BROKEN: list[Any] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"<html>busy</html>",
    {},
    {"error": {"message": "overloaded", "type": "server_error"}},
    {"error": "overloaded"},
    {"choices": []},
    {"choices": None},
    {"choices": [{"index": 0, "finish_reason": "stop"}]},
    {"choices": [{"message": {"content": 7}, "finish_reason": "stop"}], "content": 7},
]


@pytest.mark.parametrize("body", BROKEN, ids=str)
@ALL
def test_what_is_no_answer_is_an_error(dialect: str, body: Any, make_engine: MakeEngine, upstream: Upstream) -> None:
    upstream.script(Call(body=body))
    with pytest.raises(EngineError):
        generation_of(make_engine(kind_of(dialect)), as_body(dialect, BODIES[dialect]))
    upstream.script(Call(body=body))
    with pytest.raises(EngineError):
        generation_of(make_engine(kind_of(dialect)), as_body(dialect, BODIES[dialect] | {"stream": True}))


FAULTS = {"ends_at": "ended before", "malformed_at": "no JSON", "error_at": "scripted", "cut_at": "broke off"}


@pytest.mark.parametrize("fault", FAULTS)
@ALL
def test_a_stream_that_goes_wrong_is_an_error_after_its_pieces(
    dialect: str, fault: str, make_engine: MakeEngine, upstream: Upstream
) -> None:
    at = {"openai.responses": 6, "anthropic.messages": 5}.get(dialect, 3)
    upstream.script(Call(**{fault: at}))
    stream = make_engine(kind_of(dialect)).stream(as_body(dialect, BODIES[dialect] | {"stream": True}))
    assert next(stream) == "Answer"
    with pytest.raises(EngineError, match=FAULTS[fault]):
        list(stream)
    assert len(upstream.requests) == 1, "what has begun is not tried again"
