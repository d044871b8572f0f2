"""Without keys, no page in a browser reaches the gateway: not from its own origin, not by a name that it rebinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachestack.access import AccessSettings, KeyStore, open_access
from cachestack.build import build_on
from cachestack.gateway.config import GatewayConfig
from cachestack.stack import CacheStack
from tests.gateway.served import ScriptedEngine, Served, chat

PATHS = ("/v1/chat/completions", "/v1/messages", "/admin/invalidate")
BODY = {**chat("Why?"), "max_tokens": 5}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST", "localhost:8080", "127.0.0.1:1"])
def test_its_own_names_are_answered(scripted: Served, host: str) -> None:
    with scripted.http() as http:
        assert http.post(PATHS[0], json=BODY, headers={"host": host}).status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8080"},
        {"host": "localhost.evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "user@evil.example"},
        {"host": "[::1"},
        {"host": ""},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "https://localhost.evil.example"},
        {"host": "localhost", "origin": "http://127.0.0.1@evil.example"},
    ],
)
def test_others_are_refused(scripted: Served, engine: ScriptedEngine, path: str, headers: dict[str, str]) -> None:
    with scripted.http() as http:
        answer = http.post(path, json=BODY, headers=headers)
    assert answer.status_code in (400, 403)  # what is no host at all, the HTTP server may refuse by itself
    assert engine.num_calls == 0


def test_a_page_of_this_machine_is_answered(scripted: Served) -> None:
    with scripted.http() as http:
        assert http.post(PATHS[0], json=BODY, headers={"origin": "http://localhost:3000"}).status_code == 200


def test_further_names_are_configured(tmp_path: Path, engine: ScriptedEngine) -> None:
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    config = GatewayConfig(port=0, allowed_hosts=("cache.test",))
    with Served.on(stack, config=config) as served, served.http() as http:
        for host, status in (("cache.test", 200), ("cache.test:8080", 200), ("other.test", 403)):
            assert http.post(PATHS[0], json=BODY, headers={"host": host}).status_code == status


def test_with_keys_any_name_will_do(tmp_path: Path, engine: ScriptedEngine) -> None:
    key, _ = KeyStore(tmp_path).create("acme")
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    headers = {"host": "gateway.example", "origin": "https://app.example", "authorization": f"Bearer {key}"}
    with Served.on(stack, open_access(AccessSettings(), tmp_path)) as served, served.http() as http:
        assert http.post(PATHS[0], json=BODY, headers=headers).status_code == 200
