"""Replays of streams: the same decisions as the pipeline's, and a budget that is held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from cachestack.cli.app import build_app
from cachestack.corpus.load import load_questions
from cachestack.decisions import Layer
from cachestack.errors import InputFileError
from cachestack.evaluation.judging import embed_all, languages_of
from cachestack.evaluation.stream_corpus import clusters_of, draw
from cachestack.evaluation.stream_file import read_stream
from cachestack.evaluation.stream_material import Asked, Material
from cachestack.evaluation.stream_replay import (
    Fixed,
    Order,
    StreamRun,
    at_all_fixed,
    at_fixed,
    best_by_meaning,
    best_of_all,
    replay,
)
from cachestack.evaluation.stream_report import SeedResult, summarise
from cachestack.policy import Policy
from cachestack.requests import Generation, Request
from cachestack.semantic.budget.curve import GRID

if TYPE_CHECKING:
    from collections.abc import Generator

    from cachestack.semantic.embed import SentenceEncoder
    from tests.core.conftest import MakeStack

BUDGET = Policy.model_validate({"budget": {"max_wrong_hit_rate": 0.02, "min_audits": 1}})
NUM = 600


@pytest.fixture(scope="module")
def prepared(encoder: SentenceEncoder) -> tuple[Material, list[Asked], Order]:
    clusters = clusters_of(load_questions("validation"))[:60]
    asked = draw(clusters, NUM, 3, near_misses=0.3)
    material = Material(BUDGET)
    order = Order([material.number(a) for a in asked], [a.label for a in asked])
    material.prepare(embed_all([q.text for q in material.questions], encoder, lambda *_: None), languages_of(encoder))
    return material, asked, order


def said(label: str) -> str:
    return f"The form for {label} is in the drawer on the second floor."


class Labelling:
    """Answers with the label of the request under way."""

    name = model = "labels"
    label = ""

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        text = said(self.label)
        yield text
        return Generation(text)


@pytest.mark.parametrize("budgeted", [False, True])
def test_a_replay_decides_as_the_pipeline_does(
    prepared: tuple[Material, list[Asked], Order], make_stack: MakeStack, budgeted: bool
) -> None:
    """Request by request through a stack: as many hits, exact and by meaning, as many of them wrong, as many audits."""
    material, asked, order = prepared
    engine = Labelling()
    text = (
        "default: {budget: {max_wrong_hit_rate: 0.02, min_audits: 1, max_audits_per_hour: 100000}}" if budgeted else ""
    )
    stack = make_stack(text, engines={"e": engine})
    stack.budgets.compare = lambda x, y, _: x == y
    stack.budgets._draw = lambda: 0.5
    found = {"exact": 0, "semantic": 0, "wrong": 0}
    for one in asked:
        engine.label = one.label
        response = stack.chat(one.text, tenant="stream")
        assert stack.budgets.wait(30)
        source = response.trace.served_from
        if source in found:
            found[source] += 1
            found["wrong"] += response.text != said(one.label)
        assert response.trace.step(Layer.SEMANTIC) is not None
    if not budgeted:
        fixed = at_fixed(material, order, BUDGET.semantic.accept_score)
        assert found == {"exact": fixed.exact_hits, "semantic": fixed.meaning_hits, "wrong": fixed.wrong_hits}
        return
    run = replay(material, order, BUDGET, seed=0)
    audits = sum(r.audits for r in stack.stats().budgets["stream"].values())
    del audits
    # audits are drawn otherwise here: what is served before the first of them must be the same
    assert found["exact"] + found["semantic"] == pytest.approx(run.hits, abs=6)


def test_a_replay_is_the_same_for_the_same_seed(prepared: tuple[Material, list[Asked], Order]) -> None:
    material, _, order = prepared
    one, other = (replay(material, order, BUDGET, seed=4) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("budget", [0.002, 0.02, 0.5])
def test_the_oracles_are_the_best_fixed_thresholds_that_hold(
    prepared: tuple[Material, list[Asked], Order], budget: float
) -> None:
    material, _, order = prepared
    tried = at_all_fixed(material, order)
    assert [fixed.threshold for fixed in tried] == [None, *reversed(GRID)]
    of_all, by_meaning = best_of_all(tried, budget), best_by_meaning(tried, budget)
    assert of_all.wrong_hits <= budget * of_all.hits
    assert by_meaning.wrong_meaning_hits <= budget * by_meaning.meaning_hits
    for fixed in tried:
        assert fixed.hits <= of_all.hits or fixed.wrong_hits > budget * fixed.hits
        strict = fixed.wrong_meaning_hits > budget * fixed.meaning_hits
        assert fixed.meaning_hits <= by_meaning.meaning_hits or strict
    assert of_all.hits >= tried[0].hits == tried[0].exact_hits, "nothing by meaning holds it here"


def test_the_two_oracles_differ_where_exact_hits_pay_for_wrong_ones() -> None:
    strict, loose = Fixed(1000, 0, 10, 0, 0.94), Fixed(950, 0, 100, 5, 0.8)
    tried = [Fixed(1005), strict, loose]
    assert best_of_all(tried, 0.01) is loose
    assert best_by_meaning(tried, 0.01) is strict
    assert best_by_meaning([Fixed(1005), loose], 0.01).threshold is None, "where none holds it, none is served"


def test_an_exact_hit_with_another_label_is_wrong(encoder: SentenceEncoder) -> None:
    """As in a file whose answers move: the stored one is served."""
    asked = [Asked("How do I reset my password?", label) for label in ("a", "a", "b", "b")]
    material = Material(BUDGET)
    order = Order([material.number(a) for a in asked], [a.label for a in asked])
    material.prepare(embed_all([asked[0].text], encoder, lambda *_: None), languages_of(encoder))
    for found in (replay(material, order, BUDGET, 0), at_fixed(material, order, 0.9)):
        assert (found.exact_hits, found.wrong_exact_hits, found.meaning_hits) == (3, 2, 0)
    result = summarise([SeedResult(0, replay(material, order, BUDGET, 0), at_all_fixed(material, order))], 0.02)
    assert (result["hits"], result["wrong_hits"], result["held"]) == (3, 2, False)
    assert result["by_meaning"]["held"]


def test_the_budget_sees_no_label_of_a_hit_that_was_not_audited(prepared: tuple[Material, list[Asked], Order]) -> None:
    """With no audits at all, labels of served answers can be anything: nothing the budget does depends on them."""
    material, _, order = prepared
    blind = Policy.model_validate({"budget": {"max_wrong_hit_rate": 0.02, "audit_share": 0.0, "min_audits": 0}})
    run = replay(material, order, blind, seed=0)
    assert run.audits == 0
    assert all(report.audits == 0 for report in run.reports.values())


def test_seeds_are_summed_and_judged(prepared: tuple[Material, list[Asked], Order]) -> None:
    material, _, order = prepared
    tried = at_all_fixed(material, order)
    results = [SeedResult(s, replay(material, order, BUDGET, s), tried) for s in range(2)]
    found = summarise(results, 0.02)
    strict = found["by_meaning"]
    assert found["requests"] == strict["requests"] == 2 * NUM
    assert found["hits"] == sum(r.run.exact_hits + r.run.meaning_hits for r in results)
    assert strict["hits"] == sum(r.run.meaning_hits for r in results)
    assert found["oracle_hits"] == 2 * best_of_all(tried, 0.02).hits
    assert strict["oracle_hits"] == 2 * best_by_meaning(tried, 0.02).meaning_hits
    for seed in found["seeds"]:
        assert seed["exact_hits"] + seed["by_meaning"]["hits"] == seed["hits"] <= NUM
        assert set(seed["by_meaning"]) <= set(seed)


def test_the_budget_is_judged_over_all_hits_and_by_meaning_apart() -> None:
    """3 wrong of 100 by meaning, and of 1,000 in all: 1% is held over all, and not by meaning; audits likewise."""
    runs = [StreamRun(900, 0, 100, 3, requests=1200, audits=20), StreamRun(900, 0, 100, 1, requests=1200, audits=2)]
    tried = [Fixed(980), Fixed(900, 0, 90, 0, 0.94)]
    found = summarise([SeedResult(n, run, tried) for n, run in enumerate(runs)], 0.01)
    strict = found["by_meaning"]
    assert (found["hits"], found["wrong_hits"], found["wrong_per_hit"]) == (2000, 4, 0.002)
    assert (strict["hits"], strict["wrong_hits"], strict["wrong_per_hit"]) == (200, 4, 0.02)
    assert (found["held"], found["num_held"], found["num_audits_within"]) == (True, 2, 2)
    assert (strict["held"], strict["num_held"], strict["num_audits_within"]) == (False, 1, 1)
    assert [seed["by_meaning"]["held"] for seed in found["seeds"]] == [False, True]
    assert (found["oracle_hits"], strict["oracle_hits"]) == (1980, 180)
    assert found["exact_only_hits"] == 1960
    assert found["interval"][1] < strict["interval"][0]


def test_a_stream_of_the_corpus_is_drawn_as_it_says() -> None:
    clusters = clusters_of(load_questions("validation"))
    texts = [a.text.strip() for c in clusters for a in (*c.same, *c.near)]
    assert len(texts) == len(set(texts)), "a text has one answer"
    asked = draw(clusters, 5000, 1, near_misses=0.2)
    share = sum("/" in a.label for a in asked) / 5000
    assert 0.15 < share < 0.25
    assert draw(clusters, 50, 1) == draw(clusters, 50, 1) != draw(clusters, 50, 2)
    drifted = draw(clusters, 10_000, 1, near_misses=0.2, drift=True)
    first, second = (sum("/" in a.label for a in part) for part in (drifted[:5000], drifted[5000:]))
    assert second > 1.5 * first


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"text": "a"}',
        '{"label": "x"}',
        '{"text": "a", "messages": [], "label": "x"}',
        '{"text": "", "label": "x"}',
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text('{"text": "Where is it?", "label": "a"}\n' + line + "\n")
    with pytest.raises(InputFileError, match="line 2"):
        read_stream(str(file))


def test_messages_with_another_history_are_another_contract(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    turns = [
        [
            {"role": "user", "content": a},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": "And now?"},
        ]
        for a in "xy"
    ]
    file.write_text("".join(json.dumps({"messages": t, "label": 1}) + "\n" for t in turns))
    one, other = read_stream(str(file))
    assert one.text == other.text
    assert one.contract != other.contract


def test_the_command(tmp_path: Path, encoder_path: Path) -> None:
    file, plot = tmp_path / "s.jsonl", tmp_path / "over_time.png"
    asked = draw(clusters_of(load_questions("validation"))[:20], 150, 1)
    file.write_text("".join(json.dumps({"text": a.text, "label": a.label}) + "\n" for a in asked))
    run = CliRunner().invoke(
        build_app(("eval",)),
        [
            "eval",
            "stream",
            str(file),
            "--budget",
            "0.02",
            "--seeds",
            "2",
            "--json",
            "--plot",
            str(plot),
            "--encoder",
            str(encoder_path),
        ],
    )
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    for key in (
        "requests",
        "hits",
        "wrong_hits",
        "wrong_per_hit",
        "interval",
        "budget",
        "held",
        "audits",
        "oracle_hits",
    ):
        for part in (found, found["by_meaning"], found["seeds"][0], found["seeds"][0]["by_meaning"]):
            assert key in part
    assert found["hits"] == found["exact_hits"] + found["by_meaning"]["hits"]
    assert plot.stat().st_size > 10_000


def test_the_table_shows_both_readings(tmp_path: Path, encoder_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    texts = ["How do I reset my password?", "How can I reset my password?", "How do I reset my password?"]
    file.write_text("".join(json.dumps({"text": text, "label": "a"}) + "\n" for text in texts))
    run = CliRunner().invoke(
        build_app(("eval",)), ["eval", "stream", str(file), "--budget", "0.05", "--encoder", str(encoder_path)]
    )
    assert run.exit_code == 0, run.output
    shown = " ".join(run.stdout.split())
    assert "budget 5.0% of all served hits, held in 1 of 1" in shown
    assert "hits by meaning alone (what the budget acts on): held in 1 of 1" in shown


@pytest.mark.parametrize(
    "arguments",
    [[], ["--corpus", "test"], ["x.jsonl", "--drift", "--budget", "0.01"], ["--corpus", "test", "--budget", "2"]],
)
def test_wrong_calls_are_named(arguments: list[str]) -> None:
    run = CliRunner().invoke(build_app(("eval",)), ["eval", "stream", *arguments])
    assert run.exit_code != 0
