"""`cachestack warm`: what it prints, on which stream, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachestack.cli.app import main

SYSTEM = "Tu es le service d'aide d'ACME. Réponds en une phrase courte, s'il te plaît. On est ouvert de 9 h à 17 h."
MESSAGES = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": "Où est mon colis ?"},
    {"role": "assistant", "content": "En route."},
]


@pytest.fixture
def system_file(tmp_path: Path) -> str:
    path = tmp_path / "système.txt"
    path.write_text(SYSTEM + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def messages_file(tmp_path: Path) -> str:
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(MESSAGES), encoding="utf-8")
    return str(path)


def test_two_prompts_are_warmed_and_shown(
    system_file: str, messages_file: str, llm_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--prompt", system_file, "--prompt", messages_file, "--tenant", "société", "--model", str(llm_path)]
    assert main(["warm", *given, "--pin", "60", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "this command" in document["note"]
    first, second = document["warmed"]
    assert (first["prompt"], first["reason"], first["pin_reason"]) == (system_file, "published", "pinned")
    assert second["reused_tokens"] == first["num_tokens"] == first["computed_tokens"] > 16
    assert second["num_tokens"] == second["reused_tokens"] + second["computed_tokens"]
    assert document["memory"]["num_bytes"] == second["num_bytes"]
    assert {p["tenant"] for p in document["memory"]["prefixes"]} == {"société"}
    assert SYSTEM not in out + err
    assert "prompts" in err


def test_a_table_with_a_plain_word_on_stderr(
    messages_file: str, llm_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["warm", "--prompt", messages_file, "--system-only", "--model", str(llm_path)]) == 0
    out, err = capsys.readouterr()
    assert "published" in out
    assert "KV by prefix" in out
    assert "KV lives in the process" in err


def test_a_prompt_of_which_nothing_can_be_kept_says_why_and_exits_1(
    tmp_path: Path, llm_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("Hi.")
    assert main(["warm", "--prompt", str(short), "--model", str(llm_path), "--json"]) == 1
    (warmed,) = json.loads(capsys.readouterr().out)["warmed"]
    assert (warmed["reason"], warmed["num_tokens"]) == ("prefix_too_short", 0)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("bad.json", "{", "is no JSON"),
        ("number.json", "5", "a list of messages or a structured prompt"),
        ("user.json", '[{"role": "user", "content": "hi"}]', "begins with no system message"),
        ("empty.txt", "  ", "is empty"),
    ],
)
def test_a_file_that_is_no_prompt_is_an_error_without_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, says: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert main(["warm", "--prompt", str(path), "--system-only", "--model", "/nowhere"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert "Traceback" not in err


def test_a_structured_prompt_is_warmed(tmp_path: Path, llm_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "structured.json"
    path.write_text(json.dumps({"system_instructions": SYSTEM, "user_query": "Où est mon colis ?"}), encoding="utf-8")
    assert main(["warm", "--prompt", str(path), "--model", str(llm_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warmed"][0]["reason"] == "published"


def test_a_structured_prompt_without_its_query_is_warmed_up_to_its_examples(
    tmp_path: Path, llm_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its examples are marked as stable, also where conversations are not kept."""
    parts = {"system_instructions": SYSTEM, "examples": [{"user": "Où est mon colis ?", "assistant": "En route."}]}
    policy = tmp_path / "policy.yaml"
    policy.write_text("default: {prefix: {keep_conversations: false}}", encoding="utf-8")
    tokens = []
    for name, given in (("query", parts | {"user_query": "Et ma facture ?"}), ("none", parts)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(given), encoding="utf-8")
        options = ["--policies", str(policy), "--model", str(llm_path), "--json"]
        assert main(["warm", "--prompt", str(path), *options]) == 0
        tokens.append(json.loads(capsys.readouterr().out)["warmed"][0]["num_tokens"])
    assert tokens[0] == tokens[1] > 0


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_pin_of_no_duration_names_the_option(
    system_file: str, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    assert main(["warm", "--prompt", system_file, "--pin", seconds, "--model", "/nowhere"]) == 2
    assert "--pin takes a positive number of seconds" in capsys.readouterr().err
