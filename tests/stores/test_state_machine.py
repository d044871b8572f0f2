"""Random sequences of calls: memory, disk, Redis and a plain model agree, and so does whoever follows the change
record."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cachestack.entries import Entry, Selector
from cachestack.keys import Partition
from cachestack.stores.codec import charged_bytes, encode_entry, gone_at_s
from cachestack.stores.disk import DiskStore
from cachestack.stores.memory import MemoryStore
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.store import RedisStore
from tests.redis_server import RedisServer

PARTITIONS = [Partition("a"), Partition("a", user="u"), Partition("b")]
partitions = st.sampled_from(PARTITIONS)
small = st.integers(0, 3)
JOURNAL = 4


@dataclass
class Follower:
    """Keeps a copy of a partition's ids, only by way of `latest`, `changes`, `get` and, to start over, `entries`."""

    seen: int = -1
    ids: set[str] = field(default_factory=set)

    def catch_up(self, store, partition):
        changes = store.changes(partition, self.seen)
        if not changes.complete:
            self.ids = {e.entry_id for e in store.entries(partition)}
        for change in changes.changes:
            self.ids.discard(change.entry_id)
            if store.get(partition, change.entry_id) is not None:
                self.ids.add(change.entry_id)
        assert changes.latest == store.latest(partition)
        self.seen = changes.latest


SERVER: list[RedisServer] = []


@pytest.fixture(autouse=True, scope="module")
def _server(redis_server: RedisServer) -> None:
    SERVER[:] = [redis_server]


class Stores(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.now_s = 1000.0
        self.model: dict[tuple[Partition, str], Entry] = {}
        self.order: list[tuple[Partition, str]] = []

    def clock(self):
        return self.now_s

    def teardown(self):
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self):
        self.memory = MemoryStore(self.clock, journal_length=JOURNAL)
        self.disk = DiskStore(self.folder / "entries", self.clock, journal_length=JOURNAL)
        self.redis = self.new_redis(prefix := SERVER[0].new_prefix())
        self.slots = self.new_redis(f"{prefix}slots:", num_slots=3)
        self.followers = {(name, p): Follower() for name in ("memory", "disk", "redis", "slots") for p in PARTITIONS}

    def new_redis(self, prefix, num_slots=1):
        link = Link(SERVER[0].url)
        return RedisStore(link, self.clock, prefix=prefix, num_slots=num_slots, journal_length=JOURNAL)

    @property
    def stores(self):
        return (self.memory, self.disk, self.redis, self.slots)

    def both(self, method, *arguments):
        self.now_s += 1
        one, *others = (getattr(store, method)(*arguments) for store in self.stores)
        assert others == [one] * len(others)
        return one

    @rule(
        partition=partitions, name=small, question=small, length=st.integers(0, 300), ttl_s=st.integers(1, 30),
        tag=small, keep=st.one_of(st.none(), st.integers(1, 4)),
    )  # fmt: skip
    def put(self, partition, name, question, length, ttl_s, tag, keep):
        entry = Entry(
            entry_id=f"e{name}",
            partition=partition,
            contract="c",
            exact=f"x{question}",
            question="q",
            answer="y" * length,
            finish_reason="stop",
            prompt_tokens=1,
            completion_tokens=1,
            model="m",
            created_at_s=self.now_s,
            expires_at_s=self.now_s + ttl_s,
            stale_until_s=self.now_s + ttl_s,
            tags=(f"t{tag}",),
        )
        max_bytes = None if keep is None else keep * 2500
        self.both("put", entry, max_bytes)
        same = [k for k, e in self.model.items() if k[0] == partition and e.exact == entry.exact]
        for key in [*same, (partition, entry.entry_id)]:
            self.drop(key)
        self.model[partition, entry.entry_id] = entry
        self.order.append((partition, entry.entry_id))
        tenant = [k for k in self.order if k[0].tenant == partition.tenant]
        while max_bytes is not None and self.num_bytes(tenant) > max_bytes:
            self.drop(tenant.pop(0))

    def num_bytes(self, keys):
        return sum(charged_bytes(encode_entry(self.model[k])) for k in keys)

    def drop(self, key):
        if self.model.pop(key, None) is not None:
            self.order.remove(key)

    @rule(partition=partitions, name=small, keep=st.integers(2, 3))
    def touch_and_squeeze(self, partition, name, keep):
        self.touch(partition, f"{name}")
        self.put(partition, 9, 9, 0, 30, 0, keep)

    @rule(partition=partitions, name=small)
    def touch(self, partition, name):
        self.now_s += 1
        for store in self.stores:
            store.touch(partition, f"e{name}", self.now_s)
        key = (partition, f"e{name}")
        if key in self.model:
            self.order.remove(key)
            self.order.append(key)

    @rule(tag=st.one_of(st.none(), small), tenant=st.sampled_from([None, "a", "b"]), name=st.one_of(st.none(), small))
    def invalidate(self, tag, tenant, name):
        selector = Selector(
            tenant=tenant,
            tag=None if tag is None else f"t{tag}",
            entry_id=None if name is None else f"e{name}",
            user="u" if tag == name == tenant else None,
        )
        gone = [k for k, e in self.model.items() if selector.matches(e)]
        assert self.both("invalidate", selector) == len(gone)
        for key in gone:
            self.drop(key)

    @rule(later_s=st.integers(0, 10))
    def purge(self, later_s):
        self.now_s += later_s
        now_s = self.now_s
        gone = [k for k, e in self.model.items() if gone_at_s(e) <= now_s]
        assert self.both("purge", now_s) == len(gone)
        for key in gone:
            self.drop(key)

    @rule(partition=partitions, name=small, length=st.integers(0, 40))
    def set_vector(self, partition, name, length):
        done = self.both("set_vector", partition, f"e{name}", b"\1" * length, "encoder")
        key = (partition, f"e{name}")
        assert done == (key in self.model)
        if done:
            self.model[key] = self.disk.get(*key)
            assert len(self.model[key].vector) == length

    @rule()
    def restart(self):
        self.disk.close()
        self.disk = DiskStore(self.folder / "entries", self.clock, journal_length=JOURNAL)

    @rule(which=st.sampled_from(["memory", "disk", "redis", "slots"]), partition=partitions)
    def follow(self, which, partition):
        follower = self.followers[which, partition]
        follower.catch_up(getattr(self, which), partition)
        assert follower.ids == {entry_id for p, entry_id in self.model if p == partition}

    @invariant()
    def all_agree(self):
        for store in self.stores:
            for partition in PARTITIONS:
                expected = {i: e for (p, i), e in self.model.items() if p == partition}
                assert {e.entry_id: e for e in store.entries(partition)} == expected
                by_question = {e.exact: e for e in expected.values()}
                for question in range(4):
                    assert store.find_exact(partition, f"x{question}") == by_question.get(f"x{question}")
            for tenant in ("a", "b"):
                keys = [k for k in self.model if k[0].tenant == tenant]
                assert store.size(tenant).num_entries == len(keys)
                assert store.size(tenant).num_bytes == self.num_bytes(keys)

    @rule()
    def check(self):
        assert self.disk.problems() == []


TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
