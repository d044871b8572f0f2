"""What an index says of itself: in this process, and from its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachestack.cli.app import main
from cachestack.entries import Selector
from cachestack.performer import Performer
from cachestack.semantic.index import FaissIndex
from cachestack.semantic.index_counts import IndexCounts, kind_of
from cachestack.snapshot import Snapshot
from cachestack.stores.memory import MemoryStore
from tests.semantic.index_support import clustered, entry_of, found


def test_kinds():
    assert [kind_of(*n) for n in ((0, 0), (5, 0), (5, 5), (5, 2))] == ["empty", "flat", "graph", "flat and graph"]


def test_a_snapshot_of_statistics_names_the_index():
    assert Snapshot({}).as_dict() == {"tenants": {}}
    counts = IndexCounts(num_vectors=10, num_in_graphs=10, num_tombstones=3)
    index = Snapshot({}, index=counts).as_dict()["index"]
    assert (index["kind"], index["num_tombstones"]) == ("graph", 3)


def test_an_index_that_does_not_count_is_no_error():
    assert Performer(MemoryStore(), None, None).index_counts() is None
    assert Performer(MemoryStore(), object(), None).index_counts() is None
    assert Performer(MemoryStore(), FaissIndex(MemoryStore()), None).index_counts() == IndexCounts()


def test_the_command_reads_the_files(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("CACHESTACK_HOME", str(tmp_path))
    store = MemoryStore()
    index = FaissIndex(store, snapshot_folder=tmp_path / "indexes", graph_from=100, snapshot_from=50)
    vectors = clustered(150)
    for number, vector in enumerate(vectors):
        store.put(entry_of(number, vector))
    found(index, vectors[0])
    assert index.settle(60)
    store.invalidate(Selector(entry_id="entry-0"))
    found(index, vectors[0])
    index.close()
    assert main(["stats", "--json"]) == 0
    kept = json.loads(capsys.readouterr().out)["index"]
    (file,) = (tmp_path / "indexes").glob("*.vectors")
    assert kept == {
        "kind": "graph",
        "num_groups": 1,
        "num_vectors": 150,
        "num_in_graphs": 150,
        "num_tombstones": 0,
        "num_builds": 1,
        "num_bytes": file.stat().st_size,
    }, "as it was last saved; what happened since is in the journal"
    assert main(["stats"]) == 0
    assert "150 of them in graphs" in " ".join(capsys.readouterr().out.split())
