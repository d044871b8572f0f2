"""The index: nearest entries of a partition and a contract, always in step with the store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cachestack.entries import Entry, Selector
from cachestack.errors import StoreError
from cachestack.keys import Partition, digest
from cachestack.semantic.index import FaissIndex
from cachestack.semantic.redis_index import RedisIndex
from cachestack.semantic.vectors import cosine
from cachestack.semantic.vectors_group import VectorGroup
from cachestack.stores.disk import DiskStore
from cachestack.stores.memory import MemoryStore
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.store import RedisStore

ACME = Partition("acme")
ENCODER, OTHER_ENCODER = "e" * 64, "f" * 64
CONTRACT, OTHER_CONTRACT = digest(b"one"), digest(b"two")
DIMENSION = 16
Store = DiskStore | MemoryStore | RedisStore


def unit(*values: float, dimension: int = DIMENSION) -> bytes:
    vector = np.zeros(dimension)
    vector[: len(values)] = values
    return (vector / np.linalg.norm(vector)).astype("<f4").tobytes()


def at(degrees: float) -> bytes:
    """A unit vector in the plane; its cosine with `at(0)` is that of the angle."""
    return unit(np.cos(np.radians(degrees)), np.sin(np.radians(degrees)))


@pytest.fixture
def make_entry() -> Callable[..., Entry]:
    numbers = itertools.count()

    def make(vector: bytes | None, entry_id: str | None = None, **fields) -> Entry:
        number = next(numbers)
        partition = fields.pop("partition", ACME)
        entry = Entry(
            entry_id=entry_id or f"entry-{number}",
            partition=partition,
            contract=CONTRACT,
            exact=digest(partition.digest.encode(), str(number).encode()),
            question=f"question {number}",
            answer="answer",
            finish_reason="stop",
            prompt_tokens=1,
            completion_tokens=1,
            model="m",
            created_at_s=0.0,
            expires_at_s=1e12,
            stale_until_s=1e12,
            vector=vector,
            encoder=None if vector is None else ENCODER,
        )
        return replace(entry, **fields)

    return make


@pytest.fixture(params=["memory", "disk", "redis", "redis in 3 slots"])
def store(request, tmp_path: Path) -> Iterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "disk":
        made = DiskStore(tmp_path / "entries")
    else:
        server = request.getfixturevalue("redis_server")
        num_slots = 3 if "slots" in request.param else 1
        made = RedisStore(Link(server.url), prefix=server.new_prefix(), num_slots=num_slots)
    yield made
    made.close()


@pytest.fixture
def index(store) -> FaissIndex | RedisIndex:
    return RedisIndex(store) if isinstance(store, RedisStore) else FaissIndex(store)


def found(index, vector=None, *, partition=ACME, contract=CONTRACT, encoder=ENCODER, num=10) -> list[str]:
    return [c.entry.entry_id for c in index.search(partition, contract, vector or at(0), encoder, num)]


def num_searchable(store, index) -> int:
    """How many vectors of the usual length lie where they are searched."""
    if isinstance(index, FaissIndex):
        return index.counts().num_vectors
    names = [slot.vectors(ENCODER, CONTRACT, 4 * DIMENSION) for slot in store.names.slots(ACME)]
    return sum(store.link.client.execute_command("VCARD", name) for name in names)


# what is found


def test_the_nearest_come_first_with_their_cosine(store, index, make_entry):
    """Trap 5. Fails where a distance is taken for the similarity, or (1 + cosine) / 2."""
    for degrees in (60, 10, 180, 0, 90, 30):
        store.put(make_entry(at(degrees), f"at-{degrees}"))
    candidates = index.search(ACME, CONTRACT, at(0), ENCODER, 10)
    assert [c.entry.entry_id for c in candidates] == ["at-0", "at-10", "at-30", "at-60", "at-90", "at-180"]
    expected = [1.0, 0.98480775, 0.8660254, 0.5, 0.0, -1.0]
    assert [c.similarity for c in candidates] == pytest.approx(expected, abs=1e-6)
    assert all(-1.0 <= c.similarity <= 1.0 for c in candidates)
    assert candidates[1].entry == store.get(ACME, "at-10")
    assert found(index, num=2) == ["at-0", "at-10"]
    assert found(index, num=0) == []
    assert found(index, at(175), num=1) == ["at-180"]


def test_it_agrees_with_plain_arithmetic_on_many_vectors(store, index, make_entry):
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((300, DIMENSION)).astype("<f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    contracts = [CONTRACT if i % 3 else OTHER_CONTRACT for i in range(300)]
    for i, vector in enumerate(vectors):
        store.put(make_entry(vector.tobytes(), f"{i}", contract=contracts[i]))
    for i in range(10):
        candidates = index.search(ACME, CONTRACT, vectors[i].tobytes(), ENCODER, 7)
        allowed = [j for j in range(300) if contracts[j] == CONTRACT]
        best = sorted(allowed, key=lambda j: -(vectors[j] @ vectors[i]))[:7]
        assert [int(c.entry.entry_id) for c in candidates] == best
        assert [c.similarity for c in candidates] == pytest.approx([vectors[j] @ vectors[i] for j in best], abs=1e-6)


def test_partitions_contracts_and_encoders_are_walls(store, index, make_entry):
    """Trap 4. Fails where a group is not of one partition and one encoder, or a search not of one contract's rows: the
    text and its vector are the same everywhere here."""
    store.put(make_entry(at(0), "ours"))
    store.put(make_entry(at(0), "user", partition=Partition("acme", user="u")))
    store.put(make_entry(at(0), "theirs", partition=Partition("other")))
    store.put(make_entry(at(0), "contract", contract=OTHER_CONTRACT))
    store.put(make_entry(at(0), "encoder", encoder=OTHER_ENCODER))
    assert found(index) == ["ours"]
    assert found(index, partition=Partition("acme", user="u")) == ["user"]
    assert found(index, partition=Partition("other")) == ["theirs"]
    assert found(index, contract=OTHER_CONTRACT) == ["contract"]
    assert found(index, encoder=OTHER_ENCODER) == ["encoder"]
    assert found(index, partition=Partition("nobody")) == []
    assert found(index, contract="none") == []
    assert found(index, encoder="none") == []


def test_an_encoder_of_another_dimension_is_another_encoder(store, index, make_entry):
    """Trap 12. Fails with FAISS's assertion where `_up_to_date` does not look at the dimension."""
    store.put(make_entry(at(0), "narrow"))
    store.put(make_entry(unit(1, dimension=24), "wide", encoder=OTHER_ENCODER))
    assert found(index, unit(1, dimension=24), encoder=OTHER_ENCODER) == ["wide"]
    assert found(index) == ["narrow"]
    assert found(index, unit(1, dimension=24)) == [], "the same fingerprint with another dimension finds nothing"
    assert found(index) == ["narrow"]


