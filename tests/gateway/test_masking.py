"""What a provider says of an error reaches a tenant; what it says of the operator's account does not."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from cachestack.errors import UpstreamError
from cachestack.gateway.masking import MASK, masked
from tests.gateway.served import ScriptedEngine, chat, fails

SECRETS = (
    "sk-proj-AbCdEfGh1234567890", "sk-proj-AbC***************xyz9", "sk-ant-api03-AAAA1111bbbb", "gsk_0123456789abcdef",
    "org-AbCdEf1234567890", "proj_AbCdEf1234567890", "5b8a1c2d-0f3e-4a5b-9c8d-112233445566", "Bearer abcdef0123456789",
    "AKIAIOSFODNN7EXAMPLE", "hf_abcdEFGH1234", "****abcd", "abc...********", "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0",
)  # fmt: skip
HARMLESS = (
    "Rate limit reached for gpt-4o-mini: limit 200000, used 199000. Please try again in 1.2s.",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "messages.0.content: Input should be a valid string", "key-value pairs must be text; user_name is missing",
    "This model's maximum context length is 128000 tokens. See https://platform.openai.com/docs/guides/error-codes.",
    "**Bold** words and task-oriented, risk-averse, disk-1 stay; so does sk-learn.", "project_name and org-chart",
)  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("text", ["Incorrect key provided: {}.", "({})", "'{}' in organization {} on requests", "{}"])
def test_what_names_the_operator_is_hidden(secret: str, text: str) -> None:
    hidden = masked(text.format(secret, secret))
    assert MASK in hidden
    assert not any(part in hidden for part in (secret, secret[-4:], secret[3:12]))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_a_caller_can_use_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_tenant_reads_the_message_and_no_more(
    http: httpx.Client, engine: ScriptedEngine, path: str, stream: bool
) -> None:
    error: dict[str, Any] = {
        "message": "Rate limit reached in organization org-AbCdEf1234567890", "type": "tokens", "param": None,
        "code": "rate_limit_exceeded", "internal": {"host": "10.0.0.7"},
    }  # fmt: skip
    body = {"type": "error", "error": error, "trace": "at /srv/app.py"}
    engine.say = fails(UpstreamError("the provider said: sk-proj-AbCdEfGh1234567890", status=429, body=body))
    answer = http.post(path, json=chat("Why?", stream=stream, max_tokens=9))
    assert answer.status_code == 429
    said = answer.json()["error"]
    assert said["message"] == f"Rate limit reached in organization {MASK}"
    assert said["type"] == "tokens"
    assert set(said) <= {"message", "type", "param", "code"}
    assert set(answer.json()) <= {"error", "type", "request_id"}
    engine.say = fails(UpstreamError("no key sk-proj-AbCdEfGh1234567890", status=500))
    assert "AbCd" not in http.post(path, json=chat("Why?", stream=stream, max_tokens=9)).text


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_the_gateways_own_key_is_for_its_operator(
    http: httpx.Client, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    body = {"error": {"message": "Incorrect API key provided: sk-1234. Ask alice", "code": "invalid_api_key"}}
    engine.say = fails(UpstreamError("Incorrect API key; ask alice", status=status, body=body))
    answer = http.post("/v1/chat/completions", json=chat("Why?"))
    assert answer.status_code == status
    assert "alice" not in answer.text
    assert answer.headers["x-cachestack-trace"] in answer.json()["error"]["message"]
    assert any(answer.headers["x-cachestack-trace"] in line and "alice" in line for line in caplog.messages)


def test_a_part_of_a_stream_that_failed_is_masked_as_well(http: httpx.Client, engine: ScriptedEngine) -> None:
    body = {"error": {"message": "overloaded: org-AbCdEf1234567890", "type": "server_error"}}
    engine.say = fails(UpstreamError("x", status=503, body=body), after=("The ", "beginning"))
    text = http.post("/v1/chat/completions", json=chat("Why?", stream=True)).text
    assert "overloaded: [hidden]" in text
    assert "AbCd" not in text
