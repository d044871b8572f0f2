"""What one request wants of the cache, and what the answer's headers say."""

from __future__ import annotations

import re
import time
from typing import Any

import httpx
import pytest

from cachestack.access import OpenAuthenticator, Principal
from cachestack.bodies.call import Given
from cachestack.bodies.offered import Models, Offered
from cachestack.bodies.wishes import NONE, Wishes, wishes_of
from cachestack.build import build_on
from cachestack.errors import RequestError
from cachestack.gateway.dialects.openai_chat import OpenAIChat
from cachestack.gateway.requesting import Exchange
from cachestack.policy_set import PolicySet
from cachestack.requests import Request
from cachestack.stack import CacheStack
from tests.gateway.served import ScriptedEngine, Served, chat

PATH = "/v1/chat/completions"
HIT = "CacheStack; hit; detail=exact"
STORED = "CacheStack; fwd=uri-miss; stored"


def status(http: httpx.Client, question: str = "Why?", **headers: str) -> str:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = http.post(PATH, json=chat(question), headers=sent)
    assert re.fullmatch(r"[0-9a-f]{24}", answer.headers["x-cachestack-trace"])
    return answer.headers["cache-status"]


@pytest.mark.parametrize(
    ("text", "wishes"),
    [
        ("no-store", Wishes(store=False)),
        ("no-cache", Wishes(lookup=False)),
        ("NO-CACHE , No-Store", Wishes(store=False, lookup=False)),
        ("only-if-cached", Wishes(only_if_cached=True)),
        ("max-age=60", Wishes(max_age_s=60.0)),
        ('max-age="60"', Wishes(max_age_s=60.0)),
        ("max-age=0", Wishes(max_age_s=0.0)),
        ("min-fresh=10, foo, bar=\"a,b\", only-if-cached", Wishes(only_if_cached=True)),
        ("max-age=5, max-age=9", Wishes(max_age_s=5.0)),
        (";;, =, only-if-cached", Wishes(only_if_cached=True)),
        ("", NONE),
        (",,,", NONE),
    ],
)  # fmt: skip
def test_directives_that_are_known_are_read_and_others_ignored(text: str, wishes: Wishes) -> None:
    assert wishes_of({"cache-control": text}) == wishes


@pytest.mark.parametrize("value", ["", "-1", "1.5", "ten", "٣", "1" * 11])
def test_a_max_age_that_is_no_number_of_seconds_is_refused(value: str) -> None:
    with pytest.raises(RequestError, match="max-age"):
        wishes_of({"cache-control": f"max-age={value}"})


def test_tags_and_life() -> None:
    wishes = wishes_of({"x-cachestack-tags": "prices, germany ,prices,", "x-cachestack-ttl": "90"})
    assert (wishes.tags, wishes.ttl_s) == (("prices", "germany"), 90.0)
    for ttl in ("0", "-1", "nan", "inf", "soon"):
        with pytest.raises(RequestError, match="TTL"):
            wishes_of({"x-cachestack-ttl": ttl})
    with pytest.raises(RequestError, match="32 names"):
        wishes_of({"x-cachestack-tags": ",".join(map(str, range(33)))})


def test_each_directive_does_what_it_says(http: httpx.Client, engine: ScriptedEngine) -> None:
    assert status(http, cache_control="no-store") == "CacheStack; fwd=uri-miss"
    assert status(http) == STORED
    assert status(http) == HIT
    assert status(http, cache_control="no-cache") == "CacheStack; fwd=request; stored"
    assert status(http, cache_control="only-if-cached") == HIT
    assert status(http, cache_control="max-age=3600") == HIT
    assert status(http, cache_control="max-age=0") == "CacheStack; fwd=stale; stored"
    assert engine.num_calls == 4


def test_what_is_only_wanted_from_the_cache_and_is_not_there_calls_no_model(
    http: httpx.Client, engine: ScriptedEngine
) -> None:
    for stream in (False, True):
        answer = http.post(PATH, json=chat("Why?", stream=stream), headers={"cache-control": "only-if-cached"})
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "not_cached"
        assert "only-if-cached" in answer.json()["error"]["message"]
        assert answer.headers["cache-status"] == "CacheStack; detail=not-cached"
    assert engine.num_calls == 0


