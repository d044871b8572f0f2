"""Graphs: found like flat, in step with the store while they are built, and gone when their entries are."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from cachestack.entries import Selector
from cachestack.semantic import index as index_module
from cachestack.semantic.index import FaissIndex
from cachestack.semantic.vectors_graph import SEARCH_WIDTHS, Graph
from cachestack.semantic.vectors_group import VectorGroup, build
from cachestack.stores.memory import MemoryStore
from tests.semantic.index_support import CONTRACT, DIMENSION, OTHER_CONTRACT, clustered, entry_of, found

FROM = 300


@pytest.fixture
def store():
    made = MemoryStore(journal_length=100_000)
    yield made
    made.close()


@pytest.fixture
def index(store):
    made = FaissIndex(store, graph_from=FROM, max_tail=50)
    yield made
    made.close()


def fill(store, vectors, first=0, contract=CONTRACT):
    for number, vector in enumerate(vectors, start=first):
        store.put(entry_of(number, vector, contract))


def best(vectors: np.ndarray, query: np.ndarray, num: int, numbers=None) -> list[str]:
    numbers = list(range(len(vectors)) if numbers is None else numbers)
    return [f"entry-{i}" for i in sorted(numbers, key=lambda i: -float(vectors[i] @ query))[:num]]


def recall(index, vectors, queries, numbers=None) -> float:
    pairs = [(found(index, q), best(vectors, q, 8, numbers)) for q in queries]
    return sum(len(set(a) & set(b)) for a, b in pairs) / sum(len(b) for _, b in pairs)


def test_a_large_contract_gets_a_graph_that_finds_what_flat_finds(store, index):
    vectors = clustered(3000)
    fill(store, vectors)
    found(index, vectors[0])
    assert index.settle(120)
    counts = index.counts()
    assert (counts.kind, counts.num_in_graphs, counts.num_graphs, counts.num_builds) == ("graph", 3000, 1, 1)
    assert recall(index, vectors, clustered(60, seed=0)) >= 0.99
    assert all(found(index, vectors[i], 1) == [f"entry-{i}"] for i in range(0, 3000, 150))


def test_a_small_contract_stays_flat_and_exact_beside_a_large_one(store, index):
    """A rare contract is searched over its own rows: not through a graph that is full of others."""
    vectors = clustered(1200)
    fill(store, vectors[:1190])
    fill(store, vectors[1190:], 1190, OTHER_CONTRACT)
    found(index, vectors[0])
    assert index.settle(120)
    assert index.counts().kind == "flat and graph"
    for query in clustered(20, seed=0):
        assert found(index, query, contract=OTHER_CONTRACT) == best(vectors, query, 8, range(1190, 1200))
        assert not set(found(index, query)) & {f"entry-{i}" for i in range(1190, 1200)}


def test_below_the_bound_there_is_none(store, index):
    fill(store, clustered(FROM - 1))
    found(index, clustered(1)[0])
    assert index.settle(60)
    assert index.counts().kind == "flat"


def test_what_is_written_later_is_found_at_once_and_extends_the_graph_when_it_is_much(store, index):
    vectors = clustered(600)
    fill(store, vectors[:500])
    found(index, vectors[0])
    assert index.settle(60)
    fill(store, vectors[500:540], 500)
    assert all(found(index, vectors[i], 1) == [f"entry-{i}"] for i in range(500, 540))
    assert index.settle(60)
    assert (index.counts().num_in_graphs, index.counts().num_builds) == (500, 1)
    fill(store, vectors[540:], 540)
    assert found(index, vectors[599], 1) == ["entry-599"]
    assert index.settle(60)
    assert (index.counts().num_in_graphs, index.counts().num_builds) == (600, 2)
    assert recall(index, vectors, clustered(30, seed=0)) >= 0.99


class Held:
    """Building waits for `go`, and says when it is `begun`."""

    def __init__(self, monkeypatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

        def slow(building, should_stop):
            self.begun.set()
            assert self.go.wait(60)
            return build(building, should_stop)

        monkeypatch.setattr(index_module, "build", slow)


def test_searches_go_on_while_a_graph_is_built_and_what_happened_meanwhile_is_in_it(store, index, monkeypatch):
    """Trap 11. Fails where `VectorGroup.end` does not mark what was removed or replaced since `begin`."""
    held = Held(monkeypatch)
    vectors = clustered(500)
    fill(store, vectors[:400])
    assert found(index, vectors[3], 1) == ["entry-3"]
    assert held.begun.wait(60)
    store.invalidate(Selector(entry_id="entry-3"))
    store.put(entry_of(4, -vectors[4]))
    store.put(entry_of(5, vectors[5], OTHER_CONTRACT))
    fill(store, vectors[400:410], 400)
    for _ in range(2):  # before the graph is in its place, and after
        assert "entry-3" not in found(index, vectors[3], 500)
        assert found(index, -vectors[4], 1) == ["entry-4"]
        assert found(index, vectors[4], 1) != ["entry-4"]
        assert found(index, vectors[5], 1, OTHER_CONTRACT) == ["entry-5"]
        assert "entry-5" not in found(index, vectors[5], 500)
        assert found(index, vectors[405], 1) == ["entry-405"]
        assert len(found(index, vectors[0], 500)) == 408
        held.go.set()
        assert index.settle(60)
    assert index.counts().num_vectors == 409
    assert index.counts().num_graphs == 1


def test_a_graph_of_which_much_was_removed_is_built_anew(store, index):
    vectors = clustered(800)
    fill(store, vectors)
    found(index, vectors[0])
    assert index.settle(60)
    for number in range(150):
        store.invalidate(Selector(entry_id=f"entry-{number}"))
    assert "entry-0" not in found(index, vectors[0], 8)
    assert index.settle(60)
    assert (index.counts().num_tombstones, index.counts().num_builds) == (150, 1)
    for number in range(150, 250):
        store.invalidate(Selector(entry_id=f"entry-{number}"))
    found(index, vectors[0])
    assert index.settle(60)
    counts = index.counts()
    assert (counts.num_vectors, counts.num_in_graphs, counts.num_tombstones, counts.num_builds) == (550, 550, 0, 2)
    assert recall(index, vectors, clustered(30, seed=0), range(250, 800)) >= 0.99
    store.invalidate(Selector(tenant="acme"))
    assert found(index, vectors[700]) == []
    assert index.settle(60)
    assert (index.counts().num_vectors, index.counts().kind) == (0, "empty")


def test_removed_ones_all_around_do_not_hide_those_that_live():
    """A question that expired and was asked again hundreds of times leaves its removed vectors at one place. Fails
    where a graph looks at the nearest of one width only."""
    vectors = clustered(3000)
    crowd = vectors[0] + 1e-3 * np.random.default_rng(1).standard_normal((500, DIMENSION)).astype("<f4")
    vectors[1000:1500] = crowd / np.linalg.norm(crowd, axis=1, keepdims=True)
    graph = Graph(DIMENSION)
    graph.add([str(i) for i in range(3000)], vectors)
    for number in range(1000, 1500):
        assert graph.remove(str(number))
    assert SEARCH_WIDTHS[0] < 500
    near = graph.nearest(vectors[0], 8)
    living = [i for i in range(3000) if not 1000 <= i < 1500]
    assert [n.entry_id for n in near] == [str(i) for i in sorted(living, key=lambda i: -(vectors[i] @ vectors[0]))[:8]]
    for number in living[5:]:
        graph.remove(str(number))
    assert {n.entry_id for n in graph.nearest(-vectors[0], 8)} == {str(i) for i in living[:5]}


def test_scores_of_a_graph_are_similarities(store, index):
    """Trap 5. Fails where the graph's distance is taken for a similarity, or its float16 scores for the cosine."""
    vectors = clustered(400)
    fill(store, vectors)
    found(index, vectors[0])
    assert index.settle(60)
    candidates = index.search(entry_of(0, vectors[0]).partition, CONTRACT, vectors[0].tobytes(), "e" * 64, 400)
    assert candidates[0].similarity == pytest.approx(1.0, abs=1e-6)
    assert [c.similarity for c in candidates] == sorted((c.similarity for c in candidates), reverse=True)
    for candidate in candidates:
        number = int(candidate.entry.entry_id.removeprefix("entry-"))
        assert candidate.similarity == pytest.approx(float(vectors[number] @ vectors[0]), abs=1e-6)


