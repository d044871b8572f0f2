"""Memory in front of Redis: microseconds, and never behind for long."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from cachestack.entries import Selector
from cachestack.keys import Partition
from cachestack.stores.base import NOT_NOW
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.store import RedisStore
from cachestack.stores.tiered import MAX_SILENCE_S, TieredStore
from tests.redis_server import RedisServer, running
from tests.waiting import wait_until

ACME = Partition("acme")


class Monotonic:
    def __init__(self) -> None:
        self.extra_s = 0.0

    def __call__(self) -> float:
        import time

        return time.monotonic() + self.extra_s


@pytest.fixture
def open_tier(redis_server: RedisServer, clock):
    prefix = redis_server.new_prefix()
    opened: list[TieredStore] = []

    def make(server: RedisServer = redis_server, monotonic: Callable[[], float] | None = None) -> TieredStore:
        store = RedisStore(Link(server.url, rest_s=0.05), clock, prefix=prefix)
        tier = TieredStore(store) if monotonic is None else TieredStore(store, monotonic=monotonic)
        opened.append(tier)
        return tier

    yield make
    for tier in opened:
        tier.close()


def warm(tier: TieredStore, entry) -> None:
    """Read until it is in memory."""

    def is_kept() -> bool:
        assert tier.find_exact(entry.partition, entry.exact) == entry
        return tier.find_exact_at_once(entry.partition, entry.exact) == entry

    wait_until(is_kept)


def test_what_was_read_is_answered_from_memory(open_tier, make_entry, monkeypatch):
    tier, entry = open_tier(), make_entry()
    tier.put(entry)
    warm(tier, entry)
    monkeypatch.setattr(tier.shared, "find_exact", lambda *_: pytest.fail("Redis was asked"))
    assert tier.find_exact(ACME, entry.exact) == entry


def test_another_partition_does_not_see_it(open_tier, make_entry):
    tier, entry = open_tier(), make_entry()
    tier.put(entry)
    warm(tier, entry)
    for other in (Partition("other"), Partition("acme", user="u"), Partition("acme", epoch=1)):
        assert tier.find_exact_at_once(other, entry.exact) is NOT_NOW
        assert tier.find_exact(other, entry.exact) is None


@pytest.mark.parametrize("how", ["removed", "replaced", "evicted", "purged", "encoded anew"])
def test_what_another_process_does_is_seen(open_tier, make_entry, clock, how):
    ours, theirs = open_tier(), open_tier()
    entry = make_entry("q", ttl_s=10)
    ours.put(entry)
    warm(ours, entry)
    expected = None
    if how == "removed":
        assert theirs.invalidate(Selector(tenant="acme")) == 1
    elif how == "replaced":
        expected = make_entry("q")
        theirs.put(expected)
    elif how == "evicted":
        clock.tick()
        assert theirs.put(make_entry("other"), max_bytes=3000)
    elif how == "purged":
        assert theirs.purge(clock() + 11) == 1
    else:
        expected = replace(entry, vector=b"\1" * 16, encoder="e")
        assert theirs.set_vector(ACME, entry.entry_id, b"\1" * 16, "e")
    wait_until(lambda: ours.find_exact_at_once(ACME, entry.exact) is NOT_NOW)
    assert ours.find_exact(ACME, entry.exact) == expected


def test_own_writes_are_seen_at_once(open_tier, make_entry):
    tier = open_tier()
    old, new = make_entry("q"), make_entry("q")
    tier.put(old)
    warm(tier, old)
    tier.put(new)
    assert tier.find_exact(ACME, old.exact) == new
    tier.invalidate(Selector(entry_id=new.entry_id))
    assert tier.find_exact(ACME, old.exact) is None


def test_a_read_that_overtakes_a_write_is_not_kept(open_tier, make_entry):
    """The entry was read before the write, and reaches the memory after what was told of it."""
    tier, other = open_tier(), open_tier()
    old, new = make_entry("q"), make_entry("q")
    tier.put(old)
    warm(tier, old)
    read, told = threading.Event(), threading.Event()
    find = tier.shared.find_exact

    def slow(partition, exact):
        found = find(partition, exact)
        read.set()
        assert told.wait(10)
        return found

    tier.shared.find_exact = slow
    tier._memory.clear()
    reader = threading.Thread(target=tier.find_exact, args=(ACME, old.exact))
    reader.start()
    assert read.wait(10)
    before = tier._memory.moment
    other.put(new)
    wait_until(lambda: tier._memory.moment > before)
    told.set()
    reader.join()
    assert tier.find_exact_at_once(ACME, old.exact) is NOT_NOW


def test_silence_is_not_trusted(open_tier, make_entry):
    clock = Monotonic()
    tier, entry = open_tier(monotonic=clock), make_entry()
    tier.put(entry)
    warm(tier, entry)
    clock.extra_s += MAX_SILENCE_S
    assert tier.find_exact_at_once(ACME, entry.exact) is NOT_NOW


def test_a_server_that_hangs_is_not_believed_for_longer_than_a_moment(tmp_path, open_tier, make_entry):
    with running(tmp_path) as server:
        tier, entry = open_tier(server), make_entry()
        tier.put(entry)
        warm(tier, entry)
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: tier.find_exact_at_once(ACME, entry.exact) is NOT_NOW)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        warm(tier, entry)


def test_after_a_lost_connection_the_memory_is_empty(tmp_path, open_tier, make_entry):
    with running(tmp_path) as server:
        ours, theirs = open_tier(server), open_tier(server)
        entry = make_entry()
        ours.put(entry)
        warm(ours, entry)
        server.client().execute_command("CLIENT", "KILL", "TYPE", "PUBSUB")
        theirs.invalidate(Selector(tenant="acme"))
        wait_until(lambda: ours.find_exact_at_once(ACME, entry.exact) is NOT_NOW)
        assert ours.find_exact(ACME, entry.exact) is None


def test_what_is_kept_is_bounded(open_tier, make_entry):
    tier = open_tier()
    tier._memory._max_bytes = 5000
    entries = [make_entry(answer="x" * 1000) for _ in range(4)]
    for entry in entries:
        tier.put(entry)
    for entry in entries:
        warm(tier, entry)
    kept = [e for e in entries if tier.find_exact_at_once(ACME, e.exact) == e]
    assert kept == entries[-2:]


def test_no_thread_is_left_behind(open_tier, make_entry):
    tier, entry = open_tier(), make_entry()
    tier.put(entry)
    warm(tier, entry)
    tier.close()
    assert not [t for t in threading.enumerate() if t.name == "cachestack-redis" and t is tier._listener._thread]