def test_what_is_not_cacheable_is_a_bypass(http: httpx.Client) -> None:
    for _ in range(2):
        answer = http.post(PATH, json=chat("Why?", temperature=1.5))
        assert answer.headers["cache-status"] == "CacheStack; fwd=bypass"


def test_a_hit_names_the_entry_and_its_tags_remove_it(http: httpx.Client, scripted: Served) -> None:
    first = http.post(PATH, json=chat("Why?"), headers={"x-cachestack-tags": "prices"})
    again = http.post(PATH, json=chat("Why?"))
    streamed = http.post(PATH, json=chat("Why?", stream=True))
    named = {answer.headers["x-cachestack-hit-id"] for answer in (first, again, streamed)}
    assert len(named) == 1
    assert streamed.headers["cache-status"] == HIT
    assert scripted.gateway.stack.invalidate(tag="prices") == 1
    assert status(http) == STORED


def test_the_headers_of_a_stream_say_whether_it_is_a_hit(http: httpx.Client) -> None:
    seen = [http.post(PATH, json=chat("Why?", stream=True)) for _ in range(2)]
    assert [answer.headers["cache-status"] for answer in seen] == ["CacheStack; fwd=uri-miss", HIT]
    assert {answer.headers["content-type"] for answer in seen} == {"text/event-stream; charset=utf-8"}


def test_nothing_tells_of_other_tenants_or_of_what_was_nearly_found(
    tmp_path_factory: pytest.TempPathFactory, engine: ScriptedEngine
) -> None:
    """Trap 20: the headers of a miss are the same whether the cache is empty, or full of another tenant's answers."""
    policies = PolicySet.parse("tenants: {acme: {}, other: {}}", "test")
    seen: list[list[str]] = []
    for known in (False, True):
        home = tmp_path_factory.mktemp("oracle")
        stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=policies, home=home)
        if known:
            stack.chat(_request_of("other"))
        with Served.on(stack, OpenAuthenticator("acme")) as served, served.http() as http:
            answer = http.post(PATH, json=chat("What is the code?"))
            same = {"content-length", "date", "x-cachestack-trace", "x-cachestack-hit-id"}
            seen.append(sorted(f"{k}: {v}" for k, v in answer.headers.items() if k not in same))
    assert seen[0] == seen[1]
    assert "cache-status: CacheStack; fwd=uri-miss; stored" in seen[0]
    assert not any(word in line for line in seen[1] for word in ("similarity", "other", "code"))


def _request_of(tenant: str) -> Request:
    dialect = OpenAIChat(Models((Offered("scripted", "scripted-1"),)))
    return dialect.parse(chat("What is the code?"), Given(Principal(tenant), NONE, {})).request


def test_a_flood_of_one_header_is_joined_in_no_time() -> None:
    """Each joined to the last took half a minute, of everybody's time: the event loop's."""
    count = 100_000
    exchange = Exchange({"headers": [(b"a", b"b" * 20)] * count}, _nothing, _nothing, "trace")
    begin_s = time.process_time()
    headers = exchange.headers
    assert time.process_time() - begin_s < 2
    assert len(headers["a"]) == 22 * count - 2


async def _nothing(*_: object) -> Any:
    raise AssertionError("nothing is read or sent")


def test_a_tag_that_was_sent_as_utf_8_can_be_invalidated_by(http: httpx.Client, scripted: Served) -> None:
    for status in (STORED, HIT):
        answer = http.post(PATH, json=chat("Why?"), headers=[(b"x-cachestack-tags", "été, b".encode())])
        assert answer.headers["cache-status"] == status
    assert scripted.gateway.stack.invalidate(tag="été") == 1
    assert wishes_of({"x-cachestack-tags": "\xe9t\xe9"}).tags == ("été",)
