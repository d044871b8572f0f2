"""`cachestack top`: frames from two readings, one frame, and a live view that leaves the terminal as it was."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.cli.top import ALL, WINDOW_S, frames, table_of
from cachestack.histogram import bucket
from cachestack.stats import Stats
from cachestack.stores.sums import SumsFile


def counted(requests: int, hits: int, seconds: float = 0.1) -> Counter[str]:
    return Counter(
        {
            "requests": requests,
            "semantic.hit.exact": hits,
            "semantic.miss.no_entry": requests - hits,
            f"latency_s.{bucket(seconds)}": requests,
            "tokens.replayed": 10 * hits,
        }
    )


def take(readings, num: int, interval_s: float = 2.0):
    now, given = [0.0], iter(readings)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    made = frames(lambda: next(given), interval_s, sleep=sleep, clock=lambda: now[0])
    return [next(made) for _ in range(num)]


def test_a_frame_shows_what_came_between_two_readings():
    (frame,) = take([{"a": counted(100, 0, 9.0)}, {"a": counted(100, 0, 9.0) + counted(20, 15), "b": counted(4, 4)}], 1)
    assert frame.seconds == 2.0
    assert (frame.recent["a"].requests, frame.total["a"].requests) == (20, 120)
    assert frame.recent["a"].semantic.hit_rate == 0.75
    assert frame.recent["a"].latency_s.p99 == pytest.approx(0.1, rel=0.06), "what was before does not count"
    assert frame.recent[ALL].requests == 24
    assert list(frame.total) == [ALL, "a", "b"]
    assert frame.as_dict()["tenants"]["a"]["requests_per_s"] == 10.0
    assert frame.as_dict()["all"]["recent"]["requests"] == 24
    json.dumps(frame.as_dict())


def test_the_window_slides():
    readings = [{"a": counted(10 * number, 0)} for number in range(101)]
    *_, last = take(readings, 100)
    assert last.seconds == WINDOW_S
    assert last.recent["a"].requests == 10 * WINDOW_S / 2


def test_statistics_that_were_begun_anew_do_not_count_backwards():
    (frame,) = take([{"a": counted(100, 50)}, {"a": counted(3, 1)}], 1)
    assert frame.recent["a"].requests == 3


def test_a_table_of_nothing_and_of_many():
    (empty,) = take([{}, {}], 1)
    assert table_of(empty).row_count == 1
    (many,) = take([{}, {f"t{n}": counted(n, 0) for n in range(50)}], 1)
    table = table_of(many)
    assert table.row_count == 30
    assert table.caption is not None
    assert str(table.caption).endswith("; and 21 more tenants")


def record(folder: Path, requests: int) -> None:
    stats = Stats(SumsFile(folder / "stats"))
    stats.count("acme", requests=requests, semantic__hit__exact=requests)
    stats.close()


def test_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    record(tmp_path, 1234)
    assert main(["top", "--once", "--interval", "0.05", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tenants"]["acme"]["total"]["requests"] == 1234
    assert main(["top", "--once", "--interval", "0.05"]) == 0
    out = capsys.readouterr().out
    assert "acme" in out
    assert "1,234" in out
    assert main(["top", "--interval", "0"]) == 2


def test_a_pipe_gets_a_line_a_frame(tmp_path):
    record(tmp_path, 5)
    command = [sys.executable, "-m", "cachestack", "top", "--json", "--interval", "0.05"]
    environment = os.environ | {"CACHESTACK_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as top:
        assert top.stdout is not None
        for _ in range(2):
            assert json.loads(top.stdout.readline())["tenants"]["acme"]["total"]["requests"] == 5
        top.send_signal(signal.SIGINT)
        _, err = top.communicate(timeout=30)
    assert (top.returncode, err) == (130, "interrupted\n")


def test_ctrl_c_leaves_a_clean_terminal(tmp_path):
    pty = pytest.importorskip("pty")
    record(tmp_path, 777)
    ours, theirs = pty.openpty()
    environment = os.environ | {
        "CACHESTACK_HOME": str(tmp_path), "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40",
    }  # fmt: skip
    command = [sys.executable, "-m", "cachestack", "top", "--interval", "0.05"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as top:
        os.close(theirs)
        seen = read_until(ours, b"777")
        assert b"\x1b[?1049h" in seen, "the other screen"
        top.send_signal(signal.SIGINT)
        seen = read_until(ours, b"interrupted")
        assert top.wait(30) == 130
    os.close(ours)
    after = seen[seen.rindex(b"\x1b[?1049l") :]
    assert b"\x1b[?25h" in seen, "the cursor is back"
    assert b"777" not in after


def read_until(fd: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([fd], [], [], 60)
        assert ready, f"nothing came but {seen!r}"
        seen += os.read(fd, 65_536)
    return seen