def test_entries_without_a_vector_are_not_found_by_meaning(store, index, make_entry):
    store.put(make_entry(None, "exact-only"))
    assert found(index) == []


@pytest.mark.parametrize("placeholder", [None, b"", np.zeros(DIMENSION, "<f4").tobytes()])
def test_placeholders_take_no_place_among_the_nearest(store, index, make_entry, placeholder):
    """Trap 10. Fails where what has no usable vector is taken in: a zero vector is nearer to `at(120)` than `good`."""
    store.put(make_entry(at(0), "good"))
    for i in range(20):
        store.put(make_entry(placeholder, f"empty-{i}"))
    assert found(index, at(120), num=1) == ["good"]
    assert num_searchable(store, index) == 1


def test_expired_entries_are_found_too(store, index, make_entry):
    store.put(make_entry(at(0), "old", expires_at_s=1.0, stale_until_s=1.0))
    assert found(index) == ["old"]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        at(0)[:-4],
        at(0) + b"\0\0\0\0",
        at(0)[:-1],
        np.full(DIMENSION, np.nan, "<f4").tobytes(),
        np.array([np.inf] + [0] * (DIMENSION - 1), "<f4").tobytes(),
        np.zeros(DIMENSION, "<f4").tobytes(),
        np.full(DIMENSION, 1.0, "<f4").tobytes(),
        np.full(DIMENSION, 3e38, "<f4").tobytes(),
    ],
    ids=["none", "short", "long", "odd", "nan", "inf", "zero", "not-unit", "overflow"],
)
def test_a_vector_that_cannot_be_compared_is_skipped_and_counted(store, index, make_entry, bad):
    store.put(make_entry(bad, "bad at load"))
    store.put(make_entry(at(5), "good"))
    assert found(index) == ["good"]
    store.put(make_entry(bad, "bad later"))
    assert found(index) == ["good"]
    assert num_searchable(store, index) == 1
    if isinstance(index, FaissIndex):  # Redis has them in no set from the start
        assert index.counts().num_bad_vectors == 2
    if len(bad) == 4 * DIMENSION:
        assert index.search(ACME, CONTRACT, bad, ENCODER, 5) == []
        assert found(index) == ["good"]


