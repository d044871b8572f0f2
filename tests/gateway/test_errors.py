"""Every error has its provider's shape and status, and tells nothing of the inside."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import openai
import pytest

from cachestack.errors import (
    AccessDenied,
    CacheStackError,
    CircuitOpen,
    ContextTooLong,
    EncoderError,
    EncoderTimeout,
    EngineError,
    EngineTimeout,
    LimitExceeded,
    MissingExtra,
    ModelCorrupt,
    NotCached,
    PolicyError,
    RequestError,
    StoreError,
    UnknownTenant,
    UpstreamError,
)
from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.dialects.anthropic_error import anthropic_error
from cachestack.gateway.dialects.openai_error import openai_error
from cachestack.gateway.faults import fault_of
from cachestack.policy_set import PolicySet
from tests.gateway.served import ScriptedEngine, Served, chat, fails

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


@pytest.mark.parametrize(
    ("error", "status", "openai_type", "anthropic_type"),
    [
        (RequestError("x"), 400, "invalid_request_error", "invalid_request_error"),
        (ContextTooLong("x"), 400, "invalid_request_error", "invalid_request_error"),
        (AccessDenied("x"), 401, "authentication_error", "authentication_error"),
        (AccessDenied("x", status=403), 403, "permission_error", "permission_error"),
        (UnknownTenant("x"), 403, "permission_error", "permission_error"),
        (LimitExceeded("x", retry_after_s=1.2), 429, "rate_limit_error", "rate_limit_error"),
        (UpstreamError("x", status=429, retry_after_s=3), 429, "rate_limit_error", "rate_limit_error"),
        (UpstreamError("x", status=529), 529, "upstream_error", "api_error"),
        (UpstreamError("x", status=200), 502, "upstream_error", "api_error"),
        (CircuitOpen("x", retry_after_s=9), 503, "service_unavailable_error", "overloaded_error"),
        (EngineTimeout("x"), 504, "timeout_error", "timeout_error"),
        (NotCached("x"), 504, "not_cached_error", "timeout_error"),
        (ModelCorrupt("x"), 503, "service_unavailable_error", "overloaded_error"),
        (EngineError("x"), 502, "upstream_error", "api_error"),
        (EncoderError("x"), 502, "upstream_error", "api_error"),
        (EncoderTimeout("x"), 502, "upstream_error", "api_error"),
        (StoreError("x"), 503, "service_unavailable_error", "overloaded_error"),
        (PolicyError("x"), 500, "server_error", "api_error"),
        (MissingExtra("x", "y"), 500, "server_error", "api_error"),
        (KeyError("x"), 500, "server_error", "api_error"),
    ],
)
def test_the_table(error: Exception, status: int, openai_type: str, anthropic_type: str) -> None:
    fault = fault_of(error, "0" * 24)
    assert fault.status == status
    assert openai_error(fault, "0" * 24)["error"]["type"] == openai_type
    assert anthropic_error(fault, "0" * 24)["error"]["type"] == anthropic_type


def test_no_error_of_ours_is_left_to_chance() -> None:
    """Each is named above, or is below one that is."""
    known = {400, 401, 403, 404, 429, 500, 502, 503, 504}

    def below(kind: type) -> set[type]:
        return {kind} | {one for sub in kind.__subclasses__() for one in below(sub)}

    for kind in below(CacheStackError):
        error: Any = BaseException.__new__(kind)
        error.status, error.body, error.retry_after_s = 400, None, 1.0
        assert fault_of(error, "x").status in known, kind


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_provider_says_is_passed_on(scripted: Served, engine: ScriptedEngine, stream: bool) -> None:
    body = {"error": {"message": "slow down", "type": "tokens", "code": "rate_limit_exceeded", "param": None}}
    engine.say = fails(UpstreamError("the provider said 429", status=429, body=body, retry_after_s=17))
    client = openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="x", max_retries=0)
    with client, pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(**chat("Why?"), stream=stream)
    assert caught.value.response.json() == body
    assert caught.value.response.headers["retry-after"] == "17"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (CHAT, b"", 400, "empty"),
        (CHAT, b"{", 400, "not valid JSON"),
        (CHAT, b"[]", 400, "must be a JSON object"),
        (CHAT, b'{"model": NaN}', 400, "not valid JSON"),
        (CHAT, b'"\xff"', 400, "not valid JSON"),
        (CHAT, b'{"a":' * 3000 + b"1" + b"}" * 3000, 400, "not valid JSON"),
        (CHAT, b"{}", 400, "model is missing"),
        (CHAT, chat("x", temperature="hot"), 400, "temperature must be a number"),
        (CHAT, chat("x", temperature=9), 400, "temperature"),
        (CHAT, chat("x", max_tokens=0), 400, "max_tokens"),
        (CHAT, chat("x", max_tokens=True), 400, "max_tokens"),
        (CHAT, chat("x", seed=2**63), 400, "seed"),
        (CHAT, chat("x", stop=[1]), 400, "stop"),
        (CHAT, chat("x", stream="yes"), 400, "stream"),
        (CHAT, chat("  "), 400, "empty"),
        (CHAT, {"model": "scripted-1", "messages": []}, 400, "at least one message"),
        (CHAT, {"model": "scripted-1", "messages": ["x"]}, 400, "messages.0"),
        (CHAT, {"model": "scripted-1", "messages": [{"role": "robot", "content": "x"}]}, 400, "messages.0.role"),
        (CHAT, {"model": "scripted-1", "messages": [{"role": "user", "content": 1}]}, 400, "messages.0.content"),
        (CHAT, {**chat("x"), "model": "other"}, 404, "scripted-1"),
        ("/v1/completions", {"model": "scripted-1", "prompt": ["a", "b"]}, 400, "prompt"),
        ("/v1/responses", {"model": "scripted-1", "input": []}, 400, "input"),
        ("/v1/responses", {"model": "scripted-1", "input": "x", "background": True}, 400, "background"),
        ("/v1/embeddings", {"model": "scripted-1", "input": "x"}, 404, "no encoder"),
        ("/v1/classify", {"texts": ["x"], "labels": ["a"]}, 400, "in-process"),
        ("/v1/score", {"labels": ["a"]}, 400, "text is missing"),
        ("/v1/nowhere", {}, 404, "nothing at"),
        (MESSAGES, {"model": "scripted-1", "messages": [{"role": "user", "content": "x"}]}, 400, "max_tokens"),
        (f"{MESSAGES}/batches", {}, 404, "nothing at"),
    ],
)
def test_what_cannot_be_read_is_refused(
    http: httpx.Client, path: str, body: dict | bytes, status: int, message: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = http.post(path, content=content)
    told = answer.json()
    assert answer.status_code == status
    assert message in told["error"]["message"]
    assert told.get("type") == ("error" if path.startswith(MESSAGES) else None)
    assert answer.headers["x-cachestack-trace"]


def test_a_wrong_method_says_which_is_right(http: httpx.Client) -> None:
    answer = http.get(CHAT)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"]["code"] == "wrong_method"


def test_a_body_that_is_too_large_is_413(engine: ScriptedEngine, scripted: Served) -> None:
    small = Served.on(scripted.gateway.stack, config=GatewayConfig(port=0, max_body_bytes=2048))
    with small, small.http() as http:
        assert http.post(CHAT, json=chat("x" * 1000)).status_code == 200
        answer = http.post(CHAT, json=chat("x" * 3000))
        assert answer.status_code == 413
        assert http.post(CHAT, content=(b"x" * 1024 for _ in range(4))).status_code == 413
        assert http.post(MESSAGES, content=b"x" * 4096).json()["error"]["type"] == "request_too_large"


class TestUnknownTenants:
    @pytest.fixture
    def policies(self) -> PolicySet:
        return PolicySet.parse("unknown_tenants: refuse\ntenants: {secret-customer: {}}", "/etc/policies.yaml")

    def test_are_refused_without_a_word_about_the_others(self, http: httpx.Client) -> None:
        answer = http.post(CHAT, json=chat("x"))
        assert answer.status_code == 403
        assert "secret-customer" not in answer.text
        assert "/etc" not in answer.text


def test_an_unexpected_error_is_a_500_with_an_id_that_the_log_has(
    http: httpx.Client, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.say = fails(RuntimeError("password is hunter2"))
    with caplog.at_level(logging.ERROR, "cachestack.gateway"):
        answer = http.post(CHAT, json=chat("x"))
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    trace_id = answer.headers["x-cachestack-trace"]
    assert trace_id in answer.json()["error"]["message"]
    (record,) = [one for one in caplog.records if trace_id in one.getMessage()]
    assert "hunter2" in str(record.exc_info)


def test_after_a_stream_has_begun_an_error_is_an_event_and_no_success_follows(
    scripted: Served, engine: ScriptedEngine
) -> None:
    engine.say = fails(UpstreamError("the connection was cut", status=502), after=("The ", "beginning"))
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="x", max_retries=0) as client:
        stream = client.chat.completions.create(**chat("Why?"), stream=True)
        assert [next(stream).choices[0].delta.content for _ in range(3)] == ["", "The ", "beginning"]
        with pytest.raises(openai.APIError, match="cut"):
            next(stream)
        with pytest.raises(openai.APIError, match="cut"):
            list(client.responses.create(model="scripted-1", input="Why?", stream=True))
    with scripted.http() as http:
        sent = http.post(CHAT, json=chat("Why?", stream=True)).text
        assert "[DONE]" not in sent
        assert 'finish_reason":"' not in sent
        asked = {"model": "scripted-1", "messages": [{"role": "user", "content": "Why?"}], "max_tokens": 9}
        events = http.post(MESSAGES, json={**asked, "stream": True}).text
        assert "event: error" in events
        assert "message_stop" not in events
    engine.say = ScriptedEngine().say
    with scripted.http() as http:
        assert "hit" not in http.post(CHAT, json=chat("Why?")).headers["cache-status"]
