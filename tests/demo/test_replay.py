"""The demonstration: a part of it by default, and that it notices what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cachestack.build import build_demo
from cachestack.cli.app import main
from cachestack.demo.replay import DemoClock, DemoReport, replay
from cachestack.demo.trace import Ask, Batch, DemoTrace, load_trace
from cachestack.folders import HOME_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

TRACE = load_trace()
POLICY = Path(__file__).parents[2] / "cachestack/demo/policy.yaml"


@pytest.fixture
def run(tmp_path: Path, llm_path: Path, encoder_path: Path) -> Callable[..., DemoReport]:
    def run(*steps: Ask | Batch) -> DemoReport:
        clock = DemoClock()
        trace = DemoTrace(stop=TRACE.stop, systems=TRACE.systems, steps=steps)
        stack, engine = build_demo(model=str(llm_path), policies=POLICY, home=tmp_path, clock=clock)
        with stack:
            return replay(stack, engine, trace, clock, lambda row: None)

    return run


def test_the_trace_shows_what_it_should() -> None:
    asks = [step for step in TRACE.steps if isinstance(step, Ask)]
    assert 55 <= len(TRACE.steps) <= 70
    assert {step.tenant for step in asks} == {"acme", "lumiere"}
    shown = " ".join(step.shows for step in TRACE.steps)
    for what in ("exact repeat", "paraphrase", "negation", "number", "entity", "other tenant", "other system prompt",
                 "expired", "long prefix", "conversation", "classification batch", "French"):  # fmt: skip
        assert what in shown
    assert any(isinstance(step, Batch) for step in TRACE.steps)
    assert sum(step.expect == "exact" for step in asks) >= 5


def test_a_folder_that_cannot_be_written_is_named_before_a_model_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv(HOME_VARIABLE, str(file / "home"))
    assert main(["demo", "--json", "--model", "no-such-model"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "set CACHESTACK_HOME to another folder" in " ".join(err.split())


def test_a_part_of_it_runs_and_adds_up(run: Callable[..., DemoReport]) -> None:
    chosen = [TRACE.steps[i] for i in (0, 1, 2, 4, 26, 27, 54, 55)]
    report = run(*chosen)
    assert report.problems == ()
    document = json.loads(json.dumps(report.as_dict()))
    assert document["requests"] == 8
    assert document["served"]["exact"] >= 1
    assert document["model_calls"] < document["model_calls_without"]
    assert document["tokens_prefilled"] + document["tokens_reused"] <= document["tokens_prefilled_without"]
    assert document["rows"][6]["reused_tokens"] > 1000, "the batch shares its prefix"
    assert document["rows"][7]["reason"].startswith("expired")
    kinds = document["by_kind"]
    assert sum(kind["requests"] for kind in kinds.values()) == 7, "all but the batch"
    assert kinds["exact"]["median_seconds"] < kinds["exact"]["median_seconds_without"] / 10


def test_a_hit_that_the_trace_calls_wrong_is_a_problem(run: Callable[..., DemoReport]) -> None:
    first = TRACE.steps[0]
    assert isinstance(first, Ask)
    report = run(first, first.model_copy(update={"answer": "something else", "expect": None}))
    assert report.problems == ("step 2: wrong hit: served the answer about 'reset-password' for 'something else'",)


def test_an_expectation_that_is_not_met_is_a_problem(run: Callable[..., DemoReport]) -> None:
    first = TRACE.steps[0]
    assert isinstance(first, Ask)
    report = run(first.model_copy(update={"expect": "exact"}), first.model_copy(update={"expect": "engine"}))
    assert report.problems == (
        "step 1: expected to be served from exact, was engine",
        "step 2: expected to be served from engine, was exact",
    )


@pytest.mark.full
def test_the_whole_demo_from_the_shell(tmp_path: Path, models_dir: Path, llm_path: Path, encoder_path: Path) -> None:
    environment = os.environ | {"CACHESTACK_HOME": str(tmp_path), "CACHESTACK_MODELS": str(models_dir)}
    command = [sys.executable, "-m", "cachestack", "demo", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["problems"] == []
    assert document["speedup"] > 1
