"""`cachestack eval pairs` from the outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cachestack.cli.app import build_app

ROWS = [
    {"id": "1", "a": "a cat", "b": " a cat ", "same_answer": True, "category": "repeat"},
    {"id": "2", "a": "a cat", "b": "a dog", "same_answer": False, "category": "entity"},
    {"id": "3", "a": "a cat", "b": "the cat", "same_answer": True, "category": "article"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def test_json_is_one_document(file: Path, tmp_path: Path) -> None:
    errors = tmp_path / "errors.jsonl"
    command = ["eval", "pairs", str(file), "--encoder", "none", "--json", "--errors", str(errors)]
    result = CliRunner().invoke(build_app(), command)
    assert result.exit_code == 0, result.output
    counted = json.loads(result.stdout)["files"][str(file)]
    assert counted["should_hit"] == {"n": 2, "served": 1, "rate": 0.5}
    assert counted["traps"] == {"n": 1, "served": 0, "rate": 0}
    assert counted["by_category"]["entity"] == {"n": 1, "served": 0, "rate": 0.0, "should_hit": False}
    [missed] = [json.loads(line) for line in errors.read_text(encoding="utf-8").splitlines()]
    assert (missed["id"], missed["mistake"], missed["reason"]) == ("3", "missed", "no_encoder")


def test_a_table_for_people(file: Path) -> None:
    result = CliRunner().invoke(build_app(), ["eval", "pairs", str(file), "--encoder", "none", "--limit", "1"])
    assert result.exit_code == 0, result.output
    assert "should be served" in result.stdout
    assert "100.0%" in result.stdout


def test_a_policy_file_is_used(file: Path, tmp_path: Path) -> None:
    policy = tmp_path / "off.yaml"
    policy.write_text("default: {semantic: {enabled: false}}", encoding="utf-8")
    command = ["eval", "pairs", str(file), "--encoder", "none", "--json", "--policy", str(policy)]
    counted = json.loads(CliRunner().invoke(build_app(), command).stdout)["files"][str(file)]
    assert counted["should_hit"]["served"] == 0


def test_a_malformed_line_is_an_error_with_its_place(file: Path) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write("{broken\n")
    result = CliRunner().invoke(build_app(), ["eval", "pairs", str(file), "--encoder", "none"])
    assert result.exit_code != 0
    assert f"{file}:4" in f"{result.exception}{result.output}"


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b"\xff\xfe\x00", b"{}", b"[]", b'{"a": 1, "b": "x", "same_answer": true}', b""]
)
def test_what_is_no_pair_is_an_error_and_no_traceback(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "bad.jsonl").write_bytes(line + b"\n")
    command = [
        sys.executable,
        "-m",
        "cachestack",
        "eval",
        "pairs",
        str(tmp_path / "bad.jsonl"),
        "--encoder",
        "none",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("as_json", [True, False])
def test_half_a_surrogate_pair_is_written_as_json_writes_it(tmp_path: Path, as_json: bool) -> None:
    row = {"a": "\ud800 cat", "b": "\ud800 dog", "same_answer": True, "category": "\udfff"}
    (tmp_path / "odd.jsonl").write_text(json.dumps(row) + "\n")
    command = [sys.executable, "-m", "cachestack", "eval", "pairs", str(tmp_path / "odd.jsonl"), "--encoder", "none"]
    command += ["--errors", str(tmp_path / "errors.jsonl"), *(["--json"] if as_json else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads((tmp_path / "errors.jsonl").read_text(encoding="utf-8"))["a"] == row["a"]
    if as_json:
        [counted] = json.loads(done.stdout)["files"].values()
        assert list(counted["by_category"]) == ["\udfff"]
    else:
        assert "\\udfff" in done.stdout
