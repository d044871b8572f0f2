"""Other caches on the same exact hits, beside ours: `python benchmarks/peers.py [--json]`.

Each peer gets an environment of its own, made by pip in a folder that is removed at the end. What cannot be installed
or started is reported with the reason. GPTCache installs packages while it runs, into whatever pip is first on PATH:
it is run with a PATH that has nothing on it, and without a package index.

Over HTTP (ours, LiteLLM's proxy): 16 connections, by turns, the same client, questions and upstream as `cachestack
bench gateway`. Beside them two routes that cache nothing and always answer the same: Starlette's, as in that benchmark,
and FastAPI's, which reads the body as JSON and answers with as many bytes of it, on the same uvicorn; ours is given as
a share of each. In the process (ours, GPTCache, LangChain's caches): one look-up after the other, by a script of a few
lines for each, run in the peer's environment.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from cachestack.bench.gateway_client import Address, Load, ask_one, load, run
from cachestack.bench.gateway_material import MODEL, Prepared, chat_request, kept_question
from cachestack.bench.gateway_servers import BARE_MARK, Server, bare, gateway, scripted_upstream
from cachestack.bench.machine import server_machine

CONNECTIONS = 16
NUM_KEPT = 100
READY_S = 120.0
INSTALL_S = 900.0

IN_PROCESS = """
import json, sys, time
kept = [(f"How is part {n:05d} cleaned", f"This answers part {n:05d}. " + "It is said so in the manual. " * 14)
        for n in range(100)]
times, wrong = [], 0
# SETUP
for q, a in kept:
    put(q, a)
until, number = time.perf_counter() + float(sys.argv[1]), -200
while time.perf_counter() < until:
    question, answer = kept[number % 100]
    began = time.perf_counter()
    found = get(question)
    took = time.perf_counter() - began
    wrong += found != answer
    if number >= 0:
        times.append(took)
    number += 1
