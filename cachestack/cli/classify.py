"""`cachestack classify`: label the rows of a file, over one kept prefix."""

from __future__ import annotations

import csv
import io
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import typer

from cachestack.classified import ClassifyReport, ClassifySummary, Label
from cachestack.cli.options import ModelOption, PoliciesOption, TenantOption
from cachestack.cli.output import (
    JsonOption,
    plain_table,
    print_error,
    print_json,
    print_table,
    stderr_console,
    warn,
)
from cachestack.errors import LabelError
from cachestack.items import (
    FIELDS,
    Format,
    ResultFile,
    ResultRow,
    check_apart,
    read_items,
    read_text,
    write_header,
    write_rows,
)
from cachestack.labelling import Scores

ColumnOption = Annotated[str, typer.Option("--column", metavar="NAME", help="CSV column or JSONL key of the text.")]
PromptOption = Annotated[str, typer.Option("--prompt", metavar="FILE", help="The stable system text.")]
TemplateOption = Annotated[str, typer.Option("--template", help="Makes an item's user message; {text} is replaced.")]
FormatOption = Annotated[
    Format | None, typer.Option("--format", help="Of the items; by default from the suffix or the first character.")
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N items.")]
LabelsOption = Annotated[
    str | None, typer.Option("--labels", metavar="A,B,C", help="Labels; one that holds a comma in double quotes.")
]
LabelsFileOption = Annotated[str | None, typer.Option("--labels-file", metavar="FILE", help="Labels, one a line.")]

MAX_WARNINGS = 20


def command(
    file: Annotated[str, typer.Argument(help="CSV with a header line, or JSONL; - is standard input.")],
    prompt: PromptOption,
    column: ColumnOption = "text",
    labels: LabelsOption = None,
    labels_file: LabelsFileOption = None,
    template: TemplateOption = "{text}",
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Results as .csv or .jsonl; - is CSV on stdout.")
    ] = None,
    scores: Annotated[
        Scores, typer.Option("--scores", help="Compare labels by sum, by mean per token, or corrected by their prior.")
    ] = "sum",
    min_probability: Annotated[
        float, typer.Option("--min-probability", metavar="P", help="Below this share (0 to 1) an item gets no label.")
    ] = 0.0,
    min_mass: Annotated[
        float, typer.Option("--min-mass", metavar="P", help="Nor where all labels together have less than this.")
    ] = 0.0,
    verify: Annotated[
        int, typer.Option("--verify", min=0, metavar="N", help="Compute N items again as whole prompts; compare.")
    ] = 0,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Compute all again as whole prompts; compare, and time both.")
    ] = False,
    tenant: TenantOption = "default",
    model: ModelOption = None,
    policies: PoliciesOption = None,
    format: FormatOption = None,
    limit: LimitOption = None,
    json: JsonOption = False,
) -> None:
    """Label each row of FILE with one of the labels.

    Exit status 1 if a compared label differs from that of the whole prompt, or if a row could not be scored.
    """
    if out is not None and out != "-":
        check_apart(out, file, prompt, labels_file)
    chosen = chosen_labels(labels, labels_file)
    assert chosen is not None, "labels are required here"
    if len(chosen) == 1:
        warn(f"there is one label only, {chosen[0]!r}, which every item gets; separate labels by commas")
    system = read_text(prompt, what="the stable system text")
    texts = read_items(file, column=column, format=format, limit=limit)
    from cachestack.stack import CacheStack

    with ExitStack() as ending:
        results = ResultFile(out) if out is not None and out != "-" else None
        if results is not None:
            ending.enter_context(_ended_in_order())  # to the very end: until the file is in its place
            ending.callback(_say_if_stopped, results, len(texts))
            ending.enter_context(results)
        write = None if json and results is None else _writer(results, out, texts)
        stack = ending.enter_context(CacheStack.local(model=model, encoder="none", policies=policies))
        progress = ending.enter_context(_progress_bar())
        report = stack.classify(
            texts,
            labels=chosen,
            prompt=system,
            template=template,
            tenant=tenant,
            scores=scores,
            min_probability=min_probability,
            min_mass=min_mass,
            verify=verify,
            baseline=baseline,
            progress=progress,
            on_results=write,
        )
    _print_report(report, texts, out=out, json=json)
    if not _passed(report.summary):
        raise typer.Exit(1)


