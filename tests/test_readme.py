"""The README is true: its Python runs and prints what it shows, its policy loads, its commands exist."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from cachestack.cli.app import build_app
from cachestack.policy_set import PolicySet

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What differs from run to run: times, ids, and how fast this machine is.
VARIES = [
    (re.compile(r"\b[0-9a-f]{24}\b"), "ID"),
    (re.compile(r"\b\d+\.\d+( ms| s)?\b"), "N"),
    (re.compile(r"saved_s=\S+"), "saved_s=N"),
]


def blocks(language: str, document: Path = ROOT / "README.md") -> list[str]:
    return [body for kind, body in BLOCK.findall(document.read_text(encoding="utf-8")) if kind == language]


def steady(text: str) -> list[str]:
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return [line.rstrip() for line in text.strip().splitlines()]


def test_python_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llm_path: Path, encoder_path: Path
) -> None:
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    shown = blocks("text")
    programs = [body for body in blocks("python") if "print(" in body]
    assert len(shown) == len(programs) >= 2
    namespace: dict[str, Any] = {}
    for program, expected in zip(programs, shown, strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "README.md", "exec"), namespace)
        namespace["stack"].close()
        assert steady(printed.getvalue()) == steady(expected)


def test_the_policy_loads() -> None:
    (text,) = blocks("yaml")
    policies = PolicySet.parse(text, "README.md")
    assert policies.tenants == ("acme", "acme-billing")
    assert policies.policy("acme-billing").semantic.sensitive


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_yaml_in_the_documents_loads(document: Path) -> None:
    for text in blocks("yaml", document):
        PolicySet.parse(text, document.name)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_their_options_exist(document: Path) -> None:
    app = typer.main.get_command(build_app())
    for body in blocks("console", document):
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True) if line.startswith("$ ") else []
            if not words or Path(words[0]).name != "cachestack":
                continue
            command: Any = app
            rest = words[1:]
            with app.make_context("cachestack", [], resilient_parsing=True) as context:
                while (
                    rest and getattr(command, "get_command", None) and (found := command.get_command(context, rest[0]))
                ):
                    command, rest = found, rest[1:]
            assert command is not app, line
            options = {name for parameter in command.params for name in parameter.opts}
            assert {word.split("=")[0] for word in rest if word.startswith("--")} <= options, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_nothing_is_left_to_fill_in() -> None:
    for document in DOCUMENTS:
        assert "@@" not in document.read_text(encoding="utf-8"), document.name


def test_tests_named_in_the_documents_exist() -> None:
    for document in DOCUMENTS:
        for path, name in re.findall(r"(tests/[\w/]+\.py)::(\w+)", document.read_text(encoding="utf-8")):
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{document.name}: {path}::{name}"
