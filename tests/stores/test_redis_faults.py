"""A Redis that is down, slow, full, restarted or not ours: uncached answers within the deadline, never an error."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import OutOfMemoryError

from cachestack.decisions import Response
from cachestack.entries import Selector
from cachestack.errors import EntryTooLarge, StoreError
from cachestack.keys import Partition
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.store import RedisStore
from cachestack.stores.sums import SumsFile
from cachestack.stores.tiered import TieredStore
from tests.redis_server import RedisServer, running
from tests.waiting import wait_until

ACME = Partition("acme")
DEADLINE_S = 0.3


class Asked:
    """A stack on a Redis, and how often its function was called."""

    def __init__(self, url: str, home: Path) -> None:
        self.num_calls = 0
        self.link = Link(url, deadline_s=DEADLINE_S, connect_deadline_s=DEADLINE_S, rest_s=5.0)
        self.store = RedisStore(self.link)
        self.stack = CacheStack(
            engines={},
            store=TieredStore(self.store),
            index=None,
            encoder=None,
            prefix=PrefixLayer(BlockPool(max_bytes=1024), secret=b"test"),
            policies=PolicySet.parse("", "test policy"),
            stats=Stats(SumsFile(home)),
        )
        self._ask: Callable[[str], Response] = self.stack.wrap(tenant="acme", model="m", name="answer")(
            self._answer
        ).respond  # type: ignore[attr-defined]

    def _answer(self, prompt: str) -> str:
        self.num_calls += 1
        return f"answer to {prompt}"

    def ask(self, prompt: str) -> str:
        """Where the answer came from, if it is the right one."""
        response = self._ask(prompt)
        assert response.text == f"answer to {prompt}"
        return response.trace.served_from

    def reasons(self) -> set[str]:
        found = self.stack.stats().by_tenant["acme"].semantic
        return set(found.bypasses) | set(found.misses)


@pytest.fixture
def open_on(tmp_path: Path) -> Iterator[Callable[[str], Asked]]:
    opened: list[Asked] = []

    def make(url: str) -> Asked:
        opened.append(Asked(url, tmp_path / f"stats-{len(opened)}"))
        return opened[-1]

    yield make
    for asked in opened:
        asked.stack.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with running(tmp_path) as made:
        yield made


def nobody_listens(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/nobody.sock"


def fill_up(client: Redis) -> None:
    for num_bytes in (100_000, 100):
        with suppress(OutOfMemoryError):
            while True:
                client.rpush("others", b"x" * num_bytes)


def test_a_server_that_is_down_means_uncached_answers(open_on, tmp_path):
    asked = open_on(nobody_listens(tmp_path))
    assert [asked.ask("Hello there") for _ in range(3)] == ["engine"] * 3
    assert asked.num_calls == 3
    assert asked.reasons() == {"store_unavailable"}


def test_a_server_that_comes_back_is_used_again(open_on, server, monkeypatch):
    asked = open_on(server.url)
    asked.link._rest_s = 0.0
    assert [asked.ask("Hello there") for _ in range(2)] == ["engine", "exact"]
    server.client().execute_command("CLIENT", "KILL", "TYPE", "NORMAL")
    assert asked.ask("Hello there") == "exact", "a lost connection is made anew"


def test_a_server_that_hangs_costs_one_deadline_and_then_nothing(open_on, server):
    """The first request waits for the deadline, the others are told at once that Redis does not answer."""
    asked = open_on(server.url)
    asked.ask("warm")
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        begin_s = time.monotonic()
        assert [asked.ask(f"question {i}") for i in range(50)] == ["engine"] * 50
        assert time.monotonic() - begin_s < 20 * DEADLINE_S, "50 deadlines would take 15 s"
        assert asked.link.num_failures <= 3
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def test_an_address_that_swallows_packets_fails_within_the_deadline(open_on):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # nobody accepts: the connection stands, and stays silent
        asked = open_on(f"redis://127.0.0.1:{full.getsockname()[1]}")
        begin_s = time.monotonic()
        assert asked.ask("Hello there") == "engine"
        assert time.monotonic() - begin_s < 10 * DEADLINE_S


def test_a_full_server_keeps_serving_what_it_has(open_on, tmp_path):
    with running(tmp_path, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction") as server:
        asked = open_on(server.url)
        assert [asked.ask("the first") for _ in range(2)] == ["engine", "exact"]
        client = server.client()
        fill_up(client)
        assert asked.ask("the first") == "exact"
        assert [asked.ask("another") for _ in range(2)] == ["engine"] * 2
        assert asked.stack.stats().by_tenant["acme"].store_failures >= 1
        client.delete("others")


def test_an_emptied_server_is_registered_anew(server, clock, make_entry):
    """FLUSHALL, or a replica that knew nothing: what is put after it has to be found by whoever invalidates."""
    store = RedisStore(Link(server.url), clock)
    store.put(make_entry("before"))
    server.client().flushall()
    entry = make_entry("after")
    assert store.put(entry)
    other = RedisStore(Link(server.url), clock)
    assert other.tenants() == ["acme"]
    assert other.invalidate(Selector(tenant="acme")) == 1
    assert store.find_exact(ACME, entry.exact) is None
    store.close()
    other.close()


def test_a_damaged_entry_is_counted_removed_and_absent(server, clock, make_entry):
    store = RedisStore(Link(server.url), clock)
    entry, other = make_entry("damaged"), make_entry("whole")
    store.put(entry)
    store.put(other)
    (key,) = [k for k in server.client().scan_iter("*}e*") if b"damaged" in server.client().get(k)]
    data = server.client().get(key)
    server.client().set(key, data.replace(b"damaged", b"demaged"))
    assert store.find_exact(ACME, entry.exact) is None
    assert store.num_corrupt == 1
    assert list(store.entries(ACME)) == [other]
    assert store.size().num_entries == 1
    store.close()


def test_an_entry_of_another_partition_under_this_key_is_not_served(server, clock, make_entry):
    store = RedisStore(Link(server.url), clock)
    ours, theirs = make_entry("q"), make_entry("q", tenant="other", answer="theirs")
    store.put(ours)
    store.put(theirs)
    client = server.client()
    (our_key,) = [k for k in client.scan_iter("*}e*") if b"theirs" not in client.get(k)]
    (their_key,) = [k for k in client.scan_iter("*}e*") if b"theirs" in client.get(k)]
    client.set(our_key, client.get(their_key))
    assert store.find_exact(ACME, ours.exact) is None
    store.close()


def test_a_refusal_is_a_store_error_and_no_reason_to_rest(server):
    link = Link(server.url, rest_s=1000.0)
    link.run(lambda client: client.set("text", "x"))
    with pytest.raises(StoreError, match="WRONGTYPE"):
        link.run(lambda client: client.lrange("text", 0, -1))
    assert link.run(lambda client: client.get("text")) == b"x"
    link.close()


def test_the_password_is_in_no_message(tmp_path):
    link = Link(f"unix://:hunter2@{tmp_path}/nobody.sock")
    with pytest.raises(StoreError) as raised:
        link.run(lambda client: client.ping())
    assert "hunter2" not in str(raised.value)
    link.close()


def test_an_entry_too_large_for_the_budget_is_refused_without_asking(tmp_path, make_entry):
    store = RedisStore(Link(nobody_listens(tmp_path)))
    with pytest.raises(EntryTooLarge):
        store.put(make_entry(answer="x" * 10_000), max_bytes=5000)
    store.close()


def test_what_two_processes_put_at_once_counts_once(server, clock, make_entry):
    one, other = (RedisStore(Link(server.url), clock) for _ in range(2))
    entries = [make_entry(f"question {i}") for i in range(20)]
    for entry in entries:
        one.put(entry)
        other.put(entry)
    assert one.size("acme") == other.size("acme")
    assert one.size("acme").num_entries == 20
    total = one.link.client.hget(one.names.shares("acme"), "total")
    assert int(total) == one.size("acme").num_bytes
    one.close()
    other.close()


def test_a_restarted_server_with_nothing_on_disk_starts_empty(open_on, tmp_path):
    with running(tmp_path) as server:
        asked = open_on(server.url)
        asked.link._rest_s = 0.0
        assert [asked.ask("Hello there") for _ in range(2)] == ["engine", "exact"]
    wait_until(lambda: asked.ask("Hello there") == "engine")  # the memory in front of it knows within a second
    (tmp_path / "redis.sock").unlink(missing_ok=True)
    with running(tmp_path):
        wait_until(lambda: asked.ask("Hello there") == "exact")
