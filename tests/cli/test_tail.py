"""`cachestack tail`: what was logged, and what comes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from cachestack.cli.app import main
from cachestack.cli.tail import following, shown
from cachestack.decisions import Layer, Outcome, Reason, Response, Step, Trace
from cachestack.observers import Ended
from cachestack.observing.log_reader import LogReader
from cachestack.observing.request_log import RequestLog, line_of
from cachestack.requests import Message, Request, Usage


def ended(number: int, tenant: str = "acme", *, fails: bool = False) -> Ended:
    steps = (Step(Layer.SEMANTIC, Outcome.HIT, Reason.EXACT),)
    trace = Trace(f"id-{number}", tenant, () if fails else steps, 0.0123)
    response = None if fails else Response("answer", trace, Usage(5, 5, 3))
    request = Request((Message("user", "a \x1b[2J question"),), tenant=tenant)
    return Ended(request, trace, response, ValueError("no") if fails else None, 1_000_000.0 + number)


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    return RequestLog(tmp_path / "requests")


def test_the_last_ones_of_a_tenant(log, capsys):
    for number in range(6):
        log(ended(number, "acme" if number % 2 else "other"))
    assert main(["tail", "--tenant", "acme", "--num", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [line["request_id"] for line in document["requests"]] == ["id-3", "id-5"]
    assert document["skipped_lines"] == 0
    assert main(["tail"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(word in lines[-1] for word in ("acme", "exact", "12.3 ms", "5+3", "id-5"))
    assert main(["tail", "--num", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == []


def test_without_a_log_it_says_how_to_have_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    assert main(["tail"]) == 2
    assert "request_log=True" in capsys.readouterr().err


def test_a_line_shows_failures_and_does_not_steer_the_terminal():
    line = shown(line_of(ended(1, "ac\x1b[31mme", fails=True), with_text=True))
    assert "\x1b" not in line
    assert "failed" in line
    assert "ValueError" in line
    assert "question" in line


def test_damaged_lines_are_named(log, tmp_path, capsys):
    log(ended(1))
    with (tmp_path / "requests" / "00000001.jsonl").open("a") as file:
        file.write("{torn\n")
    assert main(["tail"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "1 lines of the log could not be read" in err


def test_following_gives_what_comes(log, tmp_path):
    reader = LogReader(tmp_path / "requests")
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        log(ended(len(waits)))

    lines = following(reader, sleep)
    assert [next(lines)["request_id"] for _ in range(3)] == ["id-1", "id-2", "id-3"]


@pytest.mark.parametrize("json_lines", [False, True])
def test_following_a_real_log_until_ctrl_c(log, tmp_path, json_lines):
    log(ended(1))
    command = [sys.executable, "-m", "cachestack", "tail", "--follow", *(["--json"] if json_lines else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "id-1" in process.stdout.readline()
        log(ended(2))
        line = process.stdout.readline()
        assert "id-2" in line
        assert not json_lines or json.loads(line)["tenant"] == "acme"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
