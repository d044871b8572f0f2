"""The servers of `cachestack bench gateway`, each in a process of its own: the gateway as it is called, a bare route of
the same server, and a scripted upstream.

`python -m cachestack.bench.gateway_servers upstream`, or `bare NUM_BYTES`: prints where it listens.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cachestack.bench.gateway_client import Address
from cachestack.bench.gateway_material import CHAT, MODEL, answer_to
from cachestack.errors import EngineError
from cachestack.gateway.config import GatewayConfig
from cachestack.gateway.server import uvicorn_config

BARE_MARK = b"bare"
_MODULE = "cachestack.bench.gateway_servers"
_URL = re.compile(r"http://127\.0\.0\.1:\d+")
_STOP_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    address: Address
    url: str
    pid: int

    def resident_bytes(self) -> int | None:
        """What its process takes in memory now; None where the system does not tell."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, ValueError, IndexError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def gateway(folder: Path, upstream: Server) -> Iterator[Server]:
    """`cachestack serve`, matching exactly only, before the upstream."""
    engine = {"kind": "openai", "base_url": f"{upstream.url}/v1", "model": MODEL}
    config = {"encoder": "none", "home": str(folder / "home"), "engines": {"upstream": engine}}
    file = folder / "gateway.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    with _process(["-m", "cachestack", "serve", "--port", "0", "--config", str(file)]) as server:
        yield server


@contextmanager
def bare(num_bytes: int) -> Iterator[Server]:
    """A route of Starlette that reads the body and answers with as many bytes, always the same."""
    with _process(["-m", _MODULE, "bare", str(num_bytes)]) as server:
        yield server


@contextmanager
def scripted_upstream() -> Iterator[Server]:
    with _process(["-m", _MODULE, "upstream"]) as server:
        yield server


@contextmanager
def _process(arguments: Sequence[str]) -> Iterator[Server]:
    """Until the block ends. Raises EngineError with what it said where it does not listen."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CACHESTACK_")}
    environ |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None, "it has a pipe"
            first = process.stdout.readline()
            found = _URL.search(first)
            if found is None:
                raise EngineError(f"{' '.join(arguments)} does not listen; it said: {first.strip() or 'nothing'}")
            yield Server(Address.of(found[0]), found[0], process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def bare_app(num_bytes: int) -> Starlette:
    body = BARE_MARK.ljust(num_bytes, b".")

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route(CHAT, answer, methods=["POST"])])


async def upstream_app(scope: Any, receive: Any, send: Any) -> None:
    """Chat completions as OpenAI's, whole or as a stream of words, without any delay."""
    if scope["path"] != CHAT:  # a peer that looks around
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    asked = orjson.loads(body)
    text = answer_to(asked["messages"][-1]["content"])
    usage = {"prompt_tokens": 40, "completion_tokens": len(text.split()), "total_tokens": 40 + len(text.split())}
    head = {"id": "chatcmpl-scripted", "created": 1, "model": MODEL}
    if not asked.get("stream"):
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        whole = orjson.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        await send(_start(b"application/json", (b"content-length", str(len(whole)).encode())))
        await send({"type": "http.response.body", "body": whole})
        return
    await send(_start(b"text/event-stream"))
    head["object"] = "chat.completion.chunk"
    for word in re.findall(r"\s*\S+", text):
        await send({"type": "http.response.body", "body": _event(head, {"content": word}), "more_body": True})
    last = _event(head, {}, "stop") + _data({**head, "choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    await send({"type": "http.response.body", "body": last})


def _start(content_type: bytes, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type), *headers]}


def _event(head: dict[str, Any], delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    return _data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _data(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def streamed_text(body: bytes) -> str | None:
    """The text of a stream of chat completion chunks; None where it does not end as it should."""
    events = body.split(b"\n\n")
    if events[-2:] != [b"data: [DONE]", b""]:
        return None
    deltas = [json.loads(event.removeprefix(b"data: ")) for event in events[:-2]]
    return "".join(c["delta"].get("content") or "" for delta in deltas for c in delta["choices"])


def main(kind: str, *given: str) -> None:
    app: Any = upstream_app if kind == "upstream" else bare_app(int(given[0]))
    taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", 0))
    taken.listen(2048)
    print(f"http://127.0.0.1:{taken.getsockname()[1]}", flush=True)
    config = uvicorn_config(app, GatewayConfig(), lifespan="on" if kind == "bare" else "off")
    uvicorn.Server(config).run(sockets=[taken])


if __name__ == "__main__":
    main(*sys.argv[1:])
