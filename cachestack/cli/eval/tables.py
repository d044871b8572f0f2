"""What `eval pairs` and `eval corpus` print for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachestack.cli.output import plain_table, print_table

KINDS = (("should_hit", "should be served"), ("traps", "must not be served"))
CURVES = (("score", "guards, {scale}"), ("cosine", "cosine alone"))


def print_results(results: Mapping[str, Any]) -> None:
    """A few tables a file: rates, what decided, languages where there are several, the sweep where one was made."""
    for file, result in results.items():
        _print_rates(file, result)
        if len(result["by_language"]) > 1:
            _print_languages(result["by_language"])
        _print_deciders(result)
        if "sweep" in result:
            _print_sweep(result["sweep"])


def _print_rates(file: str, result: Mapping[str, Any]) -> None:
    from rich.markup import escape

    table = plain_table("", "pairs", "served", "rate", "95% interval", title=escape(file))
    for name, label in KINDS:
        _row(table, label, result[name])
        for category, share in result["by_category"].items():
            if bool(share["should_hit"]) == (name == "should_hit"):
                _row(table, f"  {category}", share)
    print_table(table)


def _print_languages(by_language: Mapping[str, Any]) -> None:
    table = plain_table("language", "pairs", "served", "rate", "95% interval")
    for language, shares in by_language.items():
        for name, label in KINDS:
            if shares[name]["n"]:
                _row(table, f"{language}: {label}", shares[name])
    print_table(table)


def _print_deciders(result: Mapping[str, Any]) -> None:
    kinds = result["decided_by_kind"]
    table = plain_table("decided by", "", "should be served", "must not be served")
    for fate in ("served", "missed"):
        should_hit, traps = (kinds[kind][fate] for kind in ("should_hit", "traps"))
        for reason in result["decided_by"]:
            if reason in should_hit or reason in traps:
                _cells(table, reason, fate, f"{should_hit.get(reason, 0):,}", f"{traps.get(reason, 0):,}")
    times = result["ms_per_decision"]
    if times["median"] is not None:
        table.caption = f"a decision, without embedding: median {times['median']:.2f} ms, 95% {times['p95']:.2f} ms"
        table.caption_justify = "left"
    print_table(table)


def _print_sweep(found: Mapping[str, Any]) -> None:
    table = plain_table("over thresholds", "traps ≤", "threshold", "should be served", "must not be served")
    _point(table, "policy as it is", "", found["policy"])
    for key, label in CURVES:
        for limit, point in found[key]["served_at"].items():
            at_most = f"{float(limit):.0%}"
            name = label.format(scale=found[key]["scale"])
            if point is None:
                _cells(table, name, at_most, "none", "", "")
            else:
                _point(table, name, at_most, point)
    print_table(table)


def _point(table: Any, name: str, at_most: str, point: Mapping[str, Any]) -> None:
    threshold = "" if point["threshold"] is None else f"{point['threshold']:.4f}"
    served, wrong = (f"{point[key]:.1%} ({_interval(point[f'{key}_interval'])})" for key in ("served", "wrong"))
    _cells(table, name, at_most, threshold, served, wrong)


def _row(table: Any, label: str, share: Mapping[str, Any]) -> None:
    _cells(
        table, label, f"{share['n']:,}", f"{share['served']:,}", f"{share['rate']:.1%}", _interval(share["interval"])
    )


def _interval(interval: list[float]) -> str:
    return f"{interval[0]:.1%} to {interval[1]:.1%}"


def _cells(table: Any, *cells: str) -> None:
    """Names come from files: a bracket in one is no markup."""
    from rich.markup import escape

    table.add_row(*(escape(cell) for cell in cells))
