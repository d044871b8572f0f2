"""`cachestack eval answers` and `cachestack corpus answers` from the outside, and the counts by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachestack.answers import Sameness
from cachestack.cli.app import main
from cachestack.corpus import load_answers
from cachestack.evaluation.answers import Compared, LabelledAnswers, summarise_answers

ROWS = [
    {"question": "Price?", "x": "40 euros", "y": "40 €", "same": True, "kind": "format", "language": "fr"},
    {"question": "Price?", "x": "40 euros", "y": "50 euros", "same": False, "kind": "number"},
    {"x": "It is closed because of a flood.", "y": "It is closed because of work.", "same": False, "kind": "[odd]"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def test_one_document(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.jsonl"
    assert main(["eval", "answers", str(file), "--json", "--mistakes", str(wrong)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["labelled_same"]["same"]["count"] == 1
    assert found["labelled_different"]["different"]["count"] == 1
    assert found["unknown"]["count"] == 1
    assert found["by"]["numeric"]["right"] == 2
    assert [json.loads(line)["kind"] for line in wrong.read_text("utf-8").splitlines()] == ["[odd]"]


def test_tables(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "answers", str(file), "--limit", "3"]) == 0
    out = capsys.readouterr().out
    assert "[odd] (different)" in out
    assert "wrongly the same" in out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON"),
        ("[1]", "must be an object"),
        ('{"x": "a", "y": "b"}', "same must be true or false"),
        ('{"x": 1, "y": "b", "same": true}', "x must be a text"),
        ('{"x": "a", "y": "b", "same": true, "question": 1}', "question must be a text"),
        ("", "holds no pairs"),
    ],
)
def test_bad_files(line: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line, encoding="utf-8")
    assert main(["eval", "answers", str(path)]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_missing_file_and_half_a_judge(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "answers", str(tmp_path / "none.jsonl")]) == 2
    assert main(["eval", "answers", str(file), "--judge-url", "http://127.0.0.1:1"]) == 2
    assert "--judge" in capsys.readouterr().err


def test_shares_by_hand() -> None:
    def compared(label: bool, same: bool | None) -> Compared:
        return Compared(LabelledAnswers(None, "x", "y", label, "k", "en", ""), Sameness(same, "meaning", 0.5), 1.0)

    some = [compared(True, True)] * 3 + [compared(True, False)] + [compared(False, True)] + [compared(False, None)] * 3
    found: dict[str, Any] = summarise_answers(some)
    assert found["wrong_same"]["rate"] == 0.25
    assert found["wrong_different"]["rate"] == 0.25
    assert found["unknown"]["rate"] == 3 / 8
    assert found["wrong_of_called_same"]["rate"] == 0.25
    assert found["by"]["meaning"] == {"right": 3, "wrong_same": 1, "wrong_different": 1, "unknown": 3}


def test_the_corpus_has_pairs_of_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpus", "answers", "--part", "test"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == [pair.id for pair in load_answers("test")]
    pairs = load_answers()
    assert len({pair.id for pair in pairs}) == len(pairs) >= 700
    parts: dict[str, set[str]] = {}
    for pair in pairs:
        parts.setdefault(pair.question, set()).add(pair.part)
    assert all(len(part) == 1 for part in parts.values())
    french = sum(pair.language == "fr" for pair in pairs) / len(pairs)
    assert 0.25 < french < 0.4
