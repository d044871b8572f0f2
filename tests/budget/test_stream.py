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
from cachestack.evaluation.stream_replay import Order, at_fixed, oracle, replay
from cachestack.evaluation.stream_report import SeedResult, summarise
from cachestack.policy import Policy
from cachestack.requests import Generation, Request

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


class Labelling:
    """Answers with the label of the request under way."""

    name = model = "labels"
    label = ""

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield self.label
        return Generation(self.label)


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
            found["wrong"] += response.text != one.label
        assert response.trace.step(Layer.SEMANTIC) is not None
    if not budgeted:
        fixed = at_fixed(material, order, BUDGET.semantic.accept_score)
        assert found == {"exact": fixed.exact_hits, "semantic": fixed.hits, "wrong": fixed.wrong_hits}
        return
    run = replay(material, order, BUDGET, seed=0)
    audits = sum(r.audits for r in stack.stats().budgets["stream"].values())
    del audits
    # audits are drawn otherwise here: what is served before the first of them must be the same
    assert found["exact"] + found["semantic"] == pytest.approx(run.exact_hits + run.hits, abs=6)


def test_a_replay_is_the_same_for_the_same_seed(prepared: tuple[Material, list[Asked], Order]) -> None:
    material, _, order = prepared
    one, other = (replay(material, order, BUDGET, seed=4) for _ in range(2))
    assert (one.hits, one.wrong_hits, one.audits, one.changes) == (
        other.hits,
        other.wrong_hits,
        other.audits,
        other.changes,
    )


def test_the_oracle_is_the_best_fixed_threshold_that_holds(prepared: tuple[Material, list[Asked], Order]) -> None:
    material, _, order = prepared
    best = oracle(material, order, 0.02)
    assert best.wrong_hits <= 0.02 * best.hits
    for threshold in (0.5, 0.75, 0.94):
        fixed = at_fixed(material, order, threshold)
        assert fixed.hits <= best.hits or fixed.wrong_hits > 0.02 * fixed.hits


def test_the_budget_sees_no_label_of_a_hit_that_was_not_audited(prepared: tuple[Material, list[Asked], Order]) -> None:
    """With no audits at all, labels of served answers can be anything: nothing the budget does depends on them."""
    material, _, order = prepared
    blind = Policy.model_validate({"budget": {"max_wrong_hit_rate": 0.02, "audit_share": 0.0, "min_audits": 0}})
    run = replay(material, order, blind, seed=0)
    assert run.audits == 0
    assert all(report.audits == 0 for report in run.reports.values())


def test_seeds_are_summed_and_judged(prepared: tuple[Material, list[Asked], Order]) -> None:
    material, _, order = prepared
    results = [SeedResult(s, replay(material, order, BUDGET, s), oracle(material, order, 0.02)) for s in range(2)]
    found = summarise(results, 0.02)
    assert found["requests"] == 2 * NUM
    assert found["hits"] == sum(r.run.hits for r in results)
    assert found["num_held"] == sum(r.run.wrong_hits <= 0.02 * r.run.hits for r in results)
    for seed in found["seeds"]:
        assert seed["exact_hits"] + seed["hits"] == seed["all_hits"] <= NUM


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
        "exact_hits",
    ):
        assert key in found
        assert key in found["seeds"][0]
    assert plot.stat().st_size > 10_000


@pytest.mark.parametrize(
    "arguments",
    [[], ["--corpus", "test"], ["x.jsonl", "--drift", "--budget", "0.01"], ["--corpus", "test", "--budget", "2"]],
)
def test_wrong_calls_are_named(arguments: list[str]) -> None:
    run = CliRunner().invoke(build_app(("eval",)), ["eval", "stream", *arguments])
    assert run.exit_code != 0
