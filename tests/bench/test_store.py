"""`cachestack bench store`: right results are demanded, times are only looked for."""

from __future__ import annotations

import copy
import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout

import pytest

from cachestack.bench import store_servers, store_work
from cachestack.bench.store_material import ENCODER, population
from cachestack.bench.store_report import _targets
from cachestack.bench.store_subject import NAMES, PREFIX, opened
from cachestack.bench.store_tables import notes, tables
from cachestack.bench.tables import tables_as_markdown
from cachestack.cli.app import main
from tests.redis_server import RedisServer


def bench(*options: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["bench", "store", *options])
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def run(redis_server: RedisServer, tmp_path_factory):
    """What a quick run prints, how it ends, and what it leaves behind."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        status, out, err = bench("--quick", "--json", "--redis", redis_server.url)
    keys = list(redis_server.client().scan_iter(f"{PREFIX}*"))
    return {"status": status, "out": out, "err": err, "left": [*folder.glob("cachestack*"), *keys]}


@pytest.fixture
def document(run):
    return json.loads(run["out"])


@pytest.fixture
def whole(document):
    """As of a run that measures, with figures that are made up."""
    document["quick"] = False
    figures = document["stores"]["redis"]
    figures["100000"] = copy.deepcopy(figures.pop("200"))
    figures["100000"]["exact_over_get"]["median"] = 1.6
    figures["100000"]["exact"]["round_trips"] = 1
    figures["100000"]["semantic"] |= {"p95_ms": 9.0, "round_trips": 2}
    document["targets"] = [target.to_json() for target in _targets(document)]
    return document


def test_a_quick_run_is_right_and_leaves_nothing(run, document):
    assert run["status"] == 0, run["err"]
    assert run["left"] == []
    assert document["agreement"] == {"holds": True, "wrong": 0, "missed": 0}
    assert document["targets"] == []
    assert tuple(document["stores"]) == NAMES
    assert document["redis"].startswith("Redis 8")
    for name, sizes in document["stores"].items():
        (figures,) = sizes.values()
        for kind in ("exact", "semantic"):
            assert 0 < figures[kind]["median_ms"] <= figures[kind]["p95_ms"] <= figures[kind]["p99_ms"]
            assert set(figures[kind]["per_s"]) == ({"1"} if name == "memory" else {"1", "4"})
        assert ("exact_over_get" in figures) is (name == "redis")


def test_round_trips_are_counted(document):
    redis = document["stores"]["redis"]["200"]
    assert redis["exact"]["round_trips"] == 1
    assert redis["semantic"]["round_trips"] == 2
    assert document["stores"]["disk"]["200"]["exact"]["round_trips"] == 0


def test_targets_are_met_or_not(whole):
    met = {t["name"]: t["met"] for t in whole["targets"]}
    assert not met["exact hit through Redis over a bare GET, 100,000 entries"]
    assert met["round trips of an exact look-up, 100,000 entries"]
    assert met["round trips of a look-up by meaning, 100,000 entries"]
    assert met["search of 100,000 entries, redis, 95% ms"]


def test_tables_and_notes_say_what_was_measured(whole):
    text = tables_as_markdown(tables(whole), notes(whole))
    assert "| redis + memory | 200 |" in text
    assert "| redis | 100,000 |" in text
    assert "over a bare GET, 100,000 entries: 1.60" in text
    assert "Results: 0 exact look-ups wrong; 0 by meaning" in text


def test_without_a_server_redis_is_left_out(monkeypatch):
    monkeypatch.setattr(store_servers, "redis_server_program", lambda: None)
    status, out, _ = bench("--quick", "--json")
    assert status == 0
    assert set(json.loads(out)["stores"]) == {"memory", "disk"}
    assert json.loads(out)["redis"] is None


def test_a_server_that_does_not_answer_is_said(tmp_path):
    status, out, err = bench("--quick", "--redis", f"unix://{tmp_path}/nobody.sock")
    assert (status, out) == (2, "")
    assert "Redis does not answer" in err


def test_a_wrong_look_up_is_counted_and_ends_with_1(monkeypatch, redis_server):
    """A store that gives the entry of another question."""
    from cachestack.stores.memory import MemoryStore

    find, seen = MemoryStore.find_exact, []

    def wrong(self, partition, exact):
        seen.append(exact)
        return find(self, partition, seen[0])

    monkeypatch.setattr(MemoryStore, "find_exact", wrong)
    monkeypatch.setattr(store_servers, "redis_server_program", lambda: None)
    status, out, _ = bench("--quick", "--json")
    assert status == 1
    assert json.loads(out)["agreement"]["wrong"] > 30


def test_what_is_checked_by_meaning_is_the_entry_itself(tmp_path):
    material = population(50)
    with opened("memory", tmp_path, None) as subject:
        for number in range(49):
            subject.store.put(material.entry(number))
        assert store_work.semantic(subject, material.entry(3))
        assert not store_work.semantic(subject, material.entry(49))
    assert material.entry(3).encoder == ENCODER


def test_options_that_contradict_each_other_are_refused():
    assert bench("--json", "--markdown")[0] == 2
    assert bench("--full", "--quick")[0] == 2
