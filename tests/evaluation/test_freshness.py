"""`cachestack eval freshness`: labels of several kinds, shares, halves, the curve; what is held on others' data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cachestack.cli.app import main
from cachestack.errors import InputFileError
from cachestack.evaluation.freshness import in_half, judge_all, read_questions, summarise
from cachestack.policy import FreshnessPolicy, Policy

ROWS: list[dict[str, Any]] = [
    {"question": "Who wrote Middlemarch?", "changes": "never-changing"},
    {"question": "What is the score right now?", "changes": "fast", "language": "en"},
    {"question": "Qui est le maire de Nantes ?", "changes": "slow-changing", "language": "fr"},
    {"question": "who has the most medals of all time", "time_dependent": True},
    {"question": "when did the berlin wall fall", "time_dependent": False},
]
SHARED = Path(__file__).parents[2].parent / "shared/data"
NOW_S = 1_772_600_000.0


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_labels_of_several_kinds_are_counted(tmp_path: Path) -> None:
    found = summarise(judge_all(read_questions(write(tmp_path / "q.jsonl", ROWS)), Policy(), NOW_S))
    assert {label: of["n"] for label, of in found["by_label"].items()} == {
        "never": 2,
        "slow": 1,
        "fast": 1,
        "moving": 1,
    }
    assert {label: share["count"] for label, share in found["cached_long"].items()} == {
        "fast": 0,
        "slow": 0,
        "moving": 0,
    }
    assert found["never"]["refused"]["count"] == found["never"]["shortened"]["count"] == 0
    assert set(found["by_language"]) == {"unknown", "en", "fr"}
    assert sum(counts["wrong"] for counts in found["by_evidence"].values()) == 0
    assert [point["moving_cached_long"]["n"] for point in found["curve"]] == [3] * 5


def test_a_policy_that_judges_nothing_caches_all_of_it_long() -> None:
    from cachestack.corpus import load_freshness
    from cachestack.evaluation.freshness import LabelledQuestion

    rows = [LabelledQuestion(r.question, r.changes) for r in load_freshness("validation")]
    found = summarise(judge_all(rows, Policy(freshness=FreshnessPolicy(enabled=False)), NOW_S))
    assert found["cached_long"]["fast"]["rate"] == 1.0
    assert found["never"]["shortened"]["rate"] == 0.0


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "not JSON"),
        ("[]", "key question"),
        ('{"question": " ", "changes": "fast"}', "key question"),
        ('{"question": "q"}', "needs changes"),
        ('{"question": "q", "changes": "often"}', "needs changes"),
        ('{"question": "q", "time_dependent": "yes"}', "needs changes"),
        ("", "holds no questions"),
    ],
)
def test_bad_files_are_told_by_line(
    tmp_path: Path, line: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(InputFileError, match=problem):
        read_questions(file)
    assert main(["eval", "freshness", str(file)]) == 2
    assert "bad.jsonl" in capsys.readouterr().err
    assert main(["eval", "freshness", str(tmp_path / "none.jsonl")]) == 2


def test_the_command_prints_tables_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "q.jsonl", ROWS)
    assert main(["eval", "freshness", file]) == 0
    assert "never-changing, shortened" in capsys.readouterr().out
    assert main(["eval", "freshness", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["corpus"]
    assert found["by_label"]["fast"]["n"] > 50
    assert main(["eval", "freshness", file, "--split", "test"]) == 2


def test_the_halves_are_two(tmp_path: Path) -> None:
    questions = read_questions(write(tmp_path / "q.jsonl", ROWS))
    halves = [{q.question for q in questions if in_half(q, half)} for half in ("a", "b")]
    assert halves[0] | halves[1] == {q.question for q in questions}
    assert not halves[0] & halves[1]


@pytest.mark.skipif(not SHARED.exists(), reason="the development data of ../shared/data is not here")
@pytest.mark.parametrize(("file", "missed", "shortened"), [("time_dependent", 0.10, 0.20)])
def test_on_data_that_nothing_was_trained_on(file: str, missed: float, shortened: float) -> None:
    """Looser than the targets: this guards against a fall, the figures are in the docs."""
    rows = [q for q in read_questions(SHARED / f"freshness/{file}.jsonl") if in_half(q, "a")]
    found = summarise(judge_all(rows, Policy(), NOW_S))
    assert found["cached_long"]["moving"]["rate"] <= missed
    assert found["never"]["shortened"]["rate"] <= shortened
