"""`cachestack serve` as it is called: ready in time, answers curl, ends with Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cachestack.bench.gateway_servers import scripted_upstream
from cachestack.cli.app import main
from cachestack.errors import ConfigError
from cachestack.gateway.config import load_config
from cachestack.stack import CacheStack

READY_S = 30.0


def test_without_a_configuration_it_serves_the_embedded_model_and_ends_cleanly(
    llm_path: Path, encoder_path: Path, models_dir: Path, tmp_path: Path
) -> None:
    environ = {**os.environ, "CACHESTACK_MODELS": str(models_dir), "CACHESTACK_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cachestack", "serve", "--port", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            listens, attempt = (process.stdout.readline() for _ in range(2))
            url = re.search(r"http://127\.0\.0\.1:\d+", listens)[0]
            assert "engine local (smollm2-135m-instruct) · no key is needed" in listens
            assert attempt.startswith(f"Try: curl {url}/v1/chat/completions")
            assert process.stderr.readline() == "ready\n"
            if shutil.which("curl"):
                assert curl(f"{url}/readyz") == {"status": "ready"}
                asked = json.dumps({"model": "smollm2-135m-instruct", "prompt": "Hello!", "max_tokens": 3})
                assert curl(f"{url}/v1/completions", "-d", asked)["usage"]["completion_tokens"] == 3
        finally:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_what_was_counted_is_written_however_it_is_told_to_end(tmp_path: Path, ending: signal.Signals) -> None:
    """The last hits too, which are counted in memory for a second."""
    with scripted_upstream() as upstream:
        engine = {"kind": "openai", "base_url": f"{upstream.url}/v1", "model": "scripted"}
        file = tmp_path / "gateway.json"
        file.write_text(json.dumps({"encoder": "none", "engines": {"up": engine}}))
        command = [sys.executable, "-m", "cachestack", "serve", "--port", "0", "--config", str(file)]
        environ = {**os.environ, "CACHESTACK_HOME": str(tmp_path / "home")}
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
            try:
                url = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
                body = {"model": "scripted", "messages": [{"role": "user", "content": "Hello?"}]}
                answers = [httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60) for _ in range(4)]
                assert [answer.status_code for answer in answers] == [200] * 4
            finally:
                process.send_signal(ending)
                process.wait(30)
    assert process.returncode == 0
    with CacheStack.without_engine(encoder="none", home=tmp_path / "home") as stack:
        stats = stack.stats().by_tenant["default"]
    assert (stats.requests, stats.semantic.hits) == (4, {"exact": 3})


def curl(*arguments: str) -> dict:
    done = subprocess.run(["curl", "-sS", "--max-time", "60", *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot: 1", "prot: unknown key; allowed: host, port"),
        ("port: 99999", "port"),
        ("- a", "must map names to values"),
        ("port: [", "not valid YAML"),
        ("engines: {a: {kind: other}}", "engines.a.kind"),
        ("engines: {a: {kind: local, colour: red}}", "engines.a.colour: unknown key"),
        ("engines: {a: {kind: openai, base_url: 'ftp://x'}}", "base_url"),
        ("auth: {jwt: {}}", "auth.jwt"),
        ("policies: nowhere.yaml", "nowhere.yaml does not exist"),
        ("host: 0.0.0.0", "there are no keys"),
        ("host: 192.0.2.1", "there are no keys"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "500")
    file = tmp_path / "gateway.yaml"
    file.write_text(text + "\n")
    port = [] if text.startswith("port") else ["--port", "0"]
    assert main(["serve", *port, "--config", str(file)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err


def test_an_address_that_is_taken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert main(["serve", "--port", str(other.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


def test_options_come_before_variables_and_those_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("host: '::1'\nport: 1\nencoder: none\nhome: state\nauth:\nengines:\n")
    environ = {"CACHESTACK_CONFIG": str(file), "CACHESTACK_PORT": "2", "CACHESTACK_HOST": "localhost"}
    config = load_config(None, environ, host="127.0.0.1", port=None)
    assert (config.host, config.port, config.encoder, config.home) == ("127.0.0.1", 2, "none", tmp_path / "state")
    with pytest.raises(ConfigError, match="CACHESTACK_PORT: port"):
        load_config(None, {"CACHESTACK_PORT": "many"})
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(tmp_path / "none.yaml", {})


def test_a_model_that_is_not_there_ends_it_with_the_way_to_get_it(tmp_path: Path) -> None:
    environ = {**os.environ, "CACHESTACK_MODELS": str(tmp_path / "none"), "CACHESTACK_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cachestack", "serve", "--port", "0"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "cachestack models pull" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
