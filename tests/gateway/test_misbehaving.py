"""An upstream that misbehaves: a clear error within the client's time, nothing kept, nobody left hanging."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import Gateway
from tests.gateway.served import Served
from tests.upstream.calls import Call, Gate, error
from tests.upstream.server import Upstream

SILENCE_S, DEADLINE_S = 0.5, 10.0
DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": "gpt-x"}),
    "messages": ("/v1/messages", {"model": "claude-x", "max_tokens": 99}),
}
NEVER = Gate()
EMPTY = Call(text="")
BROKEN: dict[str, tuple[Call, tuple[int, int]]] = {
    "silent": (Call(before=NEVER), (504, 504)),
    "limited": (error(429, "slow down", retry_after="7"), (429, 429)),
    "out of order": (error(500, "broken"), (500, 500)),
    "cut": (Call(cut_at=4), (502, 200)),
    "slow in the middle": (Call(pause=(4, NEVER)), (0, 200)),
    "malformed": (Call(malformed_at=3, body=b"{") , (502, 502)),
    "malformed event": (Call(malformed_at=4), (0, 200)),
    "error event": (Call(error_at=4), (0, 200)),
    "ends early": (Call(ends_at=4), (0, 200)),
    "error with 200": (Call(body={"type": "error", "error": {"type": "x", "message": "in truth"}}), (502, 502)),
    "no body": (Call(body=b""), (502, 502)),
    "another shape": (Call(body={"hello": "world"}), (502, 502)),
}  # fmt: skip
"""With the status of a whole answer, and of a streamed one; 0: it cannot happen."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def http(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    home = tmp_path_factory.mktemp("misbehaving")
    quick: Any = {
        "retries": {"num_retries": 0},
        "timeouts": {"read_s": SILENCE_S, "total_s": 5.0},
        "breaker": {"num_failures": 1000},
    }
    engines: Any = {
        "openai": {"kind": "openai", "base_url": upstream.base_url, "names": ["gpt-*"], **quick},
        "claude": {"kind": "anthropic", "base_url": upstream.root_url, "names": ["claude-*"], **quick},
    }
    policies = Path(home) / "policies.yaml"
    policies.write_text("default: {fallback: {engine_error: [raise]}}")
    config = GatewayConfig(port=0, home=home, encoder="none", engines=engines, policies=policies)
    with Served(Gateway.of(config)) as served, served.http() as http:
        yield http


def ask(http: httpx.Client, dialect: str, question: str, *, streams: bool) -> httpx.Response:
    path, asked = DIALECTS[dialect]
    messages = [{"role": "user", "content": question}]
    return http.post(path, json={**asked, "messages": messages, "stream": streams}, timeout=DEADLINE_S)


def is_complete(text: str) -> bool:
    return "[DONE]" in text or "message_stop" in text


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("how", BROKEN)
def test_it_is_told_in_time_and_nothing_is_kept(
    http: httpx.Client, upstream: Upstream, how: str, dialect: str, streams: bool
) -> None:
    call, statuses = BROKEN[how]
    if not (expected := statuses[streams]):
        pytest.skip("only a stream can do so")
    question = f"{how} {dialect} {streams}?"
    upstream.script(call)
    begin_s = time.monotonic()
    answer = ask(http, dialect, question, streams=streams)
    assert time.monotonic() - begin_s < DEADLINE_S
    assert answer.status_code == expected
    if expected == 200:
        assert '"error"' in answer.text
        assert not is_complete(answer.text)
    else:
        assert answer.json()["error"]["message"]
        assert answer.json().get("type") == ("error" if dialect == "messages" else answer.json().get("type"))
    assert answer.headers.get("retry-after") == ("7" if how == "limited" else None)
    num_calls = len(upstream.requests)
    again = ask(http, dialect, question, streams=streams)
    assert again.status_code == 200
    assert "hit" not in again.headers["cache-status"]
    assert len(upstream.requests) == num_calls + 1


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("usage", [{"prompt_tokens": -5, "completion_tokens": "many"}, {"input_tokens": None}, None])
def test_a_wrong_usage_costs_figures_and_no_answer(
    http: httpx.Client, upstream: Upstream, usage: Any, dialect: str, streams: bool
) -> None:
    upstream.script(Call(text="Paris.", usage=usage))
    answer = ask(http, dialect, f"usage {usage} {dialect} {streams}?", streams=streams)
    assert answer.status_code == 200
    assert "Paris." in answer.text
    assert not streams or is_complete(answer.text)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_of_nothing_is_passed_on_and_not_kept(
    http: httpx.Client, upstream: Upstream, dialect: str, streams: bool
) -> None:
    question = f"nothing {dialect} {streams}?"
    upstream.script(EMPTY)
    assert ask(http, dialect, question, streams=streams).status_code == 200
    assert "hit" not in ask(http, dialect, question, streams=streams).headers["cache-status"]
