"""POST /v1/report: a client takes a wrong hit from its own question, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cachestack.access import AccessSettings, KeyStore, open_access
from cachestack.build import build_on
from cachestack.policy_set import PolicySet
from cachestack.stack import CacheStack
from tests.gateway.served import ScriptedEngine, Served, chat

PATH, REPORT = "/v1/chat/completions", "/v1/report"
FIRST, AGAIN = "How do I reset my password?", "How can I reset my password?"
UNDER_BUDGET = "default: {semantic: {walls: [user]}, budget: {max_wrong_hit_rate: 0.05, max_audits_per_hour: 0}}"
Headers = dict[str, str]


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Headers]:
    store = KeyStore(tmp_path)
    made = {"admin": store.create("admin", kind="admin")[0], "rival": store.create("rival")[0]}
    made |= {user: store.create("acme", user=user)[0] for user in ("ana", "ben")}
    return {name: {"authorization": f"Bearer {key}"} for name, key in made.items()}


@pytest.fixture
def stack(keys: dict[str, Headers], tmp_path: Path, engine: ScriptedEngine, encoder_path: Path) -> CacheStack:
    policies = PolicySet.parse(UNDER_BUDGET, "test policy")
    return build_on(CacheStack, {"scripted": engine}, encoder=str(encoder_path), policies=policies, home=tmp_path)


@pytest.fixture
def http(stack: CacheStack, tmp_path: Path) -> Iterator[httpx.Client]:
    with Served.on(stack, open_access(AccessSettings(), tmp_path)) as served, served.http() as client:
        yield client


def ask(http: httpx.Client, question: str, headers: Headers) -> tuple[str, str]:
    """Where the answer came from, and the request's id."""
    answer = http.post(PATH, json=chat(question), headers=headers)
    assert answer.status_code == 200, answer.text
    status = answer.headers["cache-status"]
    return status.rpartition("detail=")[2] if "; hit" in status else "engine", answer.headers["x-cachestack-trace"]


def hit_of(http: httpx.Client, headers: Headers) -> str:
    """A hit by meaning, by its request's id."""
    assert ask(http, FIRST, headers)[0] == "engine"
    source, hit_id = ask(http, AGAIN, headers)
    assert source == "semantic"
    return hit_id


def report(http: httpx.Client, headers: Headers, **body: Any) -> int:
    return http.post(REPORT, json=body, headers=headers).status_code


def test_a_hit_that_was_reported_wrong_is_not_served_to_that_question_again(
    http: httpx.Client, keys: dict[str, Headers], stack: CacheStack
) -> None:
    hit_id = hit_of(http, keys["ana"])
    answer = http.post(REPORT, json={"hit_id": hit_id}, headers=keys["ana"])
    assert (answer.status_code, answer.json()) == (200, {"reported": "wrong"})
    assert ask(http, AGAIN, keys["ana"])[0] == "engine"
    assert ask(http, FIRST, keys["ana"])[0] == "exact", "the entry stays for the others"
    assert stack.stats().by_tenant["acme"].wrong_hit_reports == 1


def test_a_hit_that_was_right_is_counted_and_served_on(
    http: httpx.Client, keys: dict[str, Headers], stack: CacheStack
) -> None:
    hit_id = hit_of(http, keys["ana"])
    assert report(http, keys["ana"], hit_id=hit_id, verdict="right") == 200
    assert ask(http, AGAIN, keys["ana"])[0] == "semantic"
    stats = stack.stats().by_tenant["acme"]
    assert (stats.right_hit_reports, stats.wrong_hit_reports) == (1, 0)


def test_nobody_reports_what_another_tenant_or_user_was_served_or_learns_that_it_was(
    http: httpx.Client, keys: dict[str, Headers], stack: CacheStack
) -> None:
    hit_id = hit_of(http, keys["ana"])
    told = [
        http.post(REPORT, json={"hit_id": given}, headers=keys[who])
        for who, given in (("rival", hit_id), ("ben", hit_id), ("ben", "no-such-request"))
    ]
    assert {answer.status_code for answer in told} == {404}
    assert len({answer.json()["error"]["message"] for answer in told}) == 1
    assert ask(http, AGAIN, keys["ana"])[0] == "semantic"
    assert all(stats.wrong_hit_reports == 0 for stats in stack.stats().by_tenant.values())


def test_an_entry_s_id_takes_no_entry_away(http: httpx.Client, keys: dict[str, Headers]) -> None:
    """A client may take a hit from its own question, and no entry from anybody."""
    entry = http.post(PATH, json=chat(FIRST), headers=keys["ana"]).headers["x-cachestack-hit-id"]
    assert report(http, keys["ana"], hit_id=entry) == 404
    assert ask(http, FIRST, keys["ana"])[0] == "exact"


def test_it_takes_a_client_s_key(http: httpx.Client, keys: dict[str, Headers]) -> None:
    hit_id = hit_of(http, keys["ana"])
    assert report(http, {}, hit_id=hit_id) == 401
    assert report(http, keys["admin"], hit_id=hit_id) == 403


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "hit_id is missing"),
        ({"hit_id": 3}, "hit_id"),
        ({"hit_id": "a", "verdict": "perhaps"}, "verdict must be wrong or right, not 'perhaps'"),
        ({"hit_id": "a", "tenant": "rival"}, "tenant is not known"),
        ({"hit_id": "a", "remove": True}, "remove is not known"),
    ],
    ids=str,
)
def test_what_is_said_wrongly_is_named(
    http: httpx.Client, keys: dict[str, Headers], body: dict[str, Any], message: str
) -> None:
    answer = http.post(REPORT, json=body, headers=keys["ana"])
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