def chosen_labels(labels: str | None, labels_file: str | None, *, required: bool = True) -> list[str] | None:
    """Labels from either option. Raises LabelError for none (where required) or both."""
    if labels is not None and labels_file is not None:
        raise LabelError("give --labels or --labels-file, not both")
    if labels_file is not None:
        lines = read_text(labels_file, what="one label a line").split("\n")
        return [line.strip() for line in lines if line.strip()]
    if labels is not None:
        try:
            rows = list(csv.reader(io.StringIO(labels, newline=""), skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise LabelError(f"--labels {labels!r} can't be read as a list with commas: {error}") from None
        if len(rows) > 1:
            raise LabelError(f"--labels {labels!r} has several lines; put one label a line into a file: --labels-file")
        return [label.strip() for row in rows for label in row]
    if required:
        raise LabelError("no labels were given; give --labels A,B,C or --labels-file FILE")
    return None


def _writer(results: ResultFile | None, out: str | None, texts: Sequence[str]) -> Any:
    """What takes results as they come: the file, CSV on stdout, or nothing where a table is printed at the end."""
    if results is not None:
        return lambda start, labels: results.write(_rows(start, labels, texts))
    if out is None and sys.stdout.isatty():
        return None
    if not texts:
        write_header(sys.stdout)

    def write(start: int, labels: Sequence[Label]) -> None:
        text = io.StringIO()
        if start == 0:
            write_header(text)
        write_rows(text, _rows(start, labels, texts), "csv")
        _write_stdout(text.getvalue())

    return write


def _rows(start: int, labels: Sequence[Label], texts: Sequence[str]) -> list[ResultRow]:
    return [
        ResultRow(i, texts[i], label.label, label.probability, label.mass, label.abstained, label.error)
        for i, label in enumerate(labels, start)
    ]


def _write_stdout(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def _say_if_stopped(results: ResultFile, num_items: int) -> None:
    if 0 < results.num_rows < num_items:
        warn(f"stopped after {results.num_rows} of {num_items} items; their results are in {results.path}")


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """SIGTERM, as a scheduler sends it, ends the run as Ctrl-C does: the rows so far become the file. A second one
    changes nothing."""

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only there can signals be handled
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    """A bar with items/s on stderr. It appears with the first call, when the model is open and work begins."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("classify"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    bar = Progress(*columns, console=stderr_console())
    task = bar.add_task("classify", total=None, rate="", start=False)
    began = 0.0

    def report(done: int, total: int) -> None:
        nonlocal began
        if not done:
            began = time.perf_counter()
            bar.start()
            bar.start_task(task)
        else:
            bar.update(task, rate=f"{done / (time.perf_counter() - began):.1f} items/s")
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()


def _print_report(report: ClassifyReport, texts: Sequence[str], *, out: str | None, json: bool) -> None:
    summary = report.summary
    if json:
        document = summary.to_json()
        if out is None or out == "-":
            document["results"] = [_result(i, label, texts[i]) for i, label in enumerate(report)]
        else:
            document["out"] = out
        print_json(document)
    elif out is None and sys.stdout.isatty():
        table = plain_table(*FIELDS)
        for row in _rows(0, report.results, texts):
            share, mass = ("" if v is None else f"{v:.3g}" for v in (row.probability, row.mass))
            table.add_row(
                str(row.item), row.text, row.label or "", share, mass, "yes" if row.abstained else "", row.error or ""
            )
        print_table(table)
    _warn_of_errors(report)
    if not json:
        stderr_console().print(_sentence(summary), markup=False, soft_wrap=True)
    if summary.label_mismatches:
        print_error(f"{summary.label_mismatches} of {summary.compared} labels differ from those of whole prompts")


def _warn_of_errors(report: ClassifyReport) -> None:
    failed = [(index, label.error) for index, label in enumerate(report) if label.error is not None]
    for index, error in failed[:MAX_WARNINGS]:
        warn(f"item {index} has no label: {error}")
    if len(failed) > MAX_WARNINGS:
        warn(f"{len(failed) - MAX_WARNINGS} more items have no label; the results say why for each")


def _result(index: int, label: Label, text: str) -> dict[str, Any]:
    return {
        "item": index,
        "text": text,
        "label": label.label,
        "probability": label.probability,
        "mass": label.mass,
        "scores": {name: score if math.isfinite(score) else None for name, score in label.scores.items()},
        "abstained": label.abstained,
        "why": label.why,
        "error": label.error,
    }


def _passed(summary: ClassifySummary) -> bool:
    return not summary.label_mismatches and not summary.num_errors


def _sentence(summary: ClassifySummary) -> str:
    parts = [f"{summary.num_items} items in {summary.seconds:.2f} s"]
    if summary.num_repeated:
        parts.append(f"{summary.num_repeated} asked before and not computed again")
    if summary.num_abstained:
        parts.append(f"{summary.num_abstained} without a label: none was certain enough")
    if summary.prefix_tokens:
        parts.append(f"prefix of {summary.prefix_tokens} tokens, {summary.cached_tokens} of them kept from before")
    elif summary.num_repeated < summary.num_items - summary.num_errors or not summary.num_repeated:
        parts.append(f"no prefix was reused ({summary.reason or 'no items'})")
    if summary.num_whole:
        parts.append(f"{summary.num_whole} items computed whole: they do not begin with the prefix")
    if summary.compared:
        parts.append(
            f"{summary.compared} compared with whole prompts: {summary.label_mismatches} labels differ, "
            f"largest logit difference {summary.max_logit_diff:.1e}"
        )
    if summary.speedup is not None:
        parts.append(f"whole prompts took {summary.baseline_s:.2f} s, {summary.speedup:.1f} times as long")
    return "; ".join(parts)
