"""From pairs to their report: judged, counted, swept, written and printed. `eval pairs` and `eval corpus` end here."""

from __future__ import annotations

import json as json_
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachestack.cli.eval.options import check_plot, open_encoder
from cachestack.cli.eval.tables import print_results
from cachestack.cli.output import is_encodable, print_json, stage_bars
from cachestack.errors import InputFileError
from cachestack.evaluation.pairs import Pair
from cachestack.policy import Policy


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be made of the pairs, besides the counts. `mistakes` and `sweep` are files to write."""

    policy: Policy
    encoder: str
    json: bool
    mistakes: Path | None = None
    sweep: Path | None = None


def report_on(by_file: Mapping[str, Sequence[Pair]], wanted: Wanted) -> None:
    """Judge the pairs of each file and print what was found, as tables or as one JSON document."""
    check_plot(wanted.sweep)
    from cachestack.evaluation.counting import summarise
    from cachestack.evaluation.judging import decide_pairs, embed_pairs, languages_of, mistake_rows
    from cachestack.evaluation.scores import with_open_bands
    from cachestack.evaluation.sweep import sweep

    encoder = open_encoder(wanted.encoder)
    pairs = [pair for some in by_file.values() for pair in some]
    with stage_bars("pairs") as report:
        embeddings = embed_pairs(pairs, encoder, report)
        languages = languages_of(encoder)
        outcomes = decide_pairs(pairs, wanted.policy, languages, embeddings, report)
        opened = outcomes[:0]
        if wanted.sweep is not None:
            policy = with_open_bands(wanted.policy)
            opened = decide_pairs(pairs, policy, languages, embeddings, report, "sweep")
    results: dict[str, Any] = {}
    start = 0
    for file, some in by_file.items():
        part = slice(start, start + len(some))
        results[file] = summarise(outcomes[part])
        if wanted.sweep is not None:
            results[file]["sweep"] = sweep(outcomes[part], opened[part]).as_dict()
        start += len(some)
    if wanted.mistakes is not None:
        write_rows(wanted.mistakes, mistake_rows(outcomes))
    if wanted.sweep is not None:
        from cachestack.evaluation.sweep_plot import plot_sweeps

        plot_sweeps({file: result["sweep"] for file, result in results.items()}, wanted.sweep)
    if wanted.json:
        print_json({"files": results})
    else:
        print_results(results)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """As JSONL. Raises InputFileError."""
    try:
        with path.open("w", encoding="utf-8") as file:
            for row in rows:
                line = json_.dumps(row, ensure_ascii=False)
                file.write((line if is_encodable(line, "utf-8") else json_.dumps(row)) + "\n")
    except OSError as error:
        raise InputFileError(f"{path} cannot be written: {error}") from error
