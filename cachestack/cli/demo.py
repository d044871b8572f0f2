"""`cachestack demo`: a written trace of requests, with and without CacheStack, that checks itself."""

from __future__ import annotations

import shutil
import tempfile
from importlib import resources
from pathlib import Path

import typer

from cachestack.cli.options import ModelOption
from cachestack.cli.output import JsonOption, print_error, print_json, stderr_console
from cachestack.demo.replay import DemoClock, DemoReport, Row, replay
from cachestack.demo.trace import load_trace
from cachestack.errors import ConfigError
from cachestack.folders import home_folder

_NAMESPACE = "demo"


def command(model: ModelOption = None, json: JsonOption = False) -> None:
    """Replay about 60 requests of two tenants and show what each layer did.

    Exit status 1 if a hit was wrong, or if a cached and an uncached answer differ.
    """
    from cachestack.build import build_demo

    home = _fresh(home_folder() / _NAMESPACE)
    clock, trace, console = DemoClock(), load_trace(), stderr_console()
    policies = resources.files("cachestack").joinpath("demo/policy.yaml")
    with resources.as_file(policies) as path, console.status("loading the models") as status:
        stack, engine = build_demo(model=model, policies=Path(path), home=home, clock=clock)
        with stack:
            if not json:
                status.stop()
                typer.echo(_LEGEND)
                typer.echo(_HEAD)
            report = replay(stack, engine, trace, clock, (lambda row: None) if json else _print_row)
    if json:
        print_json(report.as_dict())
    else:
        _print_summary(report)
    for problem in report.problems:
        print_error(problem)
    if report.problems:
        raise typer.Exit(1)


def _fresh(home: Path) -> Path:
    """An empty folder. Raises ConfigError where there can be none: all the hits would fail, without a reason."""
    try:
        if home.exists():
            shutil.rmtree(home)
        home.mkdir(parents=True)
        with tempfile.TemporaryFile(dir=home):
            return home
    except OSError as error:
        raise ConfigError(
            f"the demo keeps its entries in {home}, which can't be written anew ({error.strerror}); make it writable, "
            "or set CACHESTACK_HOME to another folder"
        ) from error


_LEGEND = (
    "Each request runs through CacheStack (with) and straight to the same engine (without); about two minutes.\n"
    "new/prompt: prompt tokens computed, of all. Last: what the request shows · what each layer decided.\n"
)
_HEAD = (
    f"{'#':>2}  {'tenant':<8} {'asked':<46} {'served from':<11} {'new/prompt':>10} {'with':>9} {'without':>9}  "
    "what and why"
)


def _print_row(row: Row) -> None:
    asked = row.asked if len(row.asked) <= 46 else row.asked[:45] + "…"
    tokens = f"{row.prefilled_tokens}/{row.prompt_tokens}" if row.num_calls else "–"
    typer.echo(
        f"{row.number:>2}  {row.tenant:<8} {asked:<46} {row.served_from:<11} {tokens:>10} "
        f"{_time(row.seconds):>9} {_time(row.plain_seconds):>9}  {row.shows} · {row.reason}"
        f"{'  PROBLEM' if row.problem else ''}"
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _print_summary(report: DemoReport) -> None:
    d = report.as_dict()
    lines = [
        f"{d['requests']} requests, {len(d['problems'])} problems     with CacheStack    without",
        f"model calls              {d['model_calls']:>18,} {d['model_calls_without']:>10,}",
        f"tokens prefilled         {d['tokens_prefilled']:>18,} {d['tokens_prefilled_without']:>10,}",
        f"seconds                  {d['seconds']:>18.1f} {d['seconds_without']:>10.1f}",
        "median of one request:",
    ]
    for kind, figures in d["by_kind"].items():
        name = f"  {kind} ({figures['requests']})"
        with_, without = _time(figures["median_seconds"]), _time(figures["median_seconds_without"])
        lines.append(f"{name:<25}{with_:>18} {without:>10}")
    batches = [row for row in report.rows if row.num_calls > 1]
    for row in batches:
        with_, without = (_time(seconds / row.num_calls) for seconds in (row.seconds, row.plain_seconds))
        name = f"  an item of {row.num_calls} in a batch"
        lines.append(f"{name:<25}{with_:>18} {without:>10}")
    lines.append("0 problems: no hit from an entry about something else; each text as without CacheStack.")
    typer.echo("\n" + "\n".join(lines if not d["problems"] else lines[:-1]))
