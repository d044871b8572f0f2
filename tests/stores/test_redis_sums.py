"""Statistics in Redis: every count once, whatever the connection does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from cachestack.errors import StoreError
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores import opening
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.sums import RedisSums


@pytest.fixture
def open_sums(redis_server):
    prefix = redis_server.new_prefix()
    links = []

    def make() -> RedisSums:
        links.append(Link(redis_server.url, rest_s=0.0))
        return RedisSums(links[-1], prefix)

    yield make
    for link in links:
        link.close()


def test_sums_of_all_processes_add_up(open_sums):
    one, other = open_sums(), open_sums()
    one.add({"acme": {"requests": 2, "seconds": 0.5}, "büro \ud800": {"requests": 1}})
    other.add({"acme": {"requests": 3, "seconds": 0.25, "failed": 1}})
    expected = {"acme": {"requests": 5, "seconds": 0.75, "failed": 1}, "büro \ud800": {"requests": 1}}
    assert one.read() == other.read() == expected
    assert isinstance(one.read()["acme"]["requests"], int)


def test_nothing_is_read_where_nothing_was_added(open_sums):
    assert open_sums().read() == {}


@pytest.mark.parametrize("heard", [True, False], ids=["the answer was lost", "the batch was lost"])
def test_a_batch_whose_fate_is_unknown_is_added_once(open_sums, monkeypatch, heard):
    sums = open_sums()
    sums.add({"acme": {"requests": 1}})
    script = sums._link.script

    def breaks(name, keys, arguments):
        if heard:
            script(name, keys, arguments)
        raise StoreError("the connection broke")

    monkeypatch.setattr(sums._link, "script", breaks)
    sums.add({"acme": {"requests": 10}})
    sums.add({"acme": {"requests": 100}})
    with pytest.raises(StoreError):
        sums.read()
    monkeypatch.undo()
    assert sums.read() == {"acme": {"requests": 111}}
    sums.add({"acme": {"requests": 1000}})
    assert open_sums().read() == {"acme": {"requests": 1111}}


def test_stats_of_threads_and_stacks_agree(open_sums):
    all_stats = [Stats(open_sums(), flush_every_s=0.0) for _ in range(3)]
    barrier = threading.Barrier(9)

    def count(stats: Stats) -> None:
        barrier.wait()
        for _ in range(50):
            stats.count("acme", requests=1)

    threads = [threading.Thread(target=count, args=(stats,)) for stats in all_stats for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stats in all_stats:
        stats.flush()
    assert [stats.snapshot().by_tenant["acme"].requests for stats in all_stats] == [450] * 3


def test_a_process_that_ends_leaves_its_counts(redis_server, open_sums):
    sums = open_sums()
    code = f"""
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.sums import RedisSums
RedisSums(Link({redis_server.url!r}), {sums._names.prefix.decode()!r}).add({json.dumps({"acme": {"requests": 7}})})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sums.read() == {"acme": {"requests": 7}}


def test_processes_of_long_ago_are_forgotten(redis_server):
    now_s = [1000.0]
    prefix = redis_server.new_prefix()
    link = Link(redis_server.url)
    RedisSums(link, prefix, lambda: now_s[0]).add({"acme": {"requests": 1}})
    now_s[0] += 90_000
    late = RedisSums(link, prefix, lambda: now_s[0])
    late.add({"acme": {"requests": 1}})
    assert link.client.hlen(late._names.batches) == 1
    assert late.read() == {"acme": {"requests": 2}}
    link.close()


def test_two_stacks_on_one_redis_have_one_record(redis_server, tmp_path):
    """Each with a state folder of its own, as on two machines; `cachestack stats` reads the same."""
    ref = f"{redis_server.url}?prefix={redis_server.new_prefix()}"
    for name in ("one", "other"):
        with CacheStack.without_engine(encoder="none", home=tmp_path / name, store=ref) as stack:
            ask = stack.wrap(tenant="acme", model="m", name="f")(lambda prompt: "Page 12 of the manual.")
            assert ask("Where is it?") == "Page 12 of the manual."
            found = stack.stats().by_tenant["acme"]
    assert found.requests == 2
    assert found.semantic.hits == {"exact": 1}
    sums = opening.open_sums(ref, tmp_path / "third")
    assert Stats(sums).snapshot().by_tenant["acme"].requests == 2
    sums.close()
