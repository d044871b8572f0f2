"""`cachestack lint` from the shell."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.engines.transformers.tokens import measure_ms_per_token
from tests.lint.conftest import RULES, chats

EXAMPLE = str(Path(__file__).parents[2] / "docs" / "examples" / "requests.jsonl")
REPORT = {
    "model", "unit", "prompts", "tenants", "families", "tokens", "reusable_tokens", "reusable_share", "mended_tokens",
    "mended_share", "ms_per_token", "prefixes", "findings", "notes",
}  # fmt: skip
FINDING = {"kind", "prompts", "tokens_lost", "ms_lost", "observed", "proposal", "examples"}
PLACE = {"earlier", "later", "where", "position", "before", "earlier_value", "value", "after", "proposal"}


@pytest.fixture
def model(llm_path):
    return ["--model", str(llm_path)]


def log(tmp_path, rows, name="log.jsonl"):
    file = tmp_path / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def test_json_is_one_document_of_the_known_form(model, capsys) -> None:
    assert main(["lint", EXAMPLE, "--json", *model]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert set(document) == REPORT
    assert [f["kind"] for f in document["findings"]] == ["timestamp", "user_name", "example_order"]
    for finding in document["findings"]:
        assert set(finding) == FINDING
        assert all(set(place) == PLACE for place in finding["examples"])
        assert finding["ms_lost"] == pytest.approx(1.4 * finding["tokens_lost"], abs=0.1)
    assert [p["tenant"] for p in document["prefixes"]] == ["help", "sort"]
    assert document["mended_share"] > 5 * document["reusable_share"]
    assert "tokens" in err


def test_the_table_fits_80_columns_and_shows_what_to_do(model, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["lint", EXAMPLE, "--ms-per-token", "2", *model]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    assert "Now: [2026-03-03 10:00] then [2026-03-03 10:07]" in words
    assert "Move “2026-03-03 10:07” out of message 1 (system)" in words


def test_a_clean_log_exits_0(tmp_path, capsys) -> None:
    assert main(["lint", log(tmp_path, chats(RULES, RULES)), "--characters"]) == 0
    assert "Nothing found" in capsys.readouterr().out


def test_several_files_are_one_log_and_the_limit_counts_over_all(tmp_path, capsys) -> None:
    files = [log(tmp_path, chats(f"Today is March {day}. {RULES}"), f"{day}.jsonl") for day in (3, 4, 5)]
    assert main(["lint", *files, "--characters", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["prompts"] == 3
    assert document["findings"][0]["examples"][0]["earlier"].endswith("3.jsonl line 1")
    assert main(["lint", *files, "--characters", "--json", "--limit", "2"]) == 1
    assert json.loads(capsys.readouterr().out)["prompts"] == 2


def test_standard_input_and_markup_in_a_prompt(monkeypatch, capsys) -> None:
    raw = io.BytesIO(f"Today is 3 March 2026 [bold]été[/bold]. {RULES}".encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(raw))
    assert main(["lint", "-", "--characters"]) == 1
    assert "[bold]été" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl does not exist"),
        ([EXAMPLE, "--model", "./nowhere"], "--characters"),
        ([EXAMPLE, "--characters", "--model", "x"], "leave --model"),
        ([EXAMPLE, "--measure", "--ms-per-token", "1"], "not both"),
        (["-", "-"], "can be read once"),
        ([EXAMPLE, "--limit", "0"], "--limit"),
    ],
)
def test_what_cannot_be_done_exits_2(arguments, says, capsys) -> None:
    assert main(["lint", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in " ".join(err.split())


def test_the_cost_of_a_token_is_measured(local_engine) -> None:
    assert 0 < measure_ms_per_token(local_engine.loaded, repetitions=1) < 1000
