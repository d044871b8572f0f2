"""Keys at the door: who asks is what the key says, and nothing else."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Generator, Mapping
from pathlib import Path

import anthropic
import openai
import pytest

from cachestack.access import AccessSettings, KeyStore, Kind, Principal, open_access
from cachestack.build import build_on
from cachestack.errors import AccessDenied, ConfigError
from cachestack.gateway import requesting
from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import Gateway
from cachestack.policy_set import PolicySet
from cachestack.requests import Generation, Piece, Request
from cachestack.stack import CacheStack
from tests.gateway.served import ANSWER, WAIT_S, ScriptedEngine, Served, chat, eventually, says

PATH = "/v1/chat/completions"


def serve(engine: ScriptedEngine, home: Path, policies: str = "") -> Served:
    parsed = PolicySet.parse(policies, "test")
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=parsed, home=home)
    return Served.on(stack, open_access(AccessSettings(), home))


def test_tenants_never_meet_and_a_revoked_key_is_out(tmp_path: Path, engine: ScriptedEngine) -> None:
    keys = KeyStore(tmp_path)
    secrets = {name: keys.create(name)[0] for name in ("acme", "lumiere")}
    with serve(engine, tmp_path) as served, served.http() as http:

        def ask(secret: str | None) -> tuple[int, str]:
            headers = {} if secret is None else {"authorization": f"Bearer {secret}", "x-tenant": "acme"}
            answer = http.post(PATH, json=chat("What is the code?"), headers=headers)
            return answer.status_code, answer.headers["cache-status"].split("; ")[1]

        assert ask(secrets["acme"]) == (200, "fwd=uri-miss")
        assert ask(secrets["acme"]) == (200, "hit")
        assert ask(secrets["lumiere"]) == (200, "fwd=uri-miss")
        assert [request.tenant for request in engine.requests] == ["acme", "lumiere"]
        assert ask(None) == (401, "detail=refused")
        assert ask("csk_nobody") == (401, "detail=refused")
        assert http.get("/v1/models").status_code == 401
        assert http.get("/healthz").status_code == 200


def test_official_clients_send_their_keys(tmp_path: Path, engine: ScriptedEngine) -> None:
    secret, _ = KeyStore(tmp_path).create("acme")
    with serve(engine, tmp_path) as served:
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key=secret) as client:
            assert client.chat.completions.create(**chat("Why?")).choices[0].message.content
        with anthropic.Anthropic(base_url=served.url, api_key=secret) as claude:
            assert claude.messages.create(**chat("Why?"), max_tokens=9).content
        with (
            openai.OpenAI(base_url=f"{served.url}/v1", api_key="csk_wrong", max_retries=0) as stranger,
            pytest.raises(openai.AuthenticationError),
        ):
            stranger.chat.completions.create(**chat("Why?"))


def test_limits_of_the_policy(tmp_path: Path, engine: ScriptedEngine) -> None:
    with serve(engine, tmp_path, "default: {limits: {requests_per_minute: 2}}") as served, served.http() as http:
        answers = [http.post(PATH, json=chat(f"Why {i}?")) for i in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) >= 1
    assert answers[2].json()["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_count_where_an_engine_was_called(tmp_path: Path, engine: ScriptedEngine, stream: bool) -> None:
    with serve(engine, tmp_path, "default: {limits: {tokens_per_minute: 20}}") as served, served.http() as http:
        asked = [chat(question, stream=stream) for question in ("a", "a", "a", "a", "b", "c")]
        statuses = [http.post(PATH, json=body).status_code for body in asked]
    assert statuses == [200, 200, 200, 200, 200, 429]  # 16 tokens for `a` once; `b` begins below the limit


PRICED = "as_of: 2026-01-01\ncurrency: EUR\nmodels: {scripted-1: {input: 1, output: 1, cached_read: 0.5}}\n"


def test_spend_is_counted_by_the_dated_table(tmp_path: Path, engine: ScriptedEngine) -> None:
    """15 tokens of prompt and answer at 1 a million, 1 of them half off: two requests and no third."""
    (tmp_path / "prices.yaml").write_text(PRICED)
    policies = f"default: {{prices: {{table: {tmp_path}/prices.yaml}}, limits: {{spend_per_day: 0.00002}}}}"
    with serve(engine, tmp_path, policies) as served, served.http() as http:
        statuses = [http.post(PATH, json=chat(question)).status_code for question in ("a", "a", "b", "c")]
    assert statuses == [200, 200, 200, 429]


def test_a_model_without_a_price_is_named_once(
    tmp_path: Path, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    policies = "default: {limits: {spend_per_day: 0.00002}}"
    caplog.set_level("WARNING", "cachestack.gateway")
    with serve(engine, tmp_path, policies) as served, served.http() as http:
        assert [http.post(PATH, json=chat(q)).status_code for q in "abc"] == [200, 200, 200]
    assert sum("no price of scripted-1" in record.getMessage() for record in caplog.records) == 1


def test_without_keys_it_listens_on_this_machine_alone(tmp_path: Path, engine: ScriptedEngine) -> None:
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        gateway = Gateway(GatewayConfig(host=host, port=0), stack, [], open_access(AccessSettings(), tmp_path))
        with pytest.raises(ConfigError, match="no keys"):
            gateway.open()
    KeyStore(tmp_path).create("acme")
    gateway = Gateway(GatewayConfig(host="0.0.0.0", port=0), stack, [], open_access(AccessSettings(), tmp_path))
    gateway.open()
    gateway.close()
    stack.close()


class _Changing:
    """Lets everybody in until it is closed."""

    is_open = True

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.is_closed = False

    def authenticate(self, headers: Mapping[str, str], kind: Kind = "client") -> Principal:
        self.asked.set()
        if self.is_closed:
            raise AccessDenied("revoked")
        return Principal("acme", kind=kind)


@pytest.mark.parametrize("path", [PATH, "/v1/score"])
def test_a_key_that_is_revoked_while_the_body_comes_opens_nothing(
    tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(requesting, "LATE_S", 0.0)
    access = _Changing()
    body = json.dumps(chat("Why?") | {"text": "Why?", "labels": ["a", "b"]}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    with Served.on(stack, access) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), WAIT_S) as raw:
            raw.sendall(head.encode())
            assert access.asked.wait(WAIT_S)
            access.is_closed = True
            raw.sendall(body)
            assert raw.recv(100).startswith(b"HTTP/1.1 401 ")
    assert engine.num_calls == 0


def test_a_stream_that_is_left_early_is_charged_for_what_was_passed_on(tmp_path: Path, engine: ScriptedEngine) -> None:
    def say(request: Request) -> Generator[Piece | Generation, None, None]:
        yield "word " * 100
        while True:  # it ends when it is closed, and leaves the others time to notice
            threading.Event().wait(0.01)
            yield "more "

    engine.say = say
    with serve(engine, tmp_path, "default: {limits: {tokens_per_minute: 50}}") as served, served.http() as http:
        with http.stream("POST", PATH, json=chat("Why?", stream=True)) as answer:
            assert "word" in next(text for text in answer.iter_text() if "word" in text)
        assert engine.closed.wait(WAIT_S)
        engine.say = says(ANSWER)
        assert eventually(lambda: http.post(PATH, json=chat("And then?")).status_code == 429)
