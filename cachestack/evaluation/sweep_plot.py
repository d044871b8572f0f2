"""Sweeps as a picture: what is served of what should be, against what is served of the traps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cachestack.errors import UsageError

COLOURS = ("#174a5e", "#b3261e", "#c9a227", "#2a7f9e", "#a4508b", "#4c7a34", "#8c8c8c")
ZOOM = 0.1
"""The right-hand side shows wrong rates up to this one."""


def plot_sweeps(sweeps: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Writes `file`, in the format of its ending, from `Sweep.as_dict()` by name. Raises UsageError for a file that
    cannot be written. matplotlib must be there."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    whole, near = figure.subplots(1, 2)
    for number, (name, sweep) in enumerate(sweeps.items()):
        colour = COLOURS[number % len(COLOURS)]
        for axis in (whole, near):
            _draw(axis, name, sweep, colour)
    whole.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), title="all thresholds")
    near.set(xlim=(-0.001, ZOOM), ylim=(-0.01, 1.01), title=f"at most {ZOOM:.0%} of the traps served")
    for axis in (whole, near):
        axis.set_xlabel("traps served (wrong)")
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axis.grid(color="#e4e4e4", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    whole.set_ylabel("should-hit pairs served")
    handles, labels = whole.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)), fontsize=8, frameon=False)
    figure.suptitle("Served against wrongly served, over thresholds (point: the policy as it is, with 95% intervals)")
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise UsageError(f"the plot cannot be written to {str(file)!r}: {error.strerror or error}") from error


def _draw(axis: Any, name: str, sweep: Mapping[str, Any], colour: str) -> None:
    shown = Path(name).name.replace("$", r"\$")  # a pair of dollars would be read as a formula
    for key, style, label in (
        ("score", "-", f"{shown}: {sweep['score']['scale'].replace('$', '')}, behind the guards"),
        ("cosine", ":", f"{shown}: cosine alone"),
    ):
        points = sweep[key]["points"]
        axis.plot(
            [p["wrong"] for p in points], [p["served"] for p in points], style, color=colour, label=label, linewidth=1.6
        )
    policy = sweep["policy"]
    x, y = policy["wrong"], policy["served"]
    axis.errorbar(
        [x],
        [y],
        xerr=_spread(x, policy["wrong_interval"]),
        yerr=_spread(y, policy["served_interval"]),
        fmt="o",
        color=colour,
        capsize=3,
        linewidth=1,
        zorder=3,
    )


def _spread(middle: float, interval: list[float]) -> list[list[float]]:
    return [[max(0.0, middle - interval[0])], [max(0.0, interval[1] - middle)]]
