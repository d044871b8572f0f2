"""`cachestack eval admission`: labelled answers, of a file and of the corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.corpus.load import load_admission

LINES = [
    {"question": "Where?", "answer": "Behind the station.", "kind": "good", "language": "en", "domain": "travel"},
    {
        "question": "Where?",
        "answer": "I can't help with that.",
        "kind": "refusal",
        "language": "en",
        "domain": "travel",
    },
    {"question": "Où ?", "answer": "Erreur 500", "kind": "error", "language": "fr", "domain": "travel"},
    {"question": "Où ?", "answer": "Désolé pour ce contretemps.", "kind": "good", "language": "fr", "domain": "travel"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES), "utf-8")
    return path


def test_shares_by_kind_and_language_and_what_is_wrong(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.jsonl"
    assert main(["eval", "admission", str(file), "--json", "--mistakes", str(wrong)]) == 0
    result = json.loads(capsys.readouterr().out)["files"][str(file)]
    assert (result["refusals_and_errors"]["n"], result["refusals_and_errors"]["refused"]) == (2, 2)
    assert (result["good"]["n"], result["good"]["refused"]) == (2, 1)
    assert result["good"]["interval"] == pytest.approx([0.0945, 0.9055], abs=0.001)
    assert result["by_language"]["fr"]["error"]["refused"] == 1
    (mistake,) = [json.loads(line) for line in wrong.read_text("utf-8").splitlines()]
    assert (mistake["answer"], mistake["taken_for"]) == ("Désolé pour ce contretemps.", "refusal")


def test_a_policy_that_refuses_nothing_refuses_nothing(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("default: {admission: {refused: []}}", "utf-8")
    assert main(["eval", "admission", str(file), "--json", "--policy", str(policy)]) == 0
    assert json.loads(capsys.readouterr().out)["files"][str(file)]["refusals_and_errors"]["refused"] == 0


def test_the_corpus_is_judged_where_no_file_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "admission"]) == 0
    shown = capsys.readouterr().out
    assert "corpus/dev" in shown
    assert "refusal" in shown


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"question": "Where?"}', "line 1: answer: Field required"),
        ('{"question": "W", "answer": "x", "kind": "odd", "language": "en"}', "line 1: kind: Input should be"),
        ("no JSON", "line 1: the line: Invalid JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line + "\n", "utf-8")
    assert main(["eval", "admission", str(path)]) == 2
    assert says in capsys.readouterr().err.replace("\n", " ")


def test_no_mistakes_of_the_test_part_and_no_part_of_a_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "admission", "--part", "test", "--mistakes", "x.jsonl"]) == 2
    assert main(["eval", "admission", str(file), "--part", "dev"]) == 2
    assert "totals only" in capsys.readouterr().err


def test_what_was_tuned_on_is_judged_well_and_the_parts_do_not_overlap() -> None:
    from cachestack.evaluation.admission import judge_examples, summarise_admission
    from cachestack.semantic.admission import KINDS

    dev, test = load_admission("dev"), load_admission("test")
    assert {one.writer for one in dev} == {0, 1, 2, 3, 4}
    assert {one.writer for one in test}.isdisjoint({one.writer for one in dev})
    assert {(one.question, one.answer) for one in dev}.isdisjoint({(one.question, one.answer) for one in test})
    found = summarise_admission(list(judge_examples(dev, KINDS)))
    assert found["refusals_and_errors"]["rate"] >= 0.98
    assert found["good"]["rate"] <= 0.02
