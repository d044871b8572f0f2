"""What all commands share: exit statuses, and what goes to which stream."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import typer

from cachestack import __version__
from cachestack.cli import app as app_module
from cachestack.cli.app import main
from cachestack.cli.output import print_json, stage_bars
from cachestack.errors import ModelNotFound


def app_that(does: Callable[[], None]) -> Callable[[Sequence[str]], typer.Typer]:
    """Stands in for the real commands, with one that does this."""

    def build(commands: Sequence[str]) -> typer.Typer:
        app = typer.Typer(pretty_exceptions_enable=False)
        app.command("it")(does)
        return app

    return build


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"cachestack {__version__}\n", "")


def test_python_m(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "cachestack", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"cachestack {__version__}\n")


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in app_module.COMMANDS:
        assert f"\n  {command} " in out


def test_a_wrong_call_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "nonsense"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "nonsense" in err


def test_a_named_error_is_one_line_on_stderr_and_exits_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise ModelNotFound("[bold]x[/bold] is not here: " + "a long way " * 30 + "to do it")

    monkeypatch.setattr(app_module, "build_app", app_that(fails))
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: [bold]x[/bold] is not here: ")
    assert err.count("\n") == 1


def test_ctrl_c_exits_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app_module, "build_app", app_that(interrupted))
    assert main([]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_a_failed_check_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        raise typer.Exit(1)

    monkeypatch.setattr(app_module, "build_app", app_that(check))
    assert main([]) == 1


def test_a_full_disk_under_stdout_is_one_line_and_exits_2() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "cachestack", "models", "list", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the operating system refused: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_stdout_is_one_line_on_stderr_and_exits_2() -> None:
    command = f"exec {sys.executable} -m cachestack models list --json >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard output is closed")
    assert len(done.stderr.splitlines()) == 1


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app_module, "build_app", app_that(fault))
    with pytest.raises(ZeroDivisionError):
        main([])


def test_json_is_one_document_and_never_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": "Été"})
    assert capsys.readouterr().out == '{\n  "text": "Été"\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"seconds": float("nan")})
    assert capsys.readouterr().out == ""


def test_bars_go_to_stderr_and_no_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with stage_bars("tiny"):
        pass
    assert capsys.readouterr() == ("", "")
    with stage_bars("tiny") as report:
        report("downloading", 1, 2)
        report("unpacking", 2, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "tiny: downloading" in err
    assert "tiny: unpacking" in err