def test_a_build_that_fails_leaves_the_flat_search_and_is_not_tried_again_at_once(store, index, monkeypatch, caplog):
    def broken(building, should_stop):
        raise MemoryError("no room")

    monkeypatch.setattr(index_module, "build", broken)
    vectors = clustered(400)
    fill(store, vectors)
    assert found(index, vectors[7], 1) == ["entry-7"]
    assert index.settle(60)
    store.put(entry_of(1000, vectors[8]))
    assert len(found(index, vectors[7], 500)) == 401
    assert index.settle(60)
    assert index.counts().num_background_failures == 1
    assert "no room" in caplog.text


def test_closing_stops_a_build(store, monkeypatch):
    stopped = threading.Event()
    begun = threading.Event()

    def endless(building, should_stop):
        begun.set()
        while not should_stop():
            threading.Event().wait(0.001)
        stopped.set()

    monkeypatch.setattr(index_module, "build", endless)
    index = FaissIndex(store, graph_from=FROM)
    vectors = clustered(400)
    fill(store, vectors)
    found(index, vectors[0])
    assert begun.wait(60)
    index.close()
    assert stopped.is_set()
    monkeypatch.undo()
    assert found(index, vectors[9], 1) == ["entry-9"], "a closed index loads again"
    assert index.settle(60)
    assert index.counts().kind == "graph"
    index.close()


def test_a_graph_comes_back_from_its_snapshot_with_its_marks(tmp_path: Path):
    store = MemoryStore()
    first = FaissIndex(store, snapshot_folder=tmp_path, graph_from=FROM, snapshot_from=10)
    vectors = clustered(500)
    fill(store, vectors)
    found(first, vectors[0])
    assert first.settle(60)
    store.invalidate(Selector(entry_id="entry-3"))
    store.put(entry_of(4, -vectors[4]))
    assert "entry-3" not in found(first, vectors[3])
    first.close()
    second = FaissIndex(store, snapshot_folder=tmp_path, graph_from=FROM, snapshot_from=10)
    assert "entry-3" not in found(second, vectors[3], 500)
    assert found(second, -vectors[4], 1) == ["entry-4"]
    counts = second.counts()
    assert (counts.num_loads, counts.num_snapshots_used, counts.num_builds) == (0, 1, 0)
    assert (counts.num_in_graphs, counts.num_vectors, counts.num_tombstones) == (498, 499, 2)
    second.close()


def test_memory_is_what_is_said():
    group = VectorGroup(DIMENSION, graph_from=100)
    vectors = clustered(400)
    group.put([str(i) for i in range(400)], [CONTRACT] * 400, vectors)
    flat_bytes = group.num_bytes
    building = group.begin(group.due())
    group.end(building, build(building, lambda: False))
    assert flat_bytes == 400 * (4 * DIMENSION + 250)
    assert group.num_bytes == 400 * (2 * DIMENSION + 8 * 24 + 250), "the flat rows are given back"