# in step with the store


def test_it_sees_every_later_write(store, index, make_entry):
    """Trap 11. Fails where a search does not take in the store's changes first."""
    assert found(index) == []
    store.put(make_entry(at(10), "a"))
    assert found(index) == ["a"]
    first = make_entry(at(5), "b")
    store.put(first)
    assert found(index) == ["b", "a"]
    store.put(make_entry(at(20), "c", exact=first.exact))
    assert found(index) == ["a", "c"], "c took the place of b"
    store.put(make_entry(at(1), "c", exact=first.exact))
    assert found(index) == ["c", "a"]
    store.put(make_entry(None, "c", exact=first.exact))
    assert found(index) == ["a"]
    store.put(make_entry(at(3), "a", contract=OTHER_CONTRACT))
    assert found(index) == []
    assert found(index, contract=OTHER_CONTRACT) == ["a"]
    store.invalidate(Selector(entry_id="a"))
    assert found(index, contract=OTHER_CONTRACT) == []
    assert index.counts().num_vectors == 0


def test_eviction_and_purging_reach_it(store, index, make_entry):
    for i in range(4):
        store.put(make_entry(at(i), f"e{i}", expires_at_s=10.0 if i == 3 else 1e12, stale_until_s=10.0))
    assert len(found(index)) == 4
    store.purge(10.0)
    assert found(index) == ["e0", "e1", "e2"]
    store.put(make_entry(at(9), "last"), max_bytes=2500)
    assert found(index) == ["last"]


def test_a_change_record_that_is_too_short_means_reading_again(make_entry, tmp_path):
    for store in (MemoryStore(journal_length=3), DiskStore(tmp_path / "e", journal_length=3)):
        index = FaissIndex(store)
        store.put(make_entry(at(10), "a"))
        assert found(index) == ["a"]
        for i in range(5):
            store.put(make_entry(at(20 + i), f"b{i}"))
        store.invalidate(Selector(entry_id="a"))
        assert found(index) == ["b0", "b1", "b2", "b3", "b4"]
        assert index.counts().num_loads == 2
        store.close()


def test_two_indexes_on_two_stores_of_one_folder_agree(tmp_path, make_entry):
    stores = [DiskStore(tmp_path / "entries") for _ in range(2)]
    indexes = [FaissIndex(store) for store in stores]
    stores[0].put(make_entry(at(10), "a"))
    assert [found(i) for i in indexes] == [["a"], ["a"]]
    stores[1].put(make_entry(at(5), "b"))
    assert [found(i) for i in indexes] == [["b", "a"], ["b", "a"]]
    stores[0].invalidate(Selector(entry_id="b"))
    assert [found(i) for i in indexes] == [["a"], ["a"]]
    for store in stores:
        store.close()


class Vanishing(MemoryStore):
    """A store in which entries go between the search and the reading."""

    def __init__(self) -> None:
        super().__init__()
        self.hide: set[str] = set()
        self.swap: dict[str, Entry] = {}

    def get(self, partition, entry_id):
        return None if entry_id in self.hide else self.swap.get(entry_id) or super().get(partition, entry_id)


