"""Figures and invalidation over HTTP, for admins alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cachestack.access import AccessSettings, KeyStore, open_access
from cachestack.build import build_on
from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import Gateway
from cachestack.observing.log_reader import LogReader
from cachestack.observing.request_log import REQUESTS_FOLDER
from cachestack.stack import CacheStack
from tests.gateway.served import ScriptedEngine, Served, chat
from tests.upstream.server import Upstream

PATH = "/v1/chat/completions"
ADMINS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/metrics", {}),
    ("GET", "/admin/stats", {}),
    ("GET", "/admin/stats?tenant=rival", {}),
    ("POST", "/admin/invalidate", {"json": {"tenant": "rival"}}),
    ("DELETE", "/admin/entries/abc", {}),
    ("POST", "/admin/report", {"json": {"hit_id": "abc", "tenant": "rival"}}),
]


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, dict[str, str]]:
    """An admin's, and those of two tenants, as headers."""
    store = KeyStore(tmp_path)
    made = {"admin": store.create("admin", kind="admin")[0]}
    made |= {tenant: store.create(tenant)[0] for tenant in ("acme", "rival")}
    return {name: {"authorization": f"Bearer {key}"} for name, key in made.items()}


@pytest.fixture
def guarded(keys: dict, tmp_path: Path, engine: ScriptedEngine) -> Iterator[httpx.Client]:
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    with Served.on(stack, open_access(AccessSettings(), tmp_path)) as served, served.http() as http:
        yield http


@pytest.fixture
def open_one(tmp_path: Path, engine: ScriptedEngine) -> Iterator[httpx.Client]:
    """Without a key, on loopback."""
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    access = open_access(AccessSettings(), tmp_path, is_admin_open=True)
    with Served.on(stack, access) as served, served.http() as http:
        yield http


@pytest.mark.parametrize(("method", "path", "more"), ADMINS)
def test_a_client_s_key_opens_none_of_it_and_is_told_nothing_of_others(
    guarded: httpx.Client, keys: dict, method: str, path: str, more: dict
) -> None:
    """Trap 20."""
    told = []
    for _ in range(2):
        refused = guarded.request(method, path, headers=keys["acme"], **more)
        assert refused.status_code == 403
        told.append(refused.json()["error"]["message"])
        guarded.post(PATH, json=chat("What is the code?"), headers=keys["rival"])
    assert told[0] == told[1]
    assert "rival" not in told[0]
    assert guarded.request(method, path, **more).status_code == 401


def test_an_admin_s_key_asks_no_questions(guarded: httpx.Client, keys: dict) -> None:
    assert guarded.post(PATH, json=chat("Why?"), headers=keys["admin"]).status_code == 403


def test_figures_for_prometheus(guarded: httpx.Client, keys: dict) -> None:
    for _ in range(2):
        guarded.post(PATH, json=chat("Why?"), headers=keys["acme"])
    answer = guarded.get("/metrics", headers=keys["admin"])
    assert answer.headers["content-type"].startswith("text/plain")
    (family,) = [f for f in text_string_to_metric_families(answer.text) if f.name == "cachestack_requests"]
    counted = {(s.labels["tenant"], s.labels["served_from"]): s.value for s in family.samples}
    assert counted["acme", "engine"] == counted["acme", "exact"] == 1
    openmetrics = guarded.get("/metrics", headers={**keys["admin"], "accept": "application/openmetrics-text"})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")


def test_statistics_of_all_and_of_one(guarded: httpx.Client, keys: dict) -> None:
    for tenant in ("acme", "rival"):
        guarded.post(PATH, json=chat("Why?"), headers=keys[tenant])
    told = guarded.get("/admin/stats", headers=keys["admin"]).json()
    assert {name: one["requests"] for name, one in told["tenants"].items()} == {"acme": 1, "rival": 1}
    one = guarded.get("/admin/stats?tenant=acme", headers=keys["admin"]).json()
    assert list(one["tenants"]) == ["acme"]
    assert guarded.get("/admin/stats?tenant=none", headers=keys["admin"]).status_code == 404


