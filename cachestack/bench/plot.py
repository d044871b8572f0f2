"""A report's document as a picture: times by column, and ratios with their intervals."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from cachestack.bench.markdown import COLUMNS, RATIOS
from cachestack.bench.targets import PACKED_AT_LEAST, SINGLE_AT_MOST
from cachestack.errors import MissingExtra, UsageError

COLOURS = {
    "whole_ms": "#8c8c8c",
    "recipe_ms": "#c9a227",
    "single_ms": "#2a7f9e",
    "packed_ms": "#174a5e",
    "floor_ms": "#d9d9d9",
    "peer_ms": "#a4508b",
}
BOUNDS = {"single_over_floor": SINGLE_AT_MOST, "whole_over_packed": PACKED_AT_LEAST}
EXTRA = "plot"


def require_matplotlib(file: Path) -> None:
    """Before anything is measured. Raises MissingExtra, and UsageError for a file that cannot be made."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", EXTRA)
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {str(file.parent)!r} for the plot; make it, or give another file")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(f"a plot cannot be written to {str(file)!r}; give another file")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kinds = FigureCanvasAgg.get_supported_filetypes()
    if file.suffix.removeprefix(".").lower() not in kinds:
        raise UsageError(f"a plot cannot be written as {file.name!r}; endings: {', '.join(sorted(kinds))}")


def plot(document: Mapping[str, Any], file: Path) -> None:
    """Writes `file`, in the format of its ending. Raises what `require_matplotlib` raises."""
    require_matplotlib(file)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    prefixes = document["prefix"]
    figure = Figure(figsize=(4.8 * len(prefixes) + 1.6, 8.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(prefixes), squeeze=False, height_ratios=(3, 2))
    for column, (tokens, figures) in enumerate(prefixes.items()):
        _bars(axes[0][column], figures)
        axes[0][column].set_title(
            f"prefix of {tokens} tokens, {document['suffix_tokens']} new ones an item", fontsize=11
        )
        _intervals(axes[1][column], figures, tokens)
    machine = document["machine"]
    busy = "; the machine was BUSY" if machine["busy"] else ""
    quick = "; a quick run" if document["quick"] else ""
    about = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads; {machine['model']} "
        f"{machine['dtype']}, torch {machine['versions']['torch']}, "
        f"transformers {machine['versions']['transformers']}{busy}{quick}"
    )
    figure.suptitle("Time an item takes, and paired ratios with their intervals", fontsize=13)
    figure.supxlabel(fill(about, 60 * len(prefixes)), fontsize=8, color="#444444")
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise UsageError(f"the plot cannot be written to {str(file)!r}: {error.strerror or error}") from error


def _bars(axis: Any, figures: Mapping[str, Any]) -> None:
    names = [name for name in COLUMNS if name in figures]
    values = [figures[name] for name in names]
    bars = axis.barh([fill(COLUMNS[name], 18) for name in names], values, color=[COLOURS[name] for name in names])
    axis.bar_label(bars, labels=[f"{value:.0f} ms" for value in values], padding=3, fontsize=9)
    axis.invert_yaxis()
    axis.set_xlim(0, 1.18 * max(values))
    axis.set_xlabel("milliseconds an item", fontsize=9)
    axis.tick_params(labelsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def _intervals(axis: Any, figures: Mapping[str, Any], tokens: str) -> None:
    """On a logarithmic axis: a ratio of 30 and one of 1.1 in one picture."""
    names = [name for name in RATIOS if name in figures["ratios"]]
    for place, name in enumerate(names):
        ratio = figures["ratios"][name]
        middle = ratio["median"]
        spread = [[middle - ratio["low"]], [ratio["high"] - middle]]
        axis.errorbar(middle, place, xerr=spread, fmt="o", color="#174a5e", capsize=4)
        beside = (ratio["high"], place)
        axis.annotate(f"{middle:.2f}", beside, xytext=(9, 0), textcoords="offset points", va="center", fontsize=9)
        if (bound := BOUNDS.get(name, {}).get(tokens)) is not None:
            axis.plot([bound, bound], [place - 0.35, place + 0.35], color="#b3261e", linewidth=2)
    axis.set_xscale("log")
    highest = max(figures["ratios"][name]["high"] for name in names)
    lowest = min(figures["ratios"][name]["low"] for name in names)
    axis.set_xlim(0.8 * min(lowest, 1), 1.6 * max(highest, 2))
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100) if 0.8 * min(lowest, 1) <= tick <= 1.6 * max(highest, 2)]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.axvline(1, color="#bbbbbb", linewidth=1, zorder=0)
    axis.set_yticks(range(len(names)), [fill(RATIOS[name], 18) for name in names], fontsize=9)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlabel("ratio (red: the aim)", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
