"""`cachestack bench semantic`: right results are demanded, times are only looked for."""

from __future__ import annotations

import copy
import io
import json
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from cachestack.bench import semantic as semantic_module
from cachestack.bench.semantic_exact import exact_hits
from cachestack.bench.semantic_material import Population, Question, referring, texts_for
from cachestack.bench.semantic_report import Times
from cachestack.bench.semantic_tables import notes, tables
from cachestack.bench.tables import tables_as_markdown
from cachestack.cli.app import main
from cachestack.corpus import load_questions
from cachestack.models.catalogue import ALL_MINILM_L6_V2
from cachestack.policy import SemanticPolicy
from cachestack.semantic.language import by_meaning_refusal, identify
from cachestack.stack import CacheStack


@pytest.fixture(scope="module")
def run(encoder_path, tmp_path_factory):
    """What a quick run prints, how it ends, and what it leaves behind."""
    assert ALL_MINILM_L6_V2.name in str(encoder_path)
    out, err = io.StringIO(), io.StringIO()
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(tempfile, "tempdir", str(folder))
        status = main(["bench", "semantic", "--quick", "--json"])
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "left": list(folder.glob("cachestack*"))}


@pytest.fixture
def document(run):
    return json.loads(run["out"])


@pytest.fixture
def whole(document):
    """As of a run that measures, with figures that are made up."""
    from cachestack.bench.semantic_report import _targets

    document |= {"quick": False, "entries": 100_000, "recall_at_8": 0.995}
    document["exact"]["lookup"] = {"median_ms": 0.08, "p95_ms": 0.2, "p99_ms": 0.6}
    document["decision"]["after_embedding"]["p95_ms"] = 4.0
    document["targets"] = [target.to_json() for target in _targets(document)]
    return document


def test_a_quick_run_is_right_and_leaves_nothing(run, document):
    assert run["status"] == 0, run["err"]
    assert run["left"] == []
    assert "deciding" in run["err"]
    assert document["agreement"] == {"holds": True, "wrong": 0}
    assert document["targets"] == []
    assert document["index"] == "flat and graph"
    assert document["recall_at_8"] >= 0.99
    assert (document["entries"], document["quick"], document["full"]) == (600, True, False)
    for times in (*document["exact"].values(), document["decision"]["after_embedding"]):
        assert 0 < times["median_ms"] <= times["p95_ms"] <= times["p99_ms"]
    assert document["decision"]["candidates_above_the_lower_bound"] > 1
    assert set(document["embedding"]["ratio"]) == {"median", "low", "high"}
    assert {"puts_per_s", "load_s", "build_s", "restart_s", "bulk_ms_a_write"} <= set(document["filling"])
    assert document["memory"]["index_bytes"] > 1000
    assert {"cpu", "cores", "versions", "load_average"} <= set(document["machine"])


def test_targets_are_met_or_not(whole):
    met = {t["name"]: t["met"] for t in whole["targets"]}
    assert met["exact hit, look-up, median ms"]
    assert not met["exact hit, look-up, 99% ms"]
    assert met["decision after embedding, 100,000 entries, 95% ms"]
    assert met["recall at 8 against flat, 100,000 entries"]
    assert not any("GiB" in name for name in met)


def test_tables_say_what_the_document_says(whole):
    text = tables_as_markdown(tables(whole), notes(whole))
    assert "| exact hit: the look-up | 0.080 | 0.200 | 0.600 |" in text
    assert "| exact hit, look-up, 99% ms | 0.6 | at most 0.5 | NO |" in text
    for table in tables(whole):
        assert all(len(row) == len(table.head) for row in table.rows)
        assert all(len("  ".join(row)) <= 80 for row in table.rows)
    whole["machine"]["busy"] = True
    assert any("busy" in note for note in notes(whole))


def test_wrong_results_end_with_status_1(document, monkeypatch, capsys):
    wrong = copy.deepcopy(document)
    wrong["agreement"] = {"holds": False, "wrong": 3}

    class Found:
        def to_json(self):
            return wrong

    monkeypatch.setattr(semantic_module, "bench_semantic", lambda *_, **__: Found())
    assert main(["bench", "semantic"]) == 1
    assert "3 wrong" in capsys.readouterr().out


def test_an_interrupted_run_leaves_nothing(encoder_path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupted(*_):
        assert list(tmp_path.glob("cachestack*"))
        raise KeyboardInterrupt

    monkeypatch.setattr(semantic_module, "_embedded", interrupted)
    assert main(["bench", "semantic", "--quick"]) == 130
    assert list(tmp_path.glob("cachestack*")) == []


@pytest.mark.parametrize(
    ("arguments", "says"), [(["--json", "--markdown"], "both print to stdout"), (["--full", "--quick"], "give one")]
)
def test_wrong_calls_exit_2(arguments, says, capsys):
    assert main(["bench", "semantic", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_question_much_like_a_kept_one_is_kept_itself(encoder_path, tmp_path):
    alike = ("set timer 15 min", "set a timer for 15 minutes")
    with CacheStack.without_engine(encoder=str(encoder_path), home=tmp_path) as stack:
        measured = exact_hits(stack, alike, 4, lambda *_: None, time.perf_counter)
        assert measured.num_wrong == 0
        assert stack.compare(*alike).serves


def test_the_material_is_of_the_training_part_and_varied():
    texts = texts_for(200, 40)
    train = {q.text for q in load_questions("train")}
    assert set(texts.kept) <= train
    assert len(set(texts.kept)) == 200
    assert len(texts.asked) == 40
    assert not set(texts.asked) & set(texts.kept)
    assert {
        by_meaning_refusal(identify(t), frozenset({"en"}), SemanticPolicy()) for t in texts_for(2000, 300).asked
    } == {None}
    draw = np.random.default_rng(0).standard_normal((3, 8)).astype("<f4")
    draw /= np.linalg.norm(draw, axis=1, keepdims=True)
    kept = [Question(f"Question {i}?", v.tobytes(), "e", b"") for i, v in enumerate(draw)]
    population = Population(kept, 500)
    entries = [population.entry(number) for number in range(500)]
    assert len({entry.question for entry in entries}) == 500
    assert len({entry.exact for entry in entries}) == 500
    assert np.allclose(np.linalg.norm(population.vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(population.vectors[:3], draw, atol=1e-6)
    cosines = [float(population.vectors[i] @ draw[i % 3]) for i in range(3, 500)]
    assert 0.3 < min(cosines) < max(cosines) <= 1.0001
    assert sum(entry.contract == population.rare.digest for entry in entries) == 5
    assert entries[4].question == referring("Question 1?", 4)


def test_times_are_of_all_calls():
    assert Times.of([0.001 * i for i in range(1, 101)]).to_json() == {"median_ms": 50.5, "p95_ms": 95.0, "p99_ms": 99.0}


def test_no_file_of_the_benchmark_names_a_path_of_the_machine(run):
    assert str(Path.home()) not in run["out"]
