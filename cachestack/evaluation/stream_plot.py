"""Replays of streams as a picture over time: rates of wrong hits, hits by meaning, and the threshold in force."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cachestack.errors import UsageError
from cachestack.evaluation.stream_report import SeedResult

COLOURS = ("#174a5e", "#b3261e", "#c9a227", "#2a7f9e", "#a4508b", "#4c7a34", "#8c8c8c")


def plot_streams(results: Sequence[SeedResult], budget: float, file: Path, *, drift: bool = False) -> None:
    """Writes `file`, in the format of its ending. Raises UsageError for one that cannot be written. matplotlib must be
    there."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    FigureCanvasAgg(figure)
    rate, strict, hits, level = figure.subplots(4, 1, sharex=True)
    for number, result in enumerate(results):
        points, colour = result.run.points, COLOURS[number % len(COLOURS)]
        at = [p.requests for p in points]
        all_hits = [p.wrong_hits / p.hits if p.hits else 0.0 for p in points]
        by_meaning = [p.wrong_meaning_hits / p.meaning_hits if p.meaning_hits else 0.0 for p in points]
        rate.plot(at, all_hits, color=colour, linewidth=1, alpha=0.8)
        strict.plot(at, by_meaning, color=colour, linewidth=1, alpha=0.8)
        hits.plot(at, [p.meaning_hits for p in points], color=colour, linewidth=1, alpha=0.8)
        served = [p.threshold if p.state == "serving" else None for p in points]
        level.plot(at, [float("nan") if t is None else t for t in served], color=colour, linewidth=1, alpha=0.8)
    for axis, most, label in ((rate, 1.2, "wrong ÷ all hits"), (strict, 4.0, "wrong ÷ hits by meaning")):
        axis.axhline(budget, color="#b3261e", linestyle="--", linewidth=1.2, label=f"budget {budget:.1%}")
        axis.set(ylim=(0, most * budget), ylabel=label)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
    strict.legend(frameon=False, loc="upper right")
    hits.set_ylabel("hits by meaning")
    level.set(ylabel="threshold in force", xlabel="requests")
    last = max((r.run.requests for r in results), default=0)
    for axis in (rate, strict, hits, level):
        axis.grid(color="#e4e4e4", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        if drift:
            axis.axvline(last / 2, color="#8c8c8c", linestyle=":", linewidth=1)
    figure.suptitle(f"Under an error budget, one line a seed ({len(results)})")
    try:
        figure.savefig(file, dpi=80)
    except OSError as error:
        raise UsageError(f"the plot cannot be written to {str(file)!r}: {error.strerror or error}") from error
