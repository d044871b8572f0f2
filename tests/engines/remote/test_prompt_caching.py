"""What providers' own caches are told: asserted in what the upstream received."""

from __future__ import annotations

import inspect
import json
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types import CacheControlEphemeralParam
from anthropic.types.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from cachestack.engines.remote.prefix_hint import PrefixHints
from cachestack.engines.remote.prompt_caching import provider_caches
from cachestack.requests import Message, Request
from tests.engines.remote.conftest import Clock, MakeEngine, run
from tests.upstream.server import Upstream

LONG = "All orders are shipped from Porto within two days. " * 200  # about 2,500 tokens
SHORT = "Be brief."
FIELDS = ("cache_salt", "prompt_cache_key", "prompt_cache_retention", "cache_control")


def long_request(tenant: str = "acme", system: str = LONG, question: str = "where", **fields: Any) -> Request:
    return Request((Message("system", system), Message("user", question)), tenant=tenant, **fields)


def sent(upstream: Upstream) -> dict[str, Any]:
    body: dict[str, Any] = upstream.last.body
    return {name: body[name] for name in FIELDS if name in body}


@pytest.mark.parametrize("provider", ["vllm", "sglang"])
def test_each_tenant_has_its_own_salt(provider: str, make_engine: MakeEngine, upstream: Upstream) -> None:
    engine = make_engine(provider=provider)
    salts: dict[str, set[str]] = {}
    tenants = ["acme", "acme2", "Acme", "", "b\0c", "b", "é", "e\u0301", "\ud800"]
    for tenant in (t or "x" for t in tenants):
        for question in ("one", "two"):
            run(engine, long_request(tenant, SHORT, question))
            salts.setdefault(tenant, set()).add(upstream.last.body["cache_salt"])
    assert all(len(of_one) == 1 for of_one in salts.values()), "a tenant shares with itself"
    assert len(set.union(*salts.values())) == len(salts), "and with nobody else"
    assert "acme" not in json.dumps([seen.body for seen in upstream.requests])


def test_salts_hang_on_the_secret_alone(make_engine: MakeEngine, upstream: Upstream) -> None:
    for secret in (b"one", b"one", b"two", None, None):
        run(make_engine(secret=secret), long_request())
    first, same, other, drawn, drawn_anew = (seen.body["cache_salt"] for seen in upstream.requests)
    assert first == same
    assert len({first, other, drawn, drawn_anew}) == 4


def test_openai_is_told_a_key_for_tenant_and_prefix(make_engine: MakeEngine, upstream: Upstream) -> None:
    engine = make_engine(provider="openai", model="gpt-5-mini")
    other = LONG + "!"
    requests = [long_request(), long_request(question="when"), long_request("globex"), long_request(system=other)]
    for request in requests:
        run(engine, request)
        assert set(sent(upstream)) == {"prompt_cache_key"}
    keys = [seen.body["prompt_cache_key"] for seen in upstream.requests]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert all(len(key) <= 64 for key in keys)
    run(engine, long_request(system=SHORT))
    assert sent(upstream) == {}, "shorter prompts are not cached there"


def test_openai_keeps_long_lived_prefixes_where_the_model_can(make_engine: MakeEngine, upstream: Upstream) -> None:
    for model, told in (("gpt-5-mini", True), ("gpt-4o", False)):
        run(make_engine(provider="openai", model=model, long_lived_prefixes=True), long_request())
        assert ("prompt_cache_retention" in upstream.last.body) == told
    assert upstream.requests[0].body["prompt_cache_retention"] == "24h"


@pytest.mark.parametrize("provider", ["llama-cpp", "tensorrt-llm", "ollama", "generic"])
def test_nothing_is_said_where_caching_is_automatic(provider: str, make_engine: MakeEngine, upstream: Upstream) -> None:
    engine = make_engine(provider=provider)
    for _ in range(3):
        run(engine, long_request())
        assert sent(upstream) == {}