def test_what_has_gone_or_changed_since_is_never_returned(make_entry):
    store = Vanishing()
    index = FaissIndex(store)
    for name in ("gone", "contract", "encoder", "vectorless", "moved", "stays"):
        store.put(make_entry(at(1), name))
    assert len(found(index)) == 6
    store.hide = {"gone"}
    store.swap = {
        "contract": make_entry(at(1), "contract", contract=OTHER_CONTRACT),
        "encoder": make_entry(at(1), "encoder", encoder=OTHER_ENCODER),
        "vectorless": make_entry(None, "vectorless"),
        "moved": make_entry(at(60), "moved"),
    }
    candidates = index.search(ACME, CONTRACT, at(1), ENCODER, 10)
    assert [c.entry.entry_id for c in candidates] == ["stays", "moved"]
    assert candidates[1].similarity == pytest.approx(np.cos(np.radians(59)), abs=1e-6)


def test_a_failing_store_is_a_store_error(store, index, make_entry):
    store.put(make_entry(at(0)))
    store.close()
    with pytest.raises(StoreError):
        found(index)


def test_threads_that_start_together_see_their_own_writes(store, index, make_entry):
    num_threads, num_each = 6, 12
    barrier = threading.Barrier(num_threads)
    lots = [
        [make_entry(at(t * 50 + i), f"{t}-{i}", partition=Partition("acme", user=str(t % 2))) for i in range(num_each)]
        for t in range(num_threads)
    ]

    def work(mine):
        barrier.wait()
        for entry in mine:
            store.put(entry)
            best = index.search(entry.partition, CONTRACT, entry.vector, ENCODER, 1)[0]
            assert best.entry == entry
            assert best.similarity == pytest.approx(1.0)

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(work, lots))
    for user in ("0", "1"):
        expected = {e.entry_id for mine in lots for e in mine if e.partition.user == user}
        assert set(found(index, partition=Partition("acme", user=user), num=100)) == expected


# memory


def test_groups_that_were_not_searched_for_longest_leave_memory(store, make_entry):
    index = FaissIndex(store, max_groups=2)
    partitions = [Partition("acme", user=str(i)) for i in range(4)]
    for i, partition in enumerate(partitions):
        store.put(make_entry(at(i), f"e{i}", partition=partition))
    for i, partition in enumerate(partitions):
        assert found(index, partition=partition) == [f"e{i}"]
    assert index.counts().num_groups == 2
    assert index.counts().num_loads == 4
    found(index, partition=partitions[3])
    assert index.counts().num_loads == 4
    found(index, partition=partitions[0])
    assert index.counts().num_loads == 5


def test_bytes_are_bounded_too(store, make_entry):
    index = FaissIndex(store, max_bytes=10 * (4 * DIMENSION + 250))
    for user in ("a", "b"):
        for i in range(8):
            store.put(make_entry(at(i), partition=Partition("acme", user=user)))
    for user in ("a", "b", "a"):
        assert len(found(index, partition=Partition("acme", user=user))) == 8
        assert index.counts().num_groups == 1
    assert index.counts().num_loads == 3


def test_partitions_without_entries_do_not_pile_up(store):
    index = FaissIndex(store, max_groups=5)
    for i in range(50):
        assert found(index, partition=Partition(f"tenant-{i}")) == []
    assert index.counts().num_groups <= 5


def test_rows_of_removed_vectors_are_given_back():
    group = VectorGroup(DIMENSION)
    vectors = np.frombuffer(b"".join(at(i / 10) for i in range(2000)), "<f4").reshape(-1, DIMENSION)
    group.put([str(i) for i in range(2000)], ["even" if i % 2 == 0 else "odd" for i in range(2000)], vectors)
    for i in range(1900):
        group.remove(str(i))
    assert len(group) == 100
    assert group.num_bytes < 600 * (4 * DIMENSION + 250)
    assert group.nearest("even", vectors[1900], 3) == ["1900", "1902", "1904"]
    assert group.nearest("odd", vectors[1999], 2) == ["1999", "1997"]
    for i in range(1900, 2000):
        group.remove(str(i))
    assert group.nearest("even", vectors[0], 3) == []
    assert "1999" not in group


def test_cosine_stays_within_its_bounds():
    vector = np.full(3, np.sqrt(1 / 3) + 1e-7, dtype=np.float32)
    assert cosine(vector, vector) == 1.0
    assert cosine(vector, -vector) == -1.0
