"""`cachestack measure`: whether keeping a prompt would pay, before anything is changed."""

from __future__ import annotations

from typing import Annotated

import typer

from cachestack.cli.classify import (
    ColumnOption,
    FormatOption,
    LabelsFileOption,
    LabelsOption,
    LimitOption,
    PromptOption,
    TemplateOption,
    chosen_labels,
)
from cachestack.cli.options import ModelOption
from cachestack.cli.output import JsonOption, plain_table, print_json, print_table
from cachestack.items import read_items, read_text
from cachestack.measure import MeasureReport, Range


def command(
    prompt: PromptOption,
    items: Annotated[str, typer.Option("--items", metavar="FILE", help="CSV or JSONL; - is standard input.")],
    column: ColumnOption = "text",
    template: TemplateOption = "{text}",
    labels: LabelsOption = None,
    labels_file: LabelsFileOption = None,
    model: ModelOption = None,
    format: FormatOption = None,
    limit: LimitOption = None,
    json: JsonOption = False,
) -> None:
    """What keeping the prompt would save for these items on this machine, and a verdict with its reason."""
    chosen = chosen_labels(labels, labels_file, required=False)
    system = read_text(prompt, what="the stable system text")
    texts = read_items(items, column=column, format=format, limit=limit)
    from cachestack.stack import CacheStack

    with CacheStack.local(model=model, encoder="none") as stack:
        report = stack.measure(system, texts, template=template, labels=chosen)
    if json:
        print_json(report.to_json())
    else:
        _print(report)


def _print(report: MeasureReport) -> None:
    table = plain_table("", "", title=f"verdict: {report.verdict}")
    table.add_row("why", report.reason)
    table.add_row("items", f"{report.num_items:,}" + (f", {report.num_errors} unusable" if report.num_errors else ""))
    table.add_row("prefix", f"{report.prefix_tokens:,} tokens")
    table.add_row("prompt", f"{_range(report.prompt_tokens, ',.0f')} tokens")
    table.add_row("static share", _range(report.static_share, ".0%"))
    clean = "every item" if not report.num_unclean else f"all but {report.num_unclean} items"
    table.add_row("token-clean", clean)
    if report.collisions is not None:
        groups = "; ".join(", ".join(group) for group in report.collisions)
        same = f"same first token, so scored whole: {groups}" if groups else "distinct first tokens"
        table.add_row("labels", same)
    if (timing := report.timing) is not None:
        table.add_row("whole prompt", f"{timing.whole_ms:.1f} ms an item")
        table.add_row("kept prefix", f"{timing.packed_ms:.1f} ms an item, {timing.prefix_ms:.0f} ms once")
    print_table(table)


def _range(values: Range, form: str) -> str:
    return f"{values.min:{form}} / {values.median:{form}} / {values.max:{form}} (min / median / max)"