def test_entries_are_removed_by_condition_and_by_id(guarded: httpx.Client, keys: dict, engine: ScriptedEngine) -> None:
    def ask(question: str) -> httpx.Response:
        return guarded.post(PATH, json=chat(question), headers={**keys["acme"], "x-cachestack-tags": "prices"})

    ask("a"), ask("b")
    assert guarded.post("/admin/invalidate", json={"tag": "prices"}, headers=keys["admin"]).json() == {"removed": 2}
    entry = ask("a").headers["x-cachestack-hit-id"]
    assert ask("a").headers["x-cachestack-hit-id"] == entry
    assert guarded.delete(f"/admin/entries/{entry}", headers=keys["admin"]).json() == {"removed": 1}
    assert guarded.delete(f"/admin/entries/{entry}", headers=keys["admin"]).status_code == 404
    assert engine.num_calls == 3
    ask("a")
    assert engine.num_calls == 4


def test_a_wrong_hit_is_reported_to_its_own_tenant_only(guarded: httpx.Client, keys: dict) -> None:
    entry = guarded.post(PATH, json=chat("a"), headers=keys["acme"]).headers["x-cachestack-hit-id"]

    def report(tenant: str) -> int:
        body = {"hit_id": entry, "tenant": tenant}
        return guarded.post("/admin/report", json=body, headers=keys["admin"]).status_code

    assert [report("rival"), report("acme"), report("acme")] == [404, 200, 404]
    told = guarded.get("/admin/stats", headers=keys["admin"]).json()
    assert told["tenants"]["acme"]["wrong_hit_reports"] == 1


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/admin/invalidate", {}, "needs a condition"),
        ("/admin/invalidate", {"tennant": "a"}, "tennant"),
        ("/admin/invalidate", {"older_than_s": -1}, "older_than"),
        ("/admin/invalidate", {"older_than_s": "old"}, "older_than_s must be a number"),
        ("/admin/report", {"hit_id": "a"}, "tenant is missing"),
        ("/admin/report", {"hit_id": "a", "tenant": "b", "why": "c"}, "why"),
    ],
)
def test_what_an_admin_says_wrongly_is_named(guarded: httpx.Client, keys: dict, path: str, body: dict, message: str):
    answer = guarded.post(path, json=body, headers=keys["admin"])
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_without_keys_it_is_open_on_loopback_until_the_first_one(open_one: httpx.Client, tmp_path: Path) -> None:
    open_one.post(PATH, json=chat("a"))
    assert open_one.get("/metrics").status_code == 200
    assert open_one.post("/admin/invalidate", json={"tenant": "default"}).json() == {"removed": 1}
    KeyStore(tmp_path).create("acme")
    while open_one.get("/metrics").status_code == 200:
        pass  # other processes see a new key within a second
    assert open_one.get("/metrics").status_code == 401


@pytest.mark.parametrize("is_wanted", [True, False])
def test_each_request_is_in_the_log_unless_that_is_off(tmp_path: Path, is_wanted: bool) -> None:
    with Upstream() as upstream:
        engines: Any = {"a": {"kind": "openai", "base_url": upstream.base_url, "model": "scripted"}}
        options = {} if is_wanted else {"request_log": False}
        config = GatewayConfig(port=0, home=tmp_path, encoder="none", engines=engines, **options)
        with Served(Gateway.of(config)) as served, served.http() as http:
            trace = http.post(PATH, json={**chat("my secret"), "model": "a"}).headers["x-cachestack-trace"]
            lines = list(LogReader(tmp_path / REQUESTS_FOLDER).new())
            assert http.get("/admin/stats").status_code == 200  # of this gateway, without a key and on loopback
    assert [line["request_id"] for line in lines] == ([trace] if is_wanted else [])
    assert "my secret" not in str(lines)
