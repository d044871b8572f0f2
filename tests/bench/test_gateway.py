"""`cachestack bench gateway`: every answer is demanded to be right, times are only looked for."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cachestack.bench import gateway as gateway_module
from cachestack.bench import gateway_settings
from cachestack.bench.gateway_client import Address, ask_one, load, run
from cachestack.bench.gateway_material import Prepared, answer_to, chat_request
from cachestack.bench.gateway_report import Growth, Misses, Pairs, targets_of
from cachestack.bench.gateway_servers import scripted_upstream, streamed_text
from cachestack.bench.gateway_tables import notes, tables
from cachestack.bench.tables import tables_as_markdown
from cachestack.cli.app import main

TINY = replace(
    gateway_settings.QUICK,
    connections=(1, 4),
    round_s=0.02,
    num_kept=6,
    num_misses=4,
    num_streams=20,
    num_first=50,
    num_for_memory=100,
)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """What a quick run prints, how it ends, and what it leaves behind."""
    out, err = io.StringIO(), io.StringIO()
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setattr(gateway_settings, "QUICK", TINY)
        status = main(["bench", "gateway", "--quick", "--json"])
    return {"status": status, "out": out.getvalue(), "err": err.getvalue(), "left": list(folder.glob("cachestack*"))}


@pytest.fixture
def document(result):
    return json.loads(result["out"])


@pytest.fixture
def whole(document):
    """As of a run that measures, with figures that are made up."""
    document |= {"quick": False, "miss_overhead_ms": 2.5, "rss_growth_bytes": 3 * 2**20}
    document["exact"]["1"] |= {"ratio": 0.7, "ratio_low": 0.6, "ratio_high": 0.8}
    document["exact"]["4"] |= {"ratio": 0.5, "req_s": 12345.6}
    document["targets"] = [target.to_json() for target in targets_of(document)]
    return document


def test_a_quick_run_is_right_and_leaves_nothing(result, document):
    assert result["status"] == 0, result["err"]
    assert result["left"] == []
    assert document["agreement"] == {"holds": True, "wrong": 0}
    assert {name: document["streams"][name] for name in ("n", "errors")} == {"n": 20, "errors": 0}
    assert set(document["exact"]) == {"1", "4"}
    for figures in document["exact"].values():
        assert {"req_s", "p50_ms", "p99_ms", "bare_req_s", "ratio"} <= set(figures)
        assert 0 < figures["p50_ms"] <= figures["p99_ms"]
        assert figures["ratio_low"] <= figures["ratio"] <= figures["ratio_high"]
    assert isinstance(document["miss_overhead_ms"], float)
    assert isinstance(document["rss_growth_bytes"], int)
    assert document["answer_bytes"] > len(answer_to(""))
    assert document["targets"] == []
    assert {"cpu", "cores", "versions", "load_average"} <= set(document["machine"])
    assert str(Path.home()) not in result["out"]


def test_targets_are_met_or_not(whole):
    met = {t["name"]: t["met"] for t in whole["targets"]}
    assert met == {
        "exact hits over the bare route, 1 connections": True,
        "exact hits over the bare route, 4 connections": False,
        "a miss over the upstream alone, median ms": False,
        "errors of 20 streams": True,
        "memory grown over 100 hits, MiB": True,
    }


def test_tables_say_what_the_document_says(whole):
    text = tables_as_markdown(tables(whole), notes(whole))
    assert "| 12,346 |" in text
    assert "0.70 (0.60 to 0.80)" in text
    assert "| a miss, added at the median | 2.50 ms |" in text
    for table in tables(whole):
        assert all(len(row) == len(table.head) for row in table.rows)
        assert all(len("  ".join(row)) <= 80 for row in table.rows)
    whole["machine"]["busy"] = True
    assert any("busy" in note for note in notes(whole))


def test_wrong_answers_end_with_status_1(document, monkeypatch, capsys):
    wrong = copy.deepcopy(document)
    wrong["agreement"] = {"holds": False, "wrong": 3}

    class Found:
        def to_json(self):
            return wrong

    monkeypatch.setattr(gateway_module, "bench_gateway", lambda *_, **__: Found())
    assert main(["bench", "gateway"]) == 1
    assert "3 wrong" in capsys.readouterr().out


def test_the_client_sees_a_wrong_answer_and_a_broken_stream():
    request = chat_request("Is it right")
    with scripted_upstream() as upstream:
        right = run(partial(load, upstream.address, [request], 3, num_requests=9))
        wrong = run(partial(load, upstream.address, [replace(request, answer="Another.")], 3, num_requests=9))
        stream = run(partial(ask_one, upstream.address, chat_request("Is it right", stream=True)))
        refused = run(partial(load, upstream.address, [Prepared(b"GARBAGE\r\n\r\n", "x.")], 1, num_requests=1))
    assert (len(right.latencies_s), right.num_wrong, wrong.num_wrong, refused.num_wrong) == (9, 0, 9, 1)
    assert streamed_text(stream.body) == answer_to("Is it right")
    assert streamed_text(stream.body.removesuffix(b"data: [DONE]\n\n")) is None


def test_a_connection_that_ends_is_no_answer():
    async def hang_up(reader, writer):
        await reader.read(10)
        writer.close()

    async def ask():
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        address = Address(*server.sockets[0].getsockname()[:2])
        answer = await ask_one(address, chat_request("Is anybody there"))
        loaded = await load(address, [chat_request("Is anybody there")], 2, num_requests=10)
        server.close()
        return answer, loaded

    answer, loaded = run(ask)
    assert (answer.status, answer.body) == (0, b"")
    assert loaded.num_wrong > 0


def test_figures_are_of_all_rounds():
    from cachestack.bench.gateway_client import Load

    fast, slow = Load(1.0, (0.001,) * 10, 0, 0.1), Load(1.0, (0.002,) * 5, 1, 0.3)
    pairs = Pairs([slow, slow, slow], [fast, fast, fast])
    assert pairs.num_wrong == 3
    assert pairs.to_json() == {
        "req_s": 5.0, "p50_ms": 2.0, "p99_ms": 2.0, "bare_req_s": 10.0, "bare_p50_ms": 1.0, "bare_p99_ms": 1.0,
        "ratio": 0.5, "ratio_low": 0.5, "ratio_high": 0.5, "client_share": 0.3,
    }  # fmt: skip
    assert Misses([0.001, 0.002, 0.003], [0.004, 0.005, 0.006], 0).overhead_ms == pytest.approx(3)
    assert Growth(None, 1, 0).num_bytes is None
