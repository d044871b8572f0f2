"""`cachestack classify` from the shell: one JSON document, exit statuses, files that survive an interruption."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.engines.transformers.scoring import LabelScorer
from cachestack.items import ResultFile

pytestmark = pytest.mark.usefixtures("one_thread")
SUMMARY = {"items", "seconds", "baseline_seconds", "speedup", "label_mismatches", "max_logit_diff", "static_share"}


@pytest.fixture
def prompt_file(tmp_path, system):
    file = tmp_path / "prompt.txt"
    file.write_text(system)
    return file


@pytest.fixture
def arguments(items_file, prompt_file, tiny_model_folder):
    return [
        "classify", str(items_file), "--column", "text", "--labels", "card,transfer,account",
        "--prompt", str(prompt_file), "--template", "Ticket: {text}", "--model", str(tiny_model_folder),
    ]  # fmt: skip


def texts_of(file):
    return [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]


def test_json_is_one_document_with_the_summary_and_the_results(arguments, items_file, capsys):
    assert main([*arguments, "--baseline", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert set(document) >= SUMMARY
    assert document["items"] == document["compared"] == 6
    assert document["label_mismatches"] == 0
    assert 0 <= document["max_logit_diff"] < 1e-3
    assert 0 < document["static_share"] < 1
    whole, ours, half = document["baseline_seconds"], document["seconds"], 0.0005  # times are rounded to milliseconds
    assert (whole - half) / (ours + half) - 0.01 <= document["speedup"] <= (whole + half) / (ours - half) + 0.01
    assert [r["text"] for r in document["results"]] == texts_of(items_file)
    for result in document["results"]:
        assert result["label"] in ("card", "transfer", "account")
        assert set(result["scores"]) == {"card", "transfer", "account"}
        assert 0 < result["mass"] <= 1
    assert "items/s" in err


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl"])
def test_results_go_to_the_file(arguments, items_file, tmp_path, capsys, name):
    out = tmp_path / name
    assert main([*arguments, "--out", str(out), "--verify", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["compared"] == 2
    assert document["baseline_seconds"] is None
    assert document["speedup"] is None
    assert document["out"] == str(out)
    assert "results" not in document
    with out.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream)) if name.endswith("csv") else [json.loads(line) for line in stream]
    assert [row["text"] for row in rows] == texts_of(items_file)
    assert all(row["label"] in ("card", "transfer", "account") for row in rows)
    assert all(0 < float(row["mass"]) <= 1 for row in rows)


@pytest.mark.parametrize("option", [(), ("--out", "-")])
def test_without_a_file_results_are_csv_on_stdout(arguments, items_file, capsys, option):
    assert main([*arguments, *option]) == 0
    out, err = capsys.readouterr()
    assert [row["text"] for row in csv.DictReader(io.StringIO(out))] == texts_of(items_file)
    assert "6 items in" in err


def test_a_mismatch_makes_the_exit_status_1(arguments, capsys, monkeypatch):
    whole = LabelScorer.whole

    def other(self, ids):
        result = whole(self, ids)
        return type(result)(tuple(-s for s in result.scores), result.row)

    monkeypatch.setattr(LabelScorer, "whole", other)
    assert main([*arguments, "--verify", "1", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["label_mismatches"] == 1
    assert "1 of 1 labels differ" in err


def test_a_bad_item_has_a_row_and_makes_the_exit_status_1(arguments, items_file, tmp_path, capsys):
    items_file.write_text('{"text": "card"}\n{"text": ""}\n{"text": "x"}\n')
    out = tmp_path / "out.csv"
    assert main([*arguments, "--out", str(out)]) == 1
    assert "item 1 has no label: the text is empty" in capsys.readouterr().err
    with out.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [bool(row["label"]) for row in rows] == [True, False, True]
    assert rows[1]["error"] == "the text is empty"


def test_items_below_a_threshold_have_no_label_and_that_is_no_failure(arguments, tmp_path, capsys):
    for name, cells in (("out.csv", ("true", "")), ("out.jsonl", (True, None))):
        out = tmp_path / name
        assert main([*arguments, "--min-probability", "1", "--scores", "prior", "--out", str(out)]) == 0
        assert "6 without a label" in " ".join(capsys.readouterr().err.split())
        with out.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream)) if name.endswith("csv") else [json.loads(line) for line in stream]
        assert [(row["abstained"], row["label"]) for row in rows] == [cells] * 6
        assert all(0 < float(row["probability"]) < 1 for row in rows)
        assert not any(row["error"] for row in rows)
    assert main([*arguments, "--min-mass", "1", "--scores", "mean", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["abstained"], document["scores"], document["scored_by"]) == (6, "mean", "whole_label")
    assert all(r["abstained"] and "mass of" in r["why"] for r in document["results"])


def test_what_is_asked_twice_is_counted(arguments, items_file, capsys):
    items_file.write_text('{"text": "card"}\n{"text": "x"}\n{"text": "card"}\n')
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["repeated"], document["abstained"]) == (1, 0)
    assert document["results"][0]["scores"] == document["results"][2]["scores"]
    assert not any(r["abstained"] or r["why"] for r in document["results"])
    assert main(arguments) == 0
    assert "1 asked before and not computed again" in " ".join(capsys.readouterr().err.split())


def replaced(arguments, option, value):
    at = arguments.index(option)
    return [*arguments[: at + 1], value, *arguments[at + 2 :]]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--column", "body", "its keys: text"),
        ("--labels", "card,,x", "label 2 of 3 is empty"),
        ("--labels", "card, card", "'card' is there twice"),
        ("--labels", "a\nb", "--labels-file"),
        ("--labels", '"a,b', "can't be read as a list"),
        ("--labels", "card,<|im_end|>", "special token"),
        ("--template", "Ticket", "{text}"),
        ("--prompt", "none.txt", "none.txt does not exist"),
    ],
)
def test_wrong_calls_exit_2_and_print_nothing_on_stdout(arguments, capsys, option, value, says):
    assert main(replaced(arguments, option, value)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in " ".join(err.split())


def test_other_wrong_calls(arguments, capsys, tmp_path):
    assert main([*arguments, "--out", str(tmp_path / "o.xlsx")]) == 2
    assert ".csv or .jsonl" in capsys.readouterr().err
    at = arguments.index("--labels")
    bare = [*arguments[:at], *arguments[at + 2 :]]
    assert main(bare) == 2
    assert "--labels" in capsys.readouterr().err
    assert main([*arguments, "--min-mass", "1.5"]) == 2
    assert "min_mass is a share from 0 to 1" in " ".join(capsys.readouterr().err.split())
    assert main([*arguments, "--scores", "max"]) == 2
    assert "mean" in capsys.readouterr().err
    labels = tmp_path / "labels.txt"
    labels.write_text("card\n\ntransfer, abroad\n")
    assert main([*bare, "--labels-file", str(labels), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["results"][0]["scores"]) == {"card", "transfer, abroad"}
    assert main([*arguments, "--labels-file", str(labels)]) == 2
    assert "not both" in capsys.readouterr().err


@pytest.mark.parametrize("link", [False, True])
def test_results_never_take_the_place_of_what_is_read(arguments, items_file, tmp_path, capsys, link):
    before, out = Path(items_file).read_bytes(), Path(items_file)
    if link:
        out = tmp_path / "link.jsonl"
        out.symlink_to(items_file)
    assert main([*arguments, "--out", str(out)]) == 2
    assert "name another file" in " ".join(capsys.readouterr().err.split())
    assert Path(items_file).read_bytes() == before


def test_a_label_with_a_comma_is_put_in_quotes(arguments, capsys):
    assert main([*replaced(arguments, "--labels", 'card, "transfer, abroad"'), "--json", "--limit", "1"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["items"] == 1
    assert set(document["results"][0]["scores"]) == {"card", "transfer, abroad"}


def test_ctrl_c_leaves_whole_rows(arguments, tmp_path):
    """A real process, interrupted after its first results: exit status 130, and every row printed is complete."""
    items = tmp_path / "many.csv"
    items.write_text("text\n" + "".join(f"card number {n} has not arrived\n" for n in range(200_000)))
    command = [sys.executable, "-m", "cachestack", *arguments]
    command[command.index("classify") + 1] = str(items)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        head = [process.stdout.readline() for _ in range(50)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    rows = list(csv.reader(io.StringIO("".join(head) + out)))
    assert 50 <= len(rows) < 200_000
    assert all(len(row) == len(rows[0]) for row in rows)
    assert [row[0] for row in rows[1:]] == [str(n) for n in range(len(rows) - 1)]
    assert "Traceback" not in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_keeps_its_file(arguments, tmp_path, capsys, monkeypatch, number, status):
    score = LabelScorer.score
    calls = iter(range(2))

    def interrupted(self, past, suffixes):
        if past and next(calls) == 1:
            signal.raise_signal(number)
        return score(self, past, suffixes)

    monkeypatch.setattr(LabelScorer, "score", interrupted)
    items, out = tmp_path / "many.csv", tmp_path / "o" / "out.csv"
    out.parent.mkdir()
    items.write_text("text\n" + "".join(f"where is my card {n}\n" for n in range(200)))
    arguments[1] = str(items)
    assert main([*arguments, "--out", str(out)]) == status
    assert os.listdir(tmp_path / "o") == ["out.csv"]
    with out.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert 0 < len(rows) < 200
    assert all(row["label"] for row in rows)
    assert f"stopped after {len(rows)} of 200 items" in " ".join(capsys.readouterr().err.split())


def test_a_second_sigterm_while_the_run_ends_does_not_cost_the_file(arguments, tmp_path, monkeypatch):
    late: list[int] = []
    leave, score = ResultFile.__exit__, LabelScorer.score

    def ending(self, *error):
        signal.raise_signal(signal.SIGTERM)
        leave(self, *error)

    def terminated(self, past, suffixes):
        scored = score(self, past, suffixes)
        if next(calls) == 1:
            signal.raise_signal(signal.SIGTERM)
        return scored

    calls = iter(range(100))
    monkeypatch.setattr(ResultFile, "__exit__", ending)
    monkeypatch.setattr(LabelScorer, "score", terminated)
    items, out = tmp_path / "many.csv", tmp_path / "out.csv"
    items.write_text("text\n" + "".join(f"where is my card {n}\n" for n in range(200)))
    arguments[1] = str(items)
    before = signal.signal(signal.SIGTERM, lambda number, frame: late.append(number))
    try:
        assert main([*arguments, "--out", str(out)]) == 143
        assert late == [], "handled as before while the file was not yet in its place"
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert out.exists()
