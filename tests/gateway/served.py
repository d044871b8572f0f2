"""A gateway in a thread, and an engine that does as a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import httpx

from cachestack.access import Authenticator, OpenAuthenticator
from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.engines import offered
from cachestack.gateway.server import Gateway
from cachestack.requests import Generation, Piece, Request, Usage
from cachestack.stack import CacheStack

WAIT_S = 30.0
Script = Callable[[Request], Generator[Piece | Generation, None, None]]
ANSWER = "The answer is forty-two, and it is always so."


class ScriptedEngine:
    """A text engine. `say`: from a request to what is streamed, a Generation as the last item; or an error, raised."""

    name = "scripted"

    def __init__(self, model: str = "scripted-1") -> None:
        self.model = model
        self.requests: list[Request] = []
        self.closed = threading.Event()
        self.say: Script = says(ANSWER)

    def stream(self, request: Request) -> Generator[Piece, None, Generation]:
        self.requests.append(request)
        try:
            for item in self.say(request):
                if isinstance(item, Generation):
                    return item
                yield item
        except GeneratorExit:
            self.closed.set()
            raise
        raise AssertionError("a script ends with a Generation")

    @property
    def num_calls(self) -> int:
        return len(self.requests)


def says(text: str, **figures: Any) -> Script:
    """The text word by word."""

    def say(request: Request) -> Generator[Piece | Generation, None, None]:
        words = text.split(" ")
        for number, word in enumerate(words):
            yield word if number == 0 else f" {word}"
        yield Generation(text, usage=Usage(7, 2, len(words)), **figures)

    return say


def fails(
    error: Exception, after: tuple[str, ...] = ()
) -> Callable[[Request], Generator[Piece | Generation, None, None]]:
    def say(request: Request) -> Generator[Piece | Generation, None, None]:
        yield from after
        raise error

    return say


class Served:
    """A gateway that listens until the `with` block ends."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        gateway.open()
        self._thread = threading.Thread(target=gateway.serve, name="gateway under test")

    @staticmethod
    def on(
        stack: CacheStack, authenticator: Authenticator | None = None, config: GatewayConfig | None = None
    ) -> Served:
        engines = [offered(name, stack.engine(name)) for name in stack.engine_names]
        return Served(Gateway(config or GatewayConfig(port=0), stack, engines, authenticator or OpenAuthenticator()))

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def model(self) -> str:
        return self.gateway.models.listed[0]

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=WAIT_S)

    def __enter__(self) -> Served:
        self._thread.start()
        assert self.gateway.readiness.wait(120), "the models are not loaded after two minutes"
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.stop()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the gateway does not end"


def chat(question: str, **more: Any) -> dict[str, Any]:
    return {"model": "scripted-1", "messages": [{"role": "user", "content": question}], **more}


def eventually(true: Callable[[], bool], timeout_s: float = WAIT_S) -> bool:
    """Whether it comes to hold; asked again whenever other threads have had a turn."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if true():
            return True
        threading.Event().wait(0.001)
    return False