times.sort()
print(json.dumps({"per_s": len(times) / sum(times), "p50_ms": 1000 * times[len(times) // 2],
                  "p99_ms": 1000 * times[int(len(times) * 0.99)], "wrong": wrong}))
"""
OURS = """
import tempfile
from cachestack import CacheStack
stack = CacheStack.without_engine(encoder="none", home=tempfile.mkdtemp(dir=sys.argv[2]))
answers = {}
ask = stack.wrap(tenant="peers", model="scripted")(lambda prompt: answers[prompt])
def put(q, a):
    answers[q] = a
    ask(q)
    del answers[q]
get = ask
"""
GPTCACHE = """
from gptcache import Cache
from gptcache.adapter import api
from gptcache.manager import get_data_manager
from gptcache.processor.pre import get_prompt
cache = Cache()
cache.init(pre_embedding_func=get_prompt, data_manager=get_data_manager(data_path=sys.argv[2] + "/map.txt"))
put = lambda q, a: api.put(q, a, cache_obj=cache)
get = lambda q: api.get(q, cache_obj=cache)
"""
_LANGCHAIN = """
from langchain_core.outputs import Generation
put = lambda q, a: cache.update(q, "scripted", [Generation(text=a)])
def get(q):
    found = cache.lookup(q, "scripted")
    return found and found[0].text
"""
LANGCHAIN_MEMORY = "from langchain_core.caches import InMemoryCache\ncache = InMemoryCache()" + _LANGCHAIN
LANGCHAIN_SQLITE = (
    "from langchain_community.cache import SQLiteCache\ncache = SQLiteCache(sys.argv[2] + '/cache.db')" + _LANGCHAIN
)
FASTAPI = """
import socket, sys
from typing import Any
import uvicorn
from fastapi import FastAPI
app = FastAPI()
answer = {"mark": sys.argv[1], "filler": ""}
answer["filler"] = "." * (int(sys.argv[2]) - len(str(answer).replace(" ", "")))  # as JSON is written

@app.post("/v1/chat/completions")
async def answered(body: dict[str, Any]) -> dict[str, str]:
    return answer

taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
taken.bind(("127.0.0.1", 0))
taken.listen(2048)
print(taken.getsockname()[1], flush=True)
config = uvicorn.Config(app, http="httptools", loop="uvloop", ws="none", access_log=False, log_level="warning")
uvicorn.Server(config).run(sockets=[taken])
"""
OUR_GATEWAY, STARLETTE, FASTAPI_ROUTE = (
    "CacheStack gateway",
    "no cache: a bare route of Starlette",
    "no cache: of FastAPI",
)
LITELLM = "LiteLLM proxy, cache in memory"
SCRIPTED_PEERS = {
    "GPTCache, exact, a map in memory": (("gptcache",), GPTCACHE),
    "LangChain InMemoryCache": (("langchain-core",), LANGCHAIN_MEMORY),
    "LangChain SQLiteCache": (("langchain-community",), LANGCHAIN_SQLITE),
}


class NotMeasured(Exception):
    """Why a peer could not be measured."""


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """The interpreter of a new environment with these packages. Raises NotMeasured with pip's last words."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"pip was not done after {INSTALL_S:g} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise NotMeasured(f"pip: {' '.join(said)[:400]}")
    return python


def apart(folder: Path) -> dict[str, str]:
    """Environment variables for a peer: no pip, no index, no telemetry, a home of its own."""
    kept = {name: os.environ[name] for name in ("LANG", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    own = {"PATH": str(empty), "HOME": str(folder), "PIP_NO_INDEX": "1", "PIP_REQUIRE_VIRTUALENV": "1"}
    more = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
        "NO_PROXY": "127.0.0.1",
    }
    more["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"  # on loopback, for these minutes
    return kept | own | more


def in_process(python: Path, setup: str, folder: Path, seconds: float, environ: dict[str, str]) -> dict[str, Any]:
    script = folder / "peer.py"
    script.write_text(IN_PROCESS.replace("# SETUP", setup), encoding="utf-8")
    command = [str(python), str(script), str(seconds), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=120 + seconds, check=False)
    if done.returncode:
        raise NotMeasured(f"it does not run: {' '.join(done.stderr.split())[-400:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def litellm_proxy(folder: Path, python: Path, upstream: Server) -> Iterator[Address]:
    """Its proxy with its cache in memory, one worker."""
    given = {"model": f"openai/{MODEL}", "api_base": f"{upstream.url}/v1", "api_key": "none"}
    cache = {"cache": True, "cache_params": {"type": "local"}}
    config = {"model_list": [{"model_name": MODEL, "litellm_params": given}], "litellm_settings": cache}
    file = folder / "litellm.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", free.getsockname()[1])
    command = [
        str(python.parent / "litellm"),
        "--config",
        str(file),
        "--host",
        address.host,
        "--port",
        str(address.port),
    ]
    log = (folder / "litellm.log").open("w+", encoding="utf-8")
    with log, subprocess.Popen(command, env=apart(folder), stdout=log, stderr=log) as process:
        try:
            until = time.monotonic() + READY_S
            while not _is_ready(address):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise NotMeasured(f"it does not start: {' '.join(log.read().split())[-400:]}")
                time.sleep(0.5)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def fastapi_route(folder: Path, num_bytes: int) -> Iterator[Address]:
    """On the uvicorn, httptools and uvloop that this environment has."""
    same = [f"{name}=={version(name)}" for name in ("uvicorn", "httptools", "uvloop")]
    python = environment(folder / "fastapi", ["fastapi", *same])
    script = folder / "fastapi.py.txt"
    script.write_text(FASTAPI, encoding="utf-8")
    command = [str(python), str(script), BARE_MARK.decode(), str(num_bytes)]
    with subprocess.Popen(command, env=apart(folder), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None, "it has a pipe"
            port = process.stdout.readline().strip()
            if not port:
                raise NotMeasured("it does not start")
            yield Address("127.0.0.1", int(port))
        finally:
            process.terminate()


def _is_ready(address: Address) -> bool:
    probe = Prepared(b"GET /health/liveliness HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", "")
    try:
        return run(partial(ask_one, address, probe)).status == 200
    except OSError:
        return False


def over_http(folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    kept = [chat_request(kept_question(number)) for number in range(NUM_KEPT)]
    for_bare = [Prepared(request.data, BARE_MARK.decode()) for request in kept]
    found: dict[str, Any] = {}
    with ExitStack() as opened:
        upstream = opened.enter_context(scripted_upstream())
        ours = opened.enter_context(gateway(folder, upstream)).address
        run(partial(load, ours, kept, 1, num_requests=NUM_KEPT))
        num_bytes = len(run(partial(ask_one, ours, kept[0])).body)
        sides = {OUR_GATEWAY: (ours, kept), STARLETTE: (opened.enter_context(bare(num_bytes)).address, for_bare)}
        try:
            sides[FASTAPI_ROUTE] = opened.enter_context(fastapi_route(folder, num_bytes)), for_bare
        except NotMeasured as error:
            found[FASTAPI_ROUTE] = {"not_measured": str(error)}
        try:
            python = environment(folder / "litellm", ["litellm[proxy]"])
            sides[LITELLM] = opened.enter_context(litellm_proxy(folder, python, upstream)), kept
        except NotMeasured as error:
            found[LITELLM] = {"not_measured": str(error)}
        loads: dict[str, list[Load]] = {name: [] for name in sides}
        for address, requests in sides.values():
            run(partial(load, address, requests, 1, num_requests=NUM_KEPT))
        for turn in range(rounds):
            for name in list(sides)[:: 1 if turn % 2 else -1]:
                address, requests = sides[name]
                loads[name].append(run(partial(load, address, requests, CONNECTIONS, seconds=seconds)))
    for name, measured in loads.items():
        times = sorted(one for part in measured for one in part.latencies_s)
        found[name] = {
            "per_s": median(part.per_second for part in measured),
            "p50_ms": 1000 * times[len(times) // 2],
            "p99_ms": 1000 * times[int(len(times) * 0.99)],
            "wrong": sum(part.num_wrong for part in measured),
        }
        if name in (STARLETTE, FASTAPI_ROUTE):  # a ratio is taken within a round
            both = zip(loads[OUR_GATEWAY], measured, strict=True)
            found[name]["ours_as_share"] = median(own.per_second / part.per_second for own, part in both)
    return found


def measure(folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    inside: dict[str, Any] = {}
    ours = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent), "OMP_NUM_THREADS": "1"}
    inside["CacheStack, on disk, the whole answer"] = in_process(Path(sys.executable), OURS, folder, seconds, ours)
    for number, (name, (packages, setup)) in enumerate(SCRIPTED_PEERS.items()):
        own = folder / f"peer{number}"
        try:
            python = environment(own / "venv", packages)
            inside[name] = in_process(python, setup, own, seconds, apart(own))
        except NotMeasured as error:
            inside[name] = {"not_measured": str(error)}
    return {
        "machine": server_machine().to_json(),
        "connections": CONNECTIONS,
        "over_http": over_http(folder, seconds, rounds),
        "in_process": inside,
    }


def table(found: dict[str, Any], what: str) -> str:
    lines = [f"| {what} | hits/s | p50 ms | p99 ms | wrong |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, of in found.items():
        if "not_measured" in of:
            lines.append(f"| {name} | not measured: {of['not_measured']} | | | |")
        else:
            lines.append(f"| {name} | {of['per_s']:,.0f} | {of['p50_ms']:.3f} | {of['p99_ms']:.3f} | {of['wrong']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each side in each round")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="cachestack-peers-") as folder:
        document = measure(Path(folder), given.seconds, given.rounds)
    if given.json:
        print(json.dumps(document, indent=2))
        return
    print(table(document["over_http"], f"over HTTP, {CONNECTIONS} connections"), end="\n\n")
    shares = {name: of["ours_as_share"] for name, of in document["over_http"].items() if "ours_as_share" in of}
    print("; ".join(f"ours as a share of {name}: {share:.2f}" for name, share in shares.items()), end="\n\n")
    print(table(document["in_process"], "in the process"), end="\n\n")
    machine = document["machine"]
    print(f"{machine['cpu']}, {machine['cores']} cores, load average {machine['load_average']}.")


if __name__ == "__main__":
    main()