def test_anthropic_breakpoints_come_when_reads_repay_them(
    make_engine: MakeEngine, upstream: Upstream, clock: Clock
) -> None:
    engine = make_engine("anthropic", model="claude-sonnet-4-5")
    run(engine, long_request())
    assert "cache_control" not in json.dumps(upstream.last.body), "once is no habit"
    run(engine, long_request(question="when"))
    marked = {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}
    assert upstream.last.body["system"] == [marked]
    assert upstream.last.body["messages"] == [{"role": "user", "content": "when"}], "what changes is not marked"
    clock.now_s += 600
    run(engine, long_request())
    assert upstream.last.body["system"] == [marked | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    clock.now_s += 3601
    run(engine, long_request())
    assert "cache_control" not in json.dumps(upstream.last.body)
    for tenant in ("globex", "initech"):
        run(engine, long_request(tenant))
        assert "cache_control" not in json.dumps(upstream.last.body), "another tenant's habit is not this one's"


@pytest.mark.parametrize(("model", "marked"), [("claude-sonnet-4-5", True), ("claude-haiku-4-5", False), ("x", False)])
def test_anthropic_minimum_sizes_are_kept(
    model: str, marked: bool, make_engine: MakeEngine, upstream: Upstream
) -> None:
    engine = make_engine("anthropic", model=model)
    for _ in range(3):
        run(engine, long_request())
    assert ("cache_control" in json.dumps(upstream.last.body)) == marked


def body_request(body: dict[str, Any], stable: int | None = None) -> Request:
    turns = [Message("system", LONG)] + [Message(turn["role"], "x") for turn in body["messages"]]
    return Request(tuple(turns), dialect="anthropic.messages", body=body, stable_messages=stable)


def test_breakpoints_in_a_body_of_its_own(make_engine: MakeEngine, upstream: Upstream) -> None:
    engine = make_engine("anthropic", model="claude-sonnet-4-5")
    turns = [{"role": "user", "content": "read this"}, {"role": "assistant", "content": "done"}]
    question = {"role": "user", "content": [{"type": "text", "text": "where"}]}
    body = {"model": "m", "max_tokens": 9, "system": LONG, "messages": [*turns, question]}
    before = json.dumps(body)
    for _ in range(2):
        run(engine, body_request(body, stable=3))
    got = upstream.last.body
    assert [block["cache_control"] for block in got["system"]] == [{"type": "ephemeral"}]
    assert got["messages"][1]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert (got["messages"][0], got["messages"][2]) == (turns[0], question)
    assert json.dumps(got).count("cache_control") == 2 <= provider_caches().anthropic.max_breakpoints
    assert json.dumps(body) == before, "the caller's body is the caller's"
    tools = [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}, "description": LONG}]
    without_system = {key: value for key, value in body.items() if key != "system"} | {"tools": tools}
    for _ in range(2):
        request = Request((Message("user", "where"),), dialect="anthropic.messages", body=without_system)
        run(engine, request)
    assert [("cache_control" in tool) for tool in upstream.last.body["tools"]] == [False, True]


OWN = [
    {"system": [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
    {"cache_control": {"type": "ephemeral"}},
]


@pytest.mark.parametrize("own", OWN, ids=["block", "request"])
def test_a_callers_own_breakpoints_are_left_alone(
    own: dict[str, Any], make_engine: MakeEngine, upstream: Upstream
) -> None:
    engine = make_engine("anthropic", model=None)
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": LONG, **own}
    body["messages"] = [{"role": "user", "content": "where"}]
    for _ in range(3):
        run(engine, body_request(body))
        assert upstream.last.body == body


def test_a_callers_own_words_are_left_alone(make_engine: MakeEngine, upstream: Upstream) -> None:
    own = {"cache_salt": "mine", "prompt_cache_key": "mine", "prompt_cache_retention": "in_memory"}
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "where"}], **own}
    request = Request((Message("system", LONG), Message("user", "where")), dialect="openai.chat", body=body)
    for provider in ("vllm", "openai"):
        run(make_engine(provider=provider, model=None, long_lived_prefixes=True), request)
        assert sent(upstream) == own


def test_prompt_caching_can_be_switched_off(make_engine: MakeEngine, upstream: Upstream) -> None:
    for kind, options in (("openai", {"provider": "vllm"}), ("anthropic", {})):
        engine = make_engine(kind, prompt_caching=False, **options)
        for _ in range(3):
            run(engine, long_request())
        assert not any(name in json.dumps(upstream.last.body) for name in FIELDS)


def test_the_words_are_those_of_the_installed_clients() -> None:
    caches = provider_caches()
    fields = get_type_hints(CompletionCreateParamsBase)
    assert {"prompt_cache_key", "prompt_cache_retention"} <= set(fields)
    assert "24h" in str(fields["prompt_cache_retention"])
    ttls = get_args(get_type_hints(CacheControlEphemeralParam)["ttl"])
    assert {lifetime.ttl for lifetime in caches.anthropic.lifetimes} == set(ttls)
    assert "cache_control" in get_type_hints(MessageCreateParamsBase)
    assert caches.anthropic.max_breakpoints == 4
    assert caches.as_of


def test_stable_parts_are_remembered_within_bounds(clock: Clock) -> None:
    hints = PrefixHints(b"s", max_parts=3, clock=clock)
    for i in range(10):
        hints.hint(long_request(system=f"{i}"))
    assert len(hints._uses) == 3
    for _ in range(100):
        last = hints.hint(long_request(system="9"))
    assert last.reads_within(300) == 16, "more need not be known"
    assert inspect.isfunction(last.reads_within)
