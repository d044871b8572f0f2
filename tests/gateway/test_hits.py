"""An exact hit that goes the short way is told, counted and checked as any other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from cachestack.asked_again import Reading
from cachestack.bodies.replays import Replay
from cachestack.decisions import Response
from cachestack.driver import drive
from cachestack.engines.base import exhaust
from cachestack.engines.functions import FunctionEngine
from cachestack.gateway.wire import dump
from cachestack.policy_set import PolicySet
from cachestack.requests import Message, Request
from cachestack.tracing import TraceBuilder
from tests.gateway.served import ANSWER, ScriptedEngine, Served, chat, says

PRICED = "default: {prices: {input_per_million: 2.0, output_per_million: 10.0}, walls: {}}"


def test_hits_differ_in_what_names_the_request_and_in_nothing_else(scripted: Served, http: httpx.Client) -> None:
    answers = [http.post("/v1/chat/completions", json=chat("Which?")) for _ in range(6)]
    bodies = [answer.json() for answer in answers]
    ids = [body.pop("id") for body in bodies]
    assert len(set(ids)) == 6
    assert ids == [f"chatcmpl-{answer.headers['x-cachestack-trace']}" for answer in answers]
    for body in bodies:
        body.pop("created"), body.pop("usage")
    assert all(body == bodies[0] for body in bodies)
    hits = answers[1:]
    assert {hit.headers["cache-status"] for hit in hits} == {"CacheStack; hit; detail=exact"}
    assert len({hit.headers["x-cachestack-hit-id"] for hit in hits}) == 1


def test_every_hit_is_counted_under_many_at_once(scripted: Served, engine: ScriptedEngine) -> None:
    ready = threading.Barrier(8)

    def ask(_: int) -> list[str]:
        with scripted.http() as http:
            ready.wait()
            texts = [http.post("/v1/chat/completions", json=chat(f"Which {n % 5}?")).json() for n in range(50)]
        return [text["choices"][0]["message"]["content"] for text in texts]

    with ThreadPoolExecutor(8) as threads:
        texts = [text for found in threads.map(ask, range(8)) for text in found]
    assert set(texts) == {ANSWER}
    stats = scripted.gateway.stack.stats().by_tenant["default"]
    assert stats.requests == 400
    assert stats.semantic.num_hits + stats.engine_calls + stats.shared_calls == 400
    assert engine.num_calls == stats.engine_calls == 5


def test_what_was_invalidated_is_not_served_again(scripted: Served, http: httpx.Client, engine: ScriptedEngine) -> None:
    for _ in range(3):
        http.post("/v1/chat/completions", json=chat("Which?"))
    engine.say = says("Another answer.")
    scripted.gateway.stack.invalidate(tenant="default")
    answer = http.post("/v1/chat/completions", json=chat("Which?")).json()
    assert answer["choices"][0]["message"]["content"] == "Another answer."


def test_other_policies_hold_at_once(scripted: Served, http: httpx.Client, engine: ScriptedEngine) -> None:
    for _ in range(3):
        http.post("/v1/chat/completions", json=chat("Which?"))
    scripted.gateway.stack.policies = PolicySet.parse("default: {semantic: {enabled: false}}", "a test")
    assert "hit" not in http.post("/v1/chat/completions", json=chat("Which?")).headers["cache-status"]
    assert engine.num_calls == 2


def test_the_short_way_tells_what_the_pipeline_tells(scripted: Served, engine: ScriptedEngine) -> None:
    stack = scripted.gateway.stack
    request, reading = Request((Message("user", "Which?"),), model="scripted-1"), Reading()
    stack.respond(request, engine)

    def piped() -> Response:
        run, engines = stack.open_run(request, engine, TraceBuilder("x", "default"), reading)
        return exhaust(drive(run, stack.performer, engines, streams=False))

    assert stack.again(request, engine, TraceBuilder("x", "default"), reading) is None, "it was not read before"
    stack.performer.find_exact_at_once(*_looked_up(request))
    whole, short = piped(), None
    short = stack.again(request, engine, TraceBuilder("x", "default"), reading)
    assert short is not None
    assert (short.text, short.usage, short.finish_reason, short.hit_id) == (
        whole.text, whole.usage, whole.finish_reason, whole.hit_id,
    )  # fmt: skip
    told = [
        [(s.layer, s.outcome, s.reason, dict(s.detail) | {"age_s": 0}) for s in r.trace.steps] for r in (whole, short)
    ]
    assert told[0] == told[1]
    other = FunctionEngine("other", "other-1", lambda: "no")
    assert stack.again(request, other, TraceBuilder("x", "default"), reading) is None


def test_observers_are_told_of_the_request_as_it_came(scripted: Served, engine: ScriptedEngine) -> None:
    """Not of what was filled in: a span says what the caller asked for."""
    stack, told = scripted.gateway.stack, []
    stack.observe(lambda ended: told.append(ended.request))
    request, reading = Request((Message("user", "Which?"),)), Reading()
    for _ in range(3):
        if stack.again(request, engine, TraceBuilder("x", "default"), reading) is None:
            run, engines = stack.open_run(request, engine, TraceBuilder("x", "default"), reading)
            exhaust(drive(run, stack.performer, engines, streams=False))
        stack.performer.find_exact_at_once(*_looked_up(request))
    assert stack.again(request, engine, TraceBuilder("x", "default"), reading) is not None
    assert len(told) == 4
    assert all(one is request for one in told)


def _looked_up(request: Request) -> tuple:
    from cachestack.keys import Partition as Wall
    from cachestack.keys import contract_of, exact_key

    wall = Wall("default")
    return wall, exact_key(wall, contract_of(request, "scripted-1"), request.question)


def test_a_replay_is_made_anew_for_another_entry_and_another_second(monkeypatch: pytest.MonkeyPatch) -> None:
    from cachestack.bodies import replays

    now_s = 100.5
    monkeypatch.setattr(replays.time, "time", lambda: now_s)
    replay, made = Replay(), []

    def body(trace_id: str, text: str, hit_id: str | None) -> bytes:
        response = Response(text, TraceBuilder(trace_id, "t").trace(), hit_id=hit_id)

        def make() -> bytes:
            made.append(trace_id)
            return dump({"id": f"c-{trace_id}", "created": int(now_s), "text": text})

        return replay.body(response, make)

    text = "The answer."
    assert body("a" * 24, text, "e1") == b'{"id":"c-%s","created":100,"text":"The answer."}' % (b"a" * 24)
    assert body("b" * 24, text, "e1") == b'{"id":"c-%s","created":100,"text":"The answer."}' % (b"b" * 24)
    assert len(made) == 1
    body("c" * 24, text, "e2")
    now_s = 101.5
    assert b"101" in body("d" * 24, text, "e2")
    body("e" * 24, "".join(["The ", "answer."]), "e2")
    assert [one[0] for one in made] == ["a", "c", "d", "e"]
    assert body("f" * 24, text, None)
    assert made[-1][0] == "f"


def test_a_long_answer_is_not_kept_as_bytes_too() -> None:
    replay, made = Replay(), []
    response = Response("long " * 4000, TraceBuilder("a" * 24, "t").trace(), hit_id="e1")

    def make() -> bytes:
        made.append(1)
        return response.text.encode()

    assert replay.body(response, make) == replay.body(response, make) == response.text.encode()
    assert len(made) == 2
