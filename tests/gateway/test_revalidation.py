"""The gateway serves a stale answer at once and makes a new one in the background, within the policy's limits."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest

from cachestack.build import build_on
from cachestack.entries import Selector
from cachestack.policy_set import PolicySet
from cachestack.requests import Generation, Piece, Request, Usage
from cachestack.stack import CacheStack
from tests.gateway.served import WAIT_S, ScriptedEngine, Served, chat

POLICY = (
    "default: {retention: {ttl_s: 100}, freshness: {stale_while_revalidate_s: 1000}, limits: {tokens_per_minute: 35}}"
)
URL = "/v1/chat/completions"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Gated(ScriptedEngine):
    """Numbers its answers; all but the first wait for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.begun = threading.Event(), threading.Event()
        self.say = self._say

    def _say(self, request: Request) -> Generator[Piece | Generation, None, None]:
        number = self.num_calls
        if number > 1:
            self.begun.set()
            assert self.gate.wait(WAIT_S)
        yield f"answer {number}"
        yield Generation(f"answer {number}", usage=Usage(10, 0, 10))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gated() -> Iterator[Gated]:
    engine = Gated()
    yield engine
    engine.gate.set()


@pytest.fixture
def served(gated: Gated, clock: Clock, tmp_path: Path) -> Iterator[Served]:
    stack = build_on(
        CacheStack, {"scripted": gated}, encoder="none", policies=PolicySet.parse(POLICY, "test"), home=tmp_path
    )
    stack._clock = stack.performer._clock = stack._runs._clock = clock
    object.__setattr__(stack._pipeline, "clock", clock)
    with Served.on(stack) as gateway:
        yield gateway


def text_of(answer: httpx.Response) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


def test_a_stale_answer_is_served_and_the_new_one_is_charged(served: Served, gated: Gated, clock: Clock) -> None:
    question = chat("How do I reset my password?")
    with served.http() as http:
        assert text_of(http.post(URL, json=question)) == "answer 1"
        clock.now_s += 200
        old = http.post(URL, json=question)
        assert (text_of(old), old.headers["cache-status"]) == ("answer 1", "CacheStack; hit; detail=stale")
        assert gated.begun.wait(WAIT_S)
        assert text_of(http.post(URL, json=question)) == "answer 1", "nobody waits for the new one"
        streamed = http.post(URL, json=question | {"stream": True})
        assert "answer 1" in streamed.text.replace('"}', "")
        gated.gate.set()
        assert served.gateway.stack.revalidations.wait(WAIT_S)
        assert gated.num_calls == 2
        assert [entry.answer for entry in served.gateway.stack.performer.store.select(Selector())] == ["answer 2"]
        refused = http.post(URL, json=chat("Who wrote Middlemarch?"))
        assert refused.status_code == 429, "40 tokens were charged: the first answer, and the new one"


def test_a_client_that_takes_nothing_old_waits_for_the_new_one(served: Served, gated: Gated, clock: Clock) -> None:
    question = chat("How do I reset my password?")
    gated.gate.set()
    with served.http() as http:
        http.post(URL, json=question)
        clock.now_s += 200
        fresh = http.post(URL, json=question, headers={"cache-control": "max-age=150"})
    assert text_of(fresh) == "answer 2"


def test_a_gateway_that_ends_takes_its_background_work_along(gated: Gated, clock: Clock, served: Served) -> None:
    question = chat("How do I reset my password?")
    with served.http() as http:
        http.post(URL, json=question)
        clock.now_s += 200
        http.post(URL, json=question)
        assert gated.begun.wait(WAIT_S)
    assert not served.gateway.stack.revalidations.wait(0)
    served.gateway.stop()
    served._thread.join(WAIT_S)
    assert not served._thread.is_alive()
    assert served.gateway.stack.revalidations.wait(0)
