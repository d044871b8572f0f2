"""Whatever is done in whatever order, an index finds what a plain dictionary says is there: no more and no less."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cachestack.entries import Selector
from cachestack.semantic.index import FaissIndex
from cachestack.stores.memory import MemoryStore
from tests.semantic.index_support import ACME, CONTRACT, OTHER_CONTRACT, clustered, entry_of, found

VECTORS = clustered(40)
NUMBERS = st.integers(0, 24)
PLACES = st.integers(0, 39)
LATER = 1e11  # after every invalidation, which would hold back what was asked for before it
CONTRACTS = st.sampled_from([CONTRACT, OTHER_CONTRACT])


class IndexMachine(RuleBasedStateMachine):
    """Two indexes on one store and one folder, as two processes have them."""

    @initialize(record=st.sampled_from([4, 1000]))
    def begin(self, record):
        self.folder = Path(tempfile.mkdtemp())
        self.store = MemoryStore(journal_length=record)
        self.model: dict[int, tuple[int, str]] = {}
        self.indexes = [self._open(), self._open()]

    def _open(self) -> FaissIndex:
        return FaissIndex(
            self.store,
            snapshot_folder=self.folder,
            graph_from=8,
            max_tail=3,
            snapshot_from=3,
            journal_bytes=1500,
            max_groups=1,
        )

    @rule(number=NUMBERS, place=PLACES, contract=CONTRACTS)
    def put(self, number, place, contract):
        self.store.put(entry_of(number, VECTORS[place], contract, created_at_s=LATER))
        self.model[number] = (place, contract)

    @rule(places=st.lists(PLACES, min_size=9, max_size=15))
    def put_many(self, places):
        for number, place in enumerate(places):
            self.put(number, place, CONTRACT)

    @rule(number=NUMBERS)
    def put_without_a_vector(self, number):
        self.store.put(entry_of(number, None, created_at_s=LATER))
        self.model.pop(number, None)

    @rule(number=NUMBERS)
    def remove(self, number):
        self.store.invalidate(Selector(entry_id=f"entry-{number}"))
        self.model.pop(number, None)

    @rule()
    def remove_all(self):
        self.store.invalidate(Selector(tenant=ACME.tenant))
        self.model.clear()

    @rule(which=st.integers(0, 1), contract=CONTRACTS)
    def search(self, which, contract):
        expected = {f"entry-{n}" for n, (_, c) in self.model.items() if c == contract}
        assert set(found(self.indexes[which], VECTORS[0], 100, contract)) == expected

    @rule(which=st.integers(0, 1), place=PLACES)
    def search_for_the_nearest(self, which, place):
        candidates = self.indexes[which].search(ACME, CONTRACT, VECTORS[place].tobytes(), "e" * 64, 1)
        same = [p for p, c in self.model.values() if c == CONTRACT]
        if same:
            best = max(float(VECTORS[p] @ VECTORS[place]) for p in same)
            assert abs(candidates[0].similarity - best) < 1e-3
        else:
            assert candidates == []

    @rule(which=st.integers(0, 1))
    def settle(self, which):
        assert self.indexes[which].settle(60)

    @rule(which=st.integers(0, 1))
    def close_and_open(self, which):
        self.indexes[which].close()
        self.indexes[which] = self._open()

    @rule(which=st.integers(0, 1))
    def kill_and_open(self, which):
        """What is in the files stays, all else is lost."""
        self.indexes[which]._background.close()
        self.indexes[which] = self._open()

    @rule(cut=st.integers(1, 400))
    def tear(self, cut):
        """The newest journal loses its end."""
        journals = sorted(self.folder.glob("*.journal"), key=lambda path: path.stat().st_mtime_ns)
        if journals:
            data = journals[-1].read_bytes()
            for which in (0, 1):
                self.kill_and_open(which)
            if journals[-1].exists():
                journals[-1].write_bytes(data[: max(0, len(data) - cut)])

    @rule(which=st.integers(0, 1))
    def push_out_of_memory(self, which):
        found(self.indexes[which], VECTORS[0], partition=entry_of(0, None).partition.__class__("other"))

    @invariant()
    def counts_are_sane(self):
        for index in getattr(self, "indexes", ()):
            counts = index.counts()
            assert counts.num_background_failures == 0
            assert 0 <= counts.num_in_graphs <= counts.num_vectors

    def teardown(self):
        for index in getattr(self, "indexes", ()):
            index.close()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
