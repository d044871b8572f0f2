"""A body of megabytes is one caller's: nobody else waits for it to be read."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from cachestack import pipeline
from cachestack.gateway.dialects.openai_chat import OpenAIChat
from cachestack.gateway.stack_port import StackPort
from tests.gateway.served import ANSWER, ScriptedEngine, Served, chat

PATH = "/v1/chat/completions"


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_body_is_read_beside_the_event_loop(
    scripted: Served, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    seen: list[tuple[str, threading.Thread]] = []

    def noting(name: str, work: Any) -> Any:
        def noted(*given: Any, **named: Any) -> Any:
            seen.append((name, threading.current_thread()))
            return work(*given, **named)

        return noted

    monkeypatch.setattr(OpenAIChat, "parse", noting("read", OpenAIChat.parse))
    monkeypatch.setattr(pipeline, "contract_of", noting("keys", pipeline.contract_of))
    monkeypatch.setattr(StackPort, "begin", noting("begin", StackPort.begin))
    answers = [http.post(PATH, json=chat("Which?", x=["words"] * 20_000, stream=stream)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert [answer.headers["cache-status"] for answer in answers[1:]] == ["CacheStack; hit; detail=exact"] * 2
    assert stream or {answer.json()["choices"][0]["message"]["content"] for answer in answers} == {ANSWER}
    (loop,) = {thread for name, thread in seen if name == "begin"}
    assert {name for name, thread in seen if thread is not loop} == {"read", "keys"}
    assert {name for name, thread in seen if thread is loop} == {"begin"}


def test_others_are_answered_meanwhile(
    scripted: Served, http: httpx.Client, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, go_on = threading.Event(), threading.Event()
    parse = OpenAIChat.parse

    def slowly(dialect: OpenAIChat, body: dict[str, Any], given: Any) -> Any:
        if "x" in body:
            reads.set()
            assert go_on.wait(30)
        return parse(dialect, body, given)

    monkeypatch.setattr(OpenAIChat, "parse", slowly)
    found: list[httpx.Response] = []
    long = threading.Thread(target=lambda: found.append(http.post(PATH, json=chat("Long?", x="y" * 100_000))))
    long.start()
    assert reads.wait(30)
    with scripted.http() as other:
        assert other.post(PATH, json=chat("Short?")).status_code == 200
    go_on.set()
    long.join()
    assert found[0].status_code == 200
