"""What is made of a document: targets, tables, a picture; and the command's wrong calls."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from cachestack.bench import plot as plot_module
from cachestack.bench.markdown import as_markdown, notes
from cachestack.bench.targets import targets_of
from cachestack.cli.app import main

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is in the extra `plot`, which is not installed"
)


def met(document):
    return {target.name: target.is_met for target in targets_of(document)}


def test_targets_are_those_of_the_lengths_that_were_measured(full):
    full |= {"fork_ms": 0.4, "lookup_ms": 0.31, "copied_bytes": 0}
    full["miss_overhead"] = {"median": 1.03, "low": 1.0, "high": 1.1}
    assert met(full) == {
        "one by one over the floor, 167 tokens": True,
        "one by one over the floor, 977 tokens": False,
        "whole prompt over packed, 167 tokens": True,
        "whole prompt over packed, 977 tokens": True,
        "fork, ms": True,
        "bytes copied by a fork": True,
        "look-up, ms": False,
        "miss over whole prompt": True,
        "first run over whole prompt, 167 tokens": True,
        "first run over whole prompt, 977 tokens": True,
        "first run, longest prefix over shortest": True,
        "llama.cpp over packed, 167 tokens": True,
        "llama.cpp over packed, 977 tokens": False,
    }


def test_a_quick_run_is_held_to_nothing(full):
    full["quick"] = True
    full["targets"] = []
    assert targets_of(full) == ()
    assert "| target |" not in as_markdown(full)


def test_a_first_run_that_grows_dearer_with_length_misses_its_target(full):
    full["cold_publish_by_length"]["977"]["median"] = 1.35
    assert met(full)["first run, longest prefix over shortest"] is False
    full["copied_bytes"] = 1
    assert met(full)["bytes copied by a fork"] is False


def test_markdown_is_tables_of_equal_width_and_names_the_machine(full):
    text = as_markdown(full)
    assert "| one by one over the floor | 1.05 (0.95 to 1.16) | 1.35 (1.22 to 1.49) |" in text
    assert "| llama.cpp, prefix kept | 200.0 | 200.0 |" in text
    assert full["machine"]["cpu"] in text
    assert "weights Q4_1" in text
    assert "ours for 90% of the tickets" in text
    for table in text.split("\n\n")[:4]:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_what_makes_figures_worthless_is_said(full):
    full["machine"]["busy"] = False
    full["quick"] = False
    assert not any("no measurement" in note for note in notes(full))
    full["machine"]["busy"] = True
    assert any("busy" in note for note in notes(full))
    full["quick"] = True
    assert any("quick run" in note for note in notes(full))
    full["prefix"]["977"]["agreement"]["cold_equals_warm"] = False
    assert any("NOT equal" in note for note in notes(full))


def test_tables_fit_80_columns(saved, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["bench", "prefix", "--from", saved()]) == 0
    out = capsys.readouterr().out
    tables = out.partition("\nSuffixes of")[0].splitlines()[:-1]
    assert all(len(line) <= 80 for line in tables)
    assert " one by one over the floor     1.05 (0.95 to 1.16)  1.35 (1.22 to 1.49) " in out
    assert re.search(r"one by one over the floor, 977 tokens +1\.35 +at most 1\.3 +NO", out)


def test_a_saved_document_comes_back_as_it_was(full, saved, capsys):
    assert main(["bench", "prefix", "--from", saved(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == full


def test_results_that_differ_end_with_status_1(full, saved, capsys):
    full["agreement"]["holds"] = False
    assert main(["bench", "prefix", "--from", saved(), "--markdown"]) == 1


def test_profiles_are_shown(full, saved, capsys):
    full["profile"] = {"167": {"single": [{"name": "aten::mm", "share": 0.75, "calls": 211.0}]}}
    assert main(["bench", "prefix", "--from", saved()]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "single, prefix of 167 tokens" in out
    assert "aten::mm 75.0% 211" in out


@needs_matplotlib
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_picture_is_made(saved, tmp_path, ending, capsys):
    path = tmp_path / f"préfixe.{ending}"
    assert main(["bench", "prefix", "--from", saved(), "--plot", str(path), "--json"]) == 0
    head = path.read_bytes()[:400]
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<svg" in head or b"<!DOCTYPE svg" in head
    assert path.stat().st_size > 10_000


@needs_matplotlib
@pytest.mark.parametrize(
    ("name", "says"), [("none/x.png", "there is no folder"), ("x.txt", "endings: "), ("d.png", "cannot be written to")]
)
def test_a_picture_that_cannot_be_made_is_named_before_anything_is_measured(tmp_path, name, says, capsys):
    (tmp_path / "d.png").mkdir()
    assert main(["bench", "prefix", "--plot", str(tmp_path / name)]) == 2
    assert says in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plot_module.importlib.util, "find_spec", lambda name: None)
    assert main(["bench", "prefix", "--plot", str(tmp_path / "x.png")]) == 2
    assert "cachestack[plot]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--json", "--markdown"], "both print to stdout"),
        (["--peer", "vllm"], "known: llama-cpp"),
        (["--peer-gguf", "x.gguf"], "give --peer llama-cpp too"),
        (["--from", "no-such-file.json"], "cannot be read"),
        (["--from", "no-such-file.json", "--quick"], "measures nothing"),
        (["--reps", "0"], "--reps"),
    ],
)
def test_wrong_calls_exit_2(arguments, says, capsys):
    assert main(["bench", "prefix", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


BREAKS = {
    "prefix": lambda d: d.update(prefix={}),
    "prefix.167.whole_ms": lambda d: d["prefix"]["167"].update(whole_ms=None),
    "prefix.167.ratios": lambda d: d["prefix"]["167"].update(ratios={}),
    "prefix.977.agreement": lambda d: d["prefix"]["977"].pop("agreement"),
    "agreement": lambda d: d.update(agreement=[]),
    "machine.cpu": lambda d: d.update(machine={}),
    "targets.0": lambda d: d.update(targets=[1]),
    "suffix_tokens": lambda d: d.pop("suffix_tokens"),
    "peer_same_argmax": lambda d: d["prefix"]["167"]["agreement"].pop("peer_same_argmax"),
    "NaN": lambda d: d.update(elapsed_s=float("nan")),
}


@pytest.mark.parametrize("place", BREAKS)
@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_a_document_with_a_hole_is_refused_and_the_place_named(full, saved, place, form, capsys):
    BREAKS[place](full)
    assert main(["bench", "prefix", "--from", saved(), *form]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert place in err


def test_a_document_with_a_byte_order_mark_is_read(saved, capsys):
    path = Path(saved())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert main(["bench", "prefix", "--from", str(path), "--json"]) == 0


@needs_matplotlib
def test_figures_are_printed_before_the_picture_that_fails(saved, tmp_path, monkeypatch, capsys):
    def full_disk(self, *args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full_disk)
    assert main(["bench", "prefix", "--from", saved(), "--json", "--plot", str(tmp_path / "x.png")]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["prefix"]
    assert "No space left" in err


@pytest.mark.parametrize("text", ["no json", "[]", '{"format": 99, "prefix": {}}', "[" * 100_000])
def test_another_document_is_refused(tmp_path, text, capsys):
    (tmp_path / "x.json").write_text(text)
    assert main(["bench", "prefix", "--from", str(tmp_path / "x.json")]) == 2
    assert "x.json is" in capsys.readouterr().err
