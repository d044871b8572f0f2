"""A scripted upstream: a real HTTP server in a thread that speaks OpenAI's and Anthropic's dialects.

::

    with Upstream() as upstream:
        upstream.script(error(429, retry_after="1"), Call(text="Paris."))   # the next two calls, in order
        OpenAI(base_url=upstream.base_url, api_key="x").chat.completions.create(...)
        assert upstream.requests[0].body["model"] == ...
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import uvicorn

from tests.upstream import anthropic_shapes, openai_shapes, responses_shapes
from tests.upstream.answers import Answer, answer_to
from tests.upstream.calls import OWN, WAIT_S, Call, Gate, Seen
from tests.upstream.openai_shapes import DONE, Event

Whole = Callable[[Seen, Call, Answer], dict[str, Any]]
Events = Callable[[Seen, Call, Answer], Iterator[Event]]
CHATS: Mapping[str, tuple[Whole, Events]] = {
    "/v1/chat/completions": (openai_shapes.chat, openai_shapes.chat_events),
    "/v1/completions": (openai_shapes.completion, openai_shapes.completion_events),
    "/v1/responses": (responses_shapes.response, responses_shapes.response_events),
    "/v1/messages": (anthropic_shapes.message, anthropic_shapes.message_events),
}
MODELS = ("scripted", "scripted-large")
DIMENSIONS = 8


class Cut(Exception):
    """The connection is to end here, without its answer."""


class Upstream:
    """`requests`: all calls seen, in order. `num_cancelled`: calls whose client left before the answer was whole."""

    def __init__(self, default: Call | None = None) -> None:
        self.default = default or Call()
        self.requests: list[Seen] = []
        self.num_cancelled = 0
        self._changed = threading.Condition()
        self._script: deque[Call] = deque()
        # with its protocol said, or asyncio does not switch off Nagle's algorithm on what it accepts
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self.root_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.base_url = self.root_url + "/v1"
        config = uvicorn.Config(
            self._app, interface="asgi3", log_level="critical", lifespan="off", timeout_graceful_shutdown=0
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="scripted-upstream", daemon=True)

    def script(self, *calls: Call) -> None:
        """What the next calls are answered with, in order; after them `default` holds again."""
        with self._changed:
            self._script.extend(calls)

    @property
    def last(self) -> Seen:
        return self.requests[-1]

    def bodies(self, path: str = "") -> list[Any]:
        """The bodies of the calls whose path ends so."""
        return [seen.body for seen in self.requests if seen.path.endswith(path)]

    def wait_for(self, true: Callable[[Upstream], bool], timeout_s: float = WAIT_S) -> None:
        """Until something holds of what was seen: `upstream.wait_for(lambda u: u.num_cancelled == 1)`."""
        with self._changed:
            assert self._changed.wait_for(lambda: true(self), timeout_s), "it did not come to hold"

    def __enter__(self) -> Upstream:
        self._socket.listen(1024)  # from here on calls wait in the queue, however late the thread begins
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(WAIT_S)
        self._socket.close()
        assert not self._thread.is_alive(), "the scripted upstream did not stop"

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self._socket]))

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        seen = await self._see(scope, receive)
        answering = asyncio.ensure_future(self._answer(seen, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                with self._changed:
                    self.num_cancelled += 1
                    self._changed.notify_all()
        finally:
            for task in (answering, leaving):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Cut):
                await answering  # a Cut: uvicorn closes the connection of an answer that is not whole

    async def _see(self, scope: Any, receive: Any) -> Seen:
        raw = b""
        while True:
            message = await receive()
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        with self._changed:
            seen = Seen(len(self.requests) + 1, scope["method"], scope["path"], headers, body)
            self.requests.append(seen)
            self._changed.notify_all()
        return seen

    async def _answer(self, seen: Seen, send: Any) -> None:
        with self._changed:
            call = self._script.popleft() if self._script else self.default
        if call.before is not None:
            await call.before.passed()
        if call.cut_at is not None and not seen.streams:
            await _start(send, 200, {"content-type": "application/json", "content-length": "1000"})
            raise Cut
        if call.body is not OWN or call.status != 200:
            body = {"error": {"message": "scripted", "type": "server_error"}} if call.body is OWN else call.body
            return await _send_whole(send, call.status, body, call.headers)
        if seen.path in CHATS and isinstance(seen.body, Mapping):
            whole, events = CHATS[seen.path]
            answer = answer_to(seen, call)
            if seen.streams:
                return await _send_events(send, call, events(seen, call, answer))
            return await _send_whole(send, 200, whole(seen, call, answer), call.headers)
        if seen.path == "/v1/embeddings" and isinstance(seen.body, Mapping):
            return await _send_whole(send, 200, _embeddings(seen.body), call.headers)
        if seen.path == "/v1/models":
            data = [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "tests"} for name in MODELS]
            return await _send_whole(send, 200, {"object": "list", "data": data}, call.headers)
        await _send_whole(send, 404, {"error": {"message": f"no {seen.path}", "type": "not_found_error"}}, {})


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_whole(send: Any, status: int, body: Any, headers: Mapping[str, str]) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"content-type": "application/json", "content-length": str(len(raw)), **headers}
    await _start(send, status, fields)
    await send({"type": "http.response.body", "body": raw})


async def _send_events(send: Any, call: Call, events: Iterator[Event]) -> None:
    """`cut_at` and its like count events from 0, each before the event of that number is sent."""
    await _start(send, 200, {"content-type": "text/event-stream", **call.headers})
    for i, (name, data) in enumerate(events):
        if call.pause is not None and i == call.pause[0]:
            await call.pause[1].passed()
        if i == call.cut_at:
            raise Cut
        if i == call.ends_at:
            break
        text = data if data == DONE else json.dumps(data)
        if i == call.malformed_at:
            text = text[: len(text) // 2]
        if i == call.error_at:
            name = None if name is None else "error"
            text = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "scripted"}})
        head = "" if name is None else f"event: {name}\n"
        await send({"type": "http.response.body", "body": f"{head}data: {text}\n\n".encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _start(send: Any, status: int, headers: Mapping[str, str]) -> None:
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})


def _embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    given = body.get("input", "")
    texts: Sequence[Any] = given if isinstance(given, list) else [given]
    data = []
    for i, text in enumerate(texts):
        raw = hashlib.sha256(str(text).encode()).digest()[:DIMENSIONS]
        vector: Any = [byte / 255 for byte in raw]
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *vector)).decode()
        data.append({"object": "embedding", "index": i, "embedding": vector})
    num_tokens = sum(len(str(text).split()) for text in texts)
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": data, "model": body.get("model", "scripted"), "usage": usage}


__all__ = ["Call", "Gate", "Seen", "Upstream"]
