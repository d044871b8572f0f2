"""Counting what the guards do, and the interval of a share."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cachestack.cli.eval import app
from cachestack.evaluation.guards import ALL, GuardPair, corpus_pairs, count, summarise_guards
from cachestack.evaluation.intervals import wilson

PAIRS = (
    GuardPair("Pay 10 euros", "Pay 20 euros", False, "number", "en"),
    GuardPair("Pay 10 euros", "Pay ten euros", True, "rewordings", "en"),
    GuardPair("Payer 10 euros", "Payer 20 euros", False, "number", "fr"),
    GuardPair("Open a box", "Open a tin", False, "entity", "en"),
)


def test_certain_and_doubt_are_counted_apart_by_kind_and_language() -> None:
    found = summarise_guards(count(PAIRS))
    assert (found["numbers"]["near_misses"]["certain"], found["numbers"]["near_misses"]["n"]) == (2, 3)
    assert found["numbers"]["near_misses_by_language"]["fr"]["certain"] == 1
    assert found["numbers"]["by_kind"]["entity"]["certain"] == 0
    assert found["numbers"]["rewordings"]["n"] == 1
    assert found["content"]["by_kind"]["entity"]["doubt"] == 1
    assert (found[ALL]["near_misses"]["certain"], found[ALL]["near_misses"]["doubt"]) == (2, 1)
    assert found[ALL]["rewordings"]["certain"] == 0


def test_rows_of_the_corpus_keep_kind_and_language() -> None:
    row = {"a": "x", "b": "y", "same_answer": False, "category": "date", "language": "fr"}
    same = row | {"same_answer": True, "category": "far_reworded"}
    assert [(p.kind, p.same_answer, p.language) for p in corpus_pairs([row, same])] == [
        ("date", False, "fr"),
        ("rewordings", True, "fr"),
    ]


@pytest.mark.parametrize(
    ("served", "n", "low", "high"),
    [(0, 10, 0.0, 0.27753), (10, 10, 0.72247, 1.0), (5, 10, 0.23659, 0.76341), (1, 100, 0.00177, 0.05449)],
)
def test_wilson(served: int, n: int, low: float, high: float) -> None:
    assert wilson(served, n) == pytest.approx((low, high), abs=1e-4)


def test_nothing_counted_says_nothing_and_impossible_counts_are_refused() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="2 of 1"):
        wilson(2, 1)


def test_the_command_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"a": p.a, "b": p.b, "same_answer": p.same_answer, "category": p.kind, "language": p.language} for p in PAIRS
    ]
    monkeypatch.setattr("cachestack.cli.eval.guards.pairs_of", lambda _: iter(rows))
    result = CliRunner().invoke(app, ["guards", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["split"] == "validation"
    assert found["guards"]["numbers"]["near_misses"]["certain"] == 2


def test_the_command_prints_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"a": p.a, "b": p.b, "same_answer": p.same_answer, "category": p.kind, "language": p.language} for p in PAIRS
    ]
    monkeypatch.setattr("cachestack.cli.eval.guards.pairs_of", lambda _: iter(rows))
    result = CliRunner().invoke(app, ["guards"])
    assert result.exit_code == 0, result.output
    assert "kind of near miss" in result.stdout
