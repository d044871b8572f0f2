"""Other caches on the same exact hits, beside ours: `python benchmarks/peers.py [--json]`.

Each peer gets an environment of its own, made by pip in a folder that is removed at the end. What cannot be installed
or started is reported with the reason. GPTCache installs packages while it runs, into whatever pip is first on PATH:
it is run with a PATH that has nothing on it, and without a package index.

Over HTTP (ours, LiteLLM's proxy): 16 connections, by turns, the same client, questions and upstream as `cachestack
bench gateway`. In the process (ours, GPTCache, LangChain's caches): one look-up after the other, by a script of a few
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
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from cachestack.bench.gateway_client import Address, ask_one, load, run
from cachestack.bench.gateway_material import MODEL, Prepared, chat_request, kept_question
from cachestack.bench.gateway_servers import Server, gateway, scripted_upstream
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


def _is_ready(address: Address) -> bool:
    probe = Prepared(b"GET /health/liveliness HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", "")
    try:
        return run(partial(ask_one, address, probe)).status == 200
    except OSError:
        return False


def over_http(folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    kept = [chat_request(kept_question(number)) for number in range(NUM_KEPT)]
    found: dict[str, Any] = {}
    with ExitStack() as opened:
        upstream = opened.enter_context(scripted_upstream())
        sides = {"CacheStack gateway": opened.enter_context(gateway(folder, upstream)).address}
        try:
            python = environment(folder / "litellm", ["litellm[proxy]"])
            sides["LiteLLM proxy, cache in memory"] = opened.enter_context(litellm_proxy(folder, python, upstream))
        except NotMeasured as error:
            found["LiteLLM proxy, cache in memory"] = {"not_measured": str(error)}
        loads: dict[str, list[Any]] = {name: [] for name in sides}
        for address in sides.values():
            run(partial(load, address, kept, 1, num_requests=NUM_KEPT))
        for turn in range(rounds):
            for name in list(sides)[:: 1 if turn % 2 else -1]:
                loads[name].append(run(partial(load, sides[name], kept, CONNECTIONS, seconds=seconds)))
        for name, measured in loads.items():
            times = sorted(one for part in measured for one in part.latencies_s)
            found[name] = {
                "per_s": median(part.per_second for part in measured),
                "p50_ms": 1000 * times[len(times) // 2],
                "p99_ms": 1000 * times[int(len(times) * 0.99)],
                "wrong": sum(part.num_wrong for part in measured),
            }
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
    print(table(document["in_process"], "in the process"), end="\n\n")
    machine = document["machine"]
    print(f"{machine['cpu']}, {machine['cores']} cores, load average {machine['load_average']}.")


if __name__ == "__main__":
    main()
