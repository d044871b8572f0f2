"""A client that leaves: its request's work ends, and nothing of it is kept."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from cachestack.build import build_on
from cachestack.gateway.config import GatewayConfig
from cachestack.requests import Generation, Request
from cachestack.stack import CacheStack
from tests.gateway.served import WAIT_S, ScriptedEngine, Served, chat, eventually

PATH = "/v1/chat/completions"


class Held:
    """Says a word, and another each time it is let; until then it waits."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Semaphore(0)

    def __call__(self, request: Request) -> Iterator[str | Generation]:
        yield "One "
        while True:
            self.reached.set()
            assert self.go.acquire(timeout=WAIT_S), "nobody lets it go on"
            yield "more "


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_stops_the_engine_at_the_next_token(scripted: Served, engine: ScriptedEngine, stream: bool) -> None:
    held = Held()
    engine.say = held
    leaving = threading.Thread(target=_ask_and_leave, args=(scripted.url, stream, held.reached))
    leaving.start()
    leaving.join(WAIT_S)
    assert not leaving.is_alive()

    def goes_on_and_ends() -> bool:
        held.go.release()
        return engine.closed.is_set()

    assert eventually(goes_on_and_ends), "the engine goes on for somebody who has left"
    engine.say = ScriptedEngine().say
    with scripted.http() as http:
        assert http.post(PATH, json=chat("Why?")).headers["cache-status"] == "CacheStack; fwd=uri-miss; stored"


def _ask_and_leave(url: str, stream: bool, reached: threading.Event) -> None:
    if stream:
        asked = chat("Why?", stream=True)
        with httpx.Client(timeout=WAIT_S) as http, http.stream("POST", url + PATH, json=asked) as answer:
            next(answer.iter_bytes())
            assert reached.wait(WAIT_S)
        return
    host, port = url.removeprefix("http://").split(":")
    body = httpx.Request("POST", url + PATH, json=chat("Why?")).content
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert reached.wait(WAIT_S)


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_under_way_when_the_gateway_ends_is_told_so(
    engine: ScriptedEngine, tmp_path: Path, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    engine.say = held = Held()
    stack = build_on(CacheStack, {"scripted": engine}, encoder="none", policies=None, home=tmp_path)
    with ThreadPoolExecutor(1) as pool:
        with Served.on(stack, config=GatewayConfig(port=0, close_wait_s=0)) as served, served.http() as http:
            asked = pool.submit(http.post, PATH, json=chat("Why?", stream=stream))
            assert held.reached.wait(WAIT_S)
            served.gateway.stop()
            if stream:
                with pytest.raises(httpx.RemoteProtocolError):
                    asked.result(WAIT_S)
            else:
                assert asked.result(WAIT_S).status_code == 503
        held.go.release(2)
    assert "Traceback" not in caplog.text
