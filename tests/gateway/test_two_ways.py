"""Whatever happens between requests, a gateway that takes the short way answers, counts and logs as one that never
does: two gateways, each on a home of its own, are led through the same steps."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachestack.access import AccessSettings, KeyStore, open_access
from cachestack.bodies.call import Call
from cachestack.bodies.offered import Models, Offered
from cachestack.build import _build, _logged
from cachestack.decisions import Response
from cachestack.entries import Selector
from cachestack.gateway.app import create_app
from cachestack.gateway.parsed import ParsedCalls
from cachestack.gateway.readiness import Readiness
from cachestack.observing.log_reader import LogReader
from cachestack.observing.request_log import REQUESTS_FOLDER
from cachestack.policy_set import PolicySet
from cachestack.requests import Generation, Piece, Request, Usage
from cachestack.stack import CacheStack
from cachestack.stores.disk import DiskStore

Step = tuple[Any, ...]
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
KEYS = (("acme", "ann", "boss"), ("acme", "bob", "hand"), ("lumiere", None, None))
POLICIES = (
    "{}",
    "default: {semantic: {walls: [user]}}",
    "default: {semantic: {walls: [role]}}",
    "default: {retention: {ttl_s: 30}}",
    "default: {semantic: {enabled: false}}",
    "default: {semantic: {max_temperature: 0.0}}",
    "default: {prices: {input_per_million: 2.0, output_per_million: 10.0}}",
    "{unknown_tenants: refuse, tenants: {acme: {}}}",
)
MORE: tuple[dict[str, Any], ...] = (
    {}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}, {"temperature": 0},
    {"temperature": 1.0}, {"max_tokens": 5}, {"max_tokens": 6}, {"seed": 0}, {"seed": False}, {"n": 2}, {"n": 1},
    {"x": 0}, {"x": 0.0}, {"x": False}, {"x": None}, {"user": "mallory"}, {"metadata": {"a": "b"}},
)  # fmt: skip
HEADERS: tuple[dict[str, str], ...] = (
    {}, {}, {}, {"cache-control": "no-cache"}, {"cache-control": "no-store"}, {"cache-control": "only-if-cached"},
    {"cache-control": "max-age=20"}, {"cache-control": "max-age=0"}, {"cache-control": "max-age=x"},
    {"x-cachestack-tags": "red"}, {"x-cachestack-ttl": "10"}, {"openai-beta": "new"}, {"anthropic-beta": "new"},
)  # fmt: skip


class Numbered:
    """Each answer is another one: what is served again can be told from what is made anew."""

    name, model = "numbered", ""

    def __init__(self) -> None:
        self.num_calls = 0

    def stream(self, request: Request) -> Any:
        self.num_calls += 1
        text = f"Answer {self.num_calls}"
        yield cast(Piece, text)
        limit = request.sampling.max_new_tokens
        return Generation(text, "length" if limit == 5 else "stop", Usage(7, 2, self.num_calls))


class World:
    def __init__(self, home: Path, *, short: bool) -> None:
        self.now_s, self.home = 1_000_000.0, home
        self.engine = Numbered()
        self.stack = _build(CacheStack, {"numbered": self.engine}, "none", None, home, lambda: self.now_s)
        _logged(self.stack, home, wanted=True, with_text=False)
        self.keys = KeyStore(home)
        self.secrets = [self.keys.create(tenant, user=user, role=role) for tenant, user, role in KEYS]
        models = Models((Offered("numbered", "", ("*",)),))
        parsed = ParsedCalls() if short else _ReadsAll()
        access = open_access(AccessSettings(), home)
        self.app = create_app(self.stack, models, access, Readiness(), parsed=parsed)
        if not short:
            self.stack.again = lambda *_: None  # type: ignore[method-assign]
        self.elsewhere = DiskStore(home / "entries", lambda: self.now_s)
        self.hit_ids: list[str] = []

    async def ask(self, step: Step) -> Any:
        _, path, question, who, more, headers = step
        secret = self.secrets[who][0]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://localhost") as http:
            return self.told(
                await http.post(path, json=body_of(path, question, more), headers={**headers, "x-api-key": secret})
            )

    def told(self, answer: httpx.Response) -> Any:
        hit_id, trace = answer.headers.get("x-cachestack-hit-id"), answer.headers["x-cachestack-trace"]
        if hit_id is not None and hit_id not in self.hit_ids:
            self.hit_ids.append(hit_id)
        number = None if hit_id is None else self.hit_ids.index(hit_id)
        text = re.sub(r'"created(_at)?":[\d.]+', "", answer.text.replace(trace, "TRACE"))
        return answer.status_code, answer.headers["cache-status"], number, re.sub("[0-9a-f]{24}", "ID", text)

    async def do(self, step: Step) -> Any:
        match step:
            case ("ask", *_):
                return await self.ask(step)
            case ("wait", seconds):
                self.now_s += seconds
            case ("policies", text):
                self.stack.policies = PolicySet.parse(text, "a test")
            case ("invalidate", conditions):
                return self.stack.invalidate(**conditions)
            case ("elsewhere", conditions):
                return self.elsewhere.invalidate(Selector(**conditions))
            case ("remove", number):
                return self.hit_ids and self.elsewhere.invalidate(
                    Selector(entry_id=self.hit_ids[number % len(self.hit_ids)])
                )
            case ("raise", tenant, user):
                self.keys.raise_epoch(tenant, user=user)
                await asyncio.sleep(0.3)  # keys are looked at four times a second
            case ("revoke", who):
                self.keys.revoke(self.secrets[who][0])
                await asyncio.sleep(0.3)
        return None

    def counted(self) -> Mapping[str, Any]:
        found = self.stack.stats().as_dict()["tenants"]
        timed = ("latency_s", "ttft_s", "per_token_s", "seconds_saved")
        return {tenant: {k: v for k, v in stats.items() if k not in timed} for tenant, stats in found.items()}

    def logged(self) -> list[Any]:
        lines = [
            {k: v for k, v in line.items() if k not in ("at_s", "seconds", "request_id", "hit_id")}
            for line in LogReader(self.home / REQUESTS_FOLDER).new()
        ]
        for line in lines:
            for step in line["steps"]:
                del step["seconds"]
                step["detail"] = {
                    k: v for k, v in step["detail"].items() if k not in ("entry_id", "ttft_s", "decode_s", "saved_s")
                }
        return lines

    def close(self) -> None:
        self.stack.close()
        self.elsewhere.close()
        self.keys.close()


class _ReadsAll(ParsedCalls):
    def get(self, given: Any, body: bytes) -> Call | None:
        return None


def body_of(path: str, question: str, more: Mapping[str, Any]) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "/v1/completions": {"prompt": question},
        "/v1/responses": {"input": question},
    }.get(path, {"messages": [{"role": "user", "content": question}]})
    limit = {"max_tokens": 99} if path == "/v1/messages" else {}
    return {"model": "m-1", **asked, **limit, **more}


questions = st.sampled_from(["Why?", "Wie?", "Caf\u00e9?", "Cafe\u0301?", "Why? "])
asks = st.tuples(
    st.just("ask"), st.sampled_from(PATHS), questions, st.sampled_from(range(len(KEYS))),
    st.sampled_from(MORE), st.sampled_from(HEADERS),
)  # fmt: skip
hot = st.tuples(
    st.just("ask"), st.just(PATHS[0]), st.just("Why?"), st.sampled_from((0, 0, 1)), st.just({}),
    st.sampled_from(HEADERS[:9]),
)  # fmt: skip
events = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.5, 9.0, 25.0, 1e7, -30.0, -1e4])),
    st.tuples(st.just("policies"), st.sampled_from(POLICIES)),
    st.tuples(st.just("invalidate"), st.sampled_from([{"tenant": "acme"}, {"tag": "red"}, {"older_than": 5.0}])),
    st.tuples(st.just("elsewhere"), st.sampled_from([{"tenant": "acme"}, {"user": "ann"}, {"tag": "red"}])),
    st.tuples(st.just("remove"), st.integers(0, 9)),
)
steps = st.lists(st.one_of(hot, hot, hot, asks, asks, events), min_size=5, max_size=40)


def compare(taken: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        worlds = [World(Path(one), short=True), World(Path(other), short=False)]
        try:
            asyncio.run(_compare(worlds, taken))
            assert worlds[0].counted() == worlds[1].counted()
            assert worlds[0].logged() == worlds[1].logged()
        finally:
            for world in worlds:
                world.close()


async def _compare(worlds: list[World], taken: list[Step]) -> None:
    for number, step in enumerate(taken):
        short, long = [await world.do(step) for world in worlds]
        assert short == long, (number, step)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_the_short_way_is_the_long_way(taken: list[Step]) -> None:
    compare(taken)


def test_it_is_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared above does take it."""
    ask: Step = ("ask", PATHS[0], "Why?", 0, {}, {})
    found: list[Response | None] = []
    again = CacheStack.again

    def noted(*given: Any) -> Response | None:
        found.append(again(*given))
        return found[-1]

    monkeypatch.setattr(CacheStack, "again", noted)
    compare([ask] * 5)
    assert sum(response is not None for response in found) == 3  # asked, read by a thread, then


def test_rights_that_are_taken_away() -> None:
    ask: Step = ("ask", PATHS[0], "Why?", 0, {}, {})
    other: Step = ("ask", PATHS[0], "Why?", 1, {}, {})
    compare([ask, ask, ask, ("raise", "acme", "ann"), ask, ask, ask, other, ("revoke", 0), ask, other])


@pytest.mark.parametrize("headers", HEADERS[3:], ids=str)
def test_wishes_hold_where_the_short_way_is_open(headers: dict[str, str]) -> None:
    """The entry is at hand, and the call was read before, each time that the wish is spoken."""
    plain: Step = ("ask", PATHS[0], "Why?", 0, {}, {})
    wish: Step = ("ask", PATHS[0], "Why?", 0, {}, headers)
    compare([plain, plain, wish, plain, plain, wish, plain, wish, ("wait", 25.0), wish, plain, plain, wish])
