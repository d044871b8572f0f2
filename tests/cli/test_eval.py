"""`cachestack eval pairs` from the outside."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cachestack.cli.app import build_app, main
from cachestack.corpus import load_questions, pairs_of
from cachestack.errors import MissingExtra

ROWS = [
    {"id": "1", "a": "a cat", "b": " a cat ", "same_answer": True, "category": "repeat"},
    {"id": "2", "a": "a cat", "b": "a dog", "same_answer": False, "category": "entity"},
    {"id": "3", "a": "a cat", "b": "the cat", "same_answer": True, "category": "article"},
]


KEYS = {"should_hit", "traps", "by_category", "by_language", "decided_by", "decided_by_kind", "ms_per_decision"}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, stdin: str = "") -> Done:
    """One command line, as the shell would have it, in this process; without a model."""
    out, err, real = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8")))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            status = main(["eval", *map(str, arguments), "--encoder", "none"])
    finally:
        sys.stdin = real
    return Done(status, out.getvalue(), err.getvalue())


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
    assert set(counted) == KEYS
    half, none = pytest.approx([0.0945, 0.9055], abs=5e-5), pytest.approx([0, 0.7935], abs=5e-5)
    assert counted["should_hit"] == {"n": 2, "served": 1, "rate": 0.5, "interval": half}
    assert counted["traps"] == {"n": 1, "served": 0, "rate": 0, "interval": none}
    entity = {"n": 1, "served": 0, "rate": 0.0, "interval": none, "should_hit": False}
    assert counted["by_category"]["entity"] == entity
    assert counted["decided_by"] == {"no_encoder": 2, "exact": 1}
    assert set(counted["ms_per_decision"]) == {"median", "p95"}
    assert all(set(shares) == {"should_hit", "traps"} for shares in counted["by_language"].values())
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


def test_pairs_come_from_standard_input_too(file: Path) -> None:
    done = run("pairs", "-", "--json", stdin=file.read_text(encoding="utf-8"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"]["-"]["should_hit"]["n"] == 2
    twice = run("pairs", "-", "-", stdin="")
    assert (twice.returncode, twice.stdout) == (2, "")
    assert "can be read once" in twice.stderr


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    path = tmp_path / "policies.yaml"
    path.write_text("default: {}\ntenants:\n  acme: {semantic: {enabled: false}}\n  beta: {}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "served"), [("default", 1), ("beta", 1), ("acme", 0)])
def test_a_tenants_policy_by_name(file: Path, policies: Path, name: str, served: int) -> None:
    command = ["eval", "pairs", str(file), "--encoder", "none", "--json", "--policies", str(policies), "--policy", name]
    result = CliRunner().invoke(build_app(), command)
    assert json.loads(result.stdout)["files"][str(file)]["should_hit"]["served"] == served


def test_a_policy_that_is_not_there_is_an_error_with_the_names(file: Path, policies: Path) -> None:
    done = run("pairs", file, "--policies", policies, "--policy", "gamma")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'gamma'" in done.stderr
    assert "default, acme, beta" in done.stderr
    both = run("pairs", file, "--policies", policies, "--policy", "acme", "--tenant", "beta")
    assert (both.returncode, both.stdout) == (2, "")


def test_a_policy_file_and_its_tenant(file: Path, policies: Path) -> None:
    for tenant, served in (("acme", 0), ("beta", 1)):
        done = run("pairs", file, "--policy", policies, "--tenant", tenant, "--json")
        assert json.loads(done.stdout)["files"][str(file)]["should_hit"]["served"] == served


def test_two_halves_make_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    rows = [{"a": f"question {n}", "b": f"question {n}", "same_answer": n % 2 == 0} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    halves = {}
    for half in "ab":
        command = ["eval", "pairs", str(path), "--encoder", "none", "--json", "--only-half", half, "--seed", "3"]
        halves[half] = json.loads(CliRunner().invoke(build_app(), command).stdout)["files"][str(path)]
    for kind in ("should_hit", "traps"):
        assert halves["a"][kind]["n"] + halves["b"][kind]["n"] == 20
        assert min(halves[half][kind]["n"] for half in "ab") > 0
    assert run("pairs", path, "--seed", "3").returncode == 2


def test_a_sweep_is_a_picture_a_table_and_json(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "sweep.png"
    command = ["eval", "pairs", str(file), "--encoder", "none", "--sweep", str(picture)]
    table = CliRunner().invoke(build_app(), command)
    assert table.exit_code == 0, table.output
    assert "cosine alone" in table.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(CliRunner().invoke(build_app(), [*command, "--json"]).stdout)["files"][str(file)]["sweep"]
    assert set(found) == {"policy", "score", "cosine"}
    [only_exact] = found["score"]["points"]
    assert (only_exact["threshold"], only_exact["served"], only_exact["wrong"]) == (None, 0.5, 0)
    assert set(found["score"]["served_at"]) == {"0.01", "0.02", "0.05"}


def test_without_matplotlib_a_sweep_says_which_extra(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(build_app(), ["eval", "pairs", str(file), "--encoder", "none", "--sweep", "x.png"])
    assert isinstance(result.exception, MissingExtra)
    assert "cachestack[plot]" in str(result.exception)


def test_the_corpus_needs_no_file(tmp_path: Path) -> None:
    done = run("corpus", "--json")
    [(name, counted)] = json.loads(done.stdout)["files"].items()
    assert name == "cachestack-pairs/validation"
    pairs = list(pairs_of(load_questions("validation")))
    assert counted["should_hit"]["n"] == sum(pair["same_answer"] for pair in pairs)
    assert counted["traps"]["n"] == sum(not pair["same_answer"] for pair in pairs)
    assert set(counted["by_language"]) == {"en", "fr"}


def test_of_the_test_part_nobody_gets_the_texts(tmp_path: Path) -> None:
    done = run("corpus", "--split", "test", "--mistakes", tmp_path / "texts.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / "texts.jsonl").exists()
