"""`cachestack eval log` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.evaluation.replay import LogReplay

ROWS = ["a cat", {"text": "a cat"}, {"text": "a dog"}, {"text": "a cat", "tenant": "acme"}]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "{broken\n", encoding="utf-8")
    return path


def run(*arguments: object) -> int:
    return main(["eval", "log", *map(str, arguments), "--encoder", "none"])


def test_json_is_one_document(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(log, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["hits"], found["repeats"]) == (4, {"exact": 1, "by_meaning": 0}, 1)
    assert (found["hit_rate"], found["tenants"], found["interrupted"]) == (0.25, 2, False)
    assert found["bad_lines"]["n"] == 1
    assert f"{log}:5" in found["bad_lines"]["first"][0]


def test_a_list_for_people_names_the_bad_lines(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(log) == 0
    said = capsys.readouterr()
    assert "1 (25.0%)" in said.out
    assert "log.jsonl:5" in said.err.replace("\n", "")


def test_the_limit_counts_requests(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(log, "--limit", 2, "--json") == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 2


def test_a_page_is_written(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(log, "--html", tmp_path / "page.html", "--json") == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run(log, "--html", tmp_path / "none" / "page.html") == 2


def test_where_no_line_is_a_request_it_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.jsonl").write_text('{"x": 1}\n{\n')
    assert run(tmp_path / "log.jsonl", "--json") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "none of its 2 lines" in said.err


def test_one_policy_for_all_tenants(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = tmp_path / "policies.yaml"
    policies.write_text("tenants: {quiet: {semantic: {enabled: false}}}", encoding="utf-8")
    assert run(log, "--policies", policies, "--policy", "quiet", "--json") == 0
    assert json.loads(capsys.readouterr().out)["decided_by"] == {"disabled": 4}
    assert run(log, "--policies", policies, "--policy", "loud") == 2
    assert "default, quiet" in capsys.readouterr().err


def test_ctrl_c_prints_what_was_found(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count = LogReplay._count

    def interrupted(self: LogReplay, *arguments: object) -> None:
        count(self, *arguments)
        if self.report.num_requests == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(LogReplay, "_count", interrupted)
    assert run(log, "--json") == 130
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["requests"], found["hits"]["exact"], found["interrupted"]) == (2, 1, True)
    assert "interrupted" in said.err
