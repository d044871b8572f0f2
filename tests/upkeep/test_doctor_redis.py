"""The doctor on entries in Redis: each fault is found, mended without losing what is good, and then it is content."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from cachestack.cli.app import main
from cachestack.entries import Selector
from cachestack.keys import Partition
from cachestack.semantic.redis_index import RedisIndex
from cachestack.stores.codec import encode_entry
from cachestack.stores.opening import open_redis
from cachestack.stores.redis.names import text_digest
from cachestack.upkeep.doctor import examine_all
from cachestack.upkeep.findings import Looked, Severity
from tests.redis_server import running
from tests.upkeep.conftest import ENCODER, make_entry
from tests.waiting import wait_until

ACME = Partition("acme")


def counted(done):
    """Without what is only noted."""
    return [f for f in done.findings if f.severity is not Severity.NOTE]


def fill(store, num: int = 6):
    entries = [make_entry(contract="c" * 64) for _ in range(num)]
    for entry in entries:
        assert store.put(entry)
    return entries


def test_a_store_that_is_well_is_clean(redis_home, shared):
    entries = fill(shared)
    shared.put(make_entry(tenant="other"), max_bytes=100_000)
    shared.put(replace(entries[0], answer="again"))
    shared.invalidate(Selector(entry_id=entries[1].entry_id))
    shared.set_vector(ACME, entries[2].entry_id, entries[3].vector, "f" * 64)
    done = redis_home.look()
    assert (counted(done), done.failures, done.status) == ([], (), 0)


def test_an_empty_store_is_clean(redis_home):
    assert redis_home.look().status == 0


def slot_of(store):
    (slot,) = store.names.slots(ACME)
    return slot


FAULTS = (
    "damaged", "record lost", "all records lost", "entry lost", "id lost", "number lost", "use lost", "expiry lost",
    "vector lost", "stray id", "stray vector", "counts", "meta lost", "total", "fence", "leftover use",
)  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_mended_and_the_rest_stays(redis_home, shared, redis_server, fault):
    victim, *others = fill(shared)
    shared.put(make_entry(tenant="other", entry_id="theirs"))
    client, slot, exact = redis_server.client(), slot_of(shared), text_digest(victim.exact)
    kept = {e.entry_id: e for e in (victim, *others)}
    vectors = slot.vectors_of(victim)
    match fault:
        case "damaged":
            client.set(slot.entries + exact, encode_entry(victim)[:-2])
            del kept[victim.entry_id]
        case "record lost":
            assert client.hdel(slot.records, exact)
        case "all records lost":
            assert client.delete(slot.records)
        case "entry lost":
            assert client.delete(slot.entries + exact)
            del kept[victim.entry_id]
        case "id lost":
            assert client.hdel(slot.ids, text_digest(victim.entry_id))
        case "number lost":
            assert client.hdel(slot.numbers, exact)
        case "use lost":
            assert client.zrem(slot.used, exact)
        case "expiry lost":
            assert client.zrem(slot.gone, exact)
        case "vector lost":
            assert client.execute_command("VREM", vectors, exact)
        case "stray id":
            client.hset(slot.ids, b"?" * 32, exact)
        case "stray vector":
            client.execute_command("VADD", vectors, "FP32", victim.vector, b"?" * 32, "Q8")
        case "counts":
            client.hincrby(slot.meta, "bytes", 5)
        case "meta lost":
            assert client.delete(slot.meta)
        case "total":
            client.hincrby(shared.names.shares("acme"), "total", 5)
        case "fence":
            client.zadd(shared.names.fences, {b"nonsense": 1.0})
        case "leftover use":
            client.zadd(slot.used, {b"?" * 32: 1.0})
    done = redis_home.look()
    assert (done.status, done.failures) == (1, ())
    assert all(f.repair for f in counted(done)), done
    assert [f.what for f in redis_home.look().findings] == [f.what for f in done.findings], "looking changes nothing"
    done = redis_home.look(repair=True)
    assert (done.status, done.failures) == (0, ()), done
    done = redis_home.look()
    assert (counted(done), done.status) == ([], 0)
    assert {e.entry_id: e for e in shared.select(Selector(tenant="acme"))} == kept
    index = RedisIndex(shared)
    for entry in kept.values():
        assert shared.find_exact(ACME, entry.exact) == entry
        assert shared.get(ACME, entry.entry_id) == entry
        assert index.search(ACME, entry.contract, entry.vector, ENCODER, 1)[0].entry == entry
    assert shared.invalidate(Selector(tenant="acme")) == len(kept)
    assert client.vcard(vectors) if client.exists(vectors) else True
    assert [e.entry_id for e in shared.select(Selector())] == ["theirs"]


@pytest.mark.parametrize("lost", ["partition", "tenant", "unreadable"])
def test_a_partition_that_is_not_listed_is_listed_again(redis_home, shared, redis_server, lost):
    """Its entries are served, and no invalidation would find them."""
    entries, client = fill(shared), redis_server.client()
    if lost == "partition":
        assert client.delete(shared.names.partitions("acme"))
    elif lost == "tenant":
        assert client.delete(shared.names.tenants)
    else:
        (name,) = client.hkeys(shared.names.partitions("acme"))
        client.hset(shared.names.partitions("acme"), name, b"[broken")
    done = redis_home.look()
    assert (done.status, {f.severity for f in counted(done)}) == (1, {Severity.ERROR})
    assert redis_home.look(repair=True).status == 0
    assert redis_home.look().status == 0
    assert shared.invalidate(Selector(tag=None, created_before_s=2e9)) == len(entries)


def test_a_repair_does_not_bring_back_what_was_invalidated_meanwhile(redis_home, shared, redis_server):
    victim, *_ = fill(shared)
    slot = slot_of(shared)
    redis_server.client().zrem(slot.used, text_digest(victim.exact))
    shared.invalidate(Selector(tenant="acme"))  # finds it all the same: only its use was lost
    shared.put(other := make_entry(age_s=-1))
    assert redis_home.look(repair=True).status == 0
    assert [e.entry_id for e in shared.select(Selector())] == [other.entry_id]


def test_fewer_slots_than_it_was_written_with_are_told(redis_home, redis_server):
    ref = redis_home.store_ref
    redis_home.store_ref = f"{ref}&slots=4"
    store = open_redis(redis_home.ref).shared
    fill(store, 12)
    assert redis_home.look().status == 0
    redis_home.store_ref = ref
    done = redis_home.look(repair=True)
    assert done.status == 1
    assert any("slots=" in f.what for f in done.findings)
    assert len(list(store.select(Selector()))) == 12, "nothing is touched"
    store.close()


def test_more_slots_than_it_was_written_with_put_entries_where_they_are_found(redis_home, shared):
    entries = {entry.entry_id: entry for entry in fill(shared, 12)}
    redis_home.store_ref = f"{redis_home.store_ref}&slots=4"
    assert redis_home.look().status == 1
    assert redis_home.look(repair=True).status == 0
    assert redis_home.look().status == 0
    store = open_redis(redis_home.ref).shared
    assert {e.entry_id: e for e in store.select(Selector())} == entries
    for entry in entries.values():
        assert store.find_exact(ACME, entry.exact) == entry
    assert store.size().num_entries == 12
    store.close()


def test_it_is_clean_while_others_write(redis_home, shared):
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            shared.put(make_entry(f"q {number % 7}"), max_bytes=12_000)

    fill(shared)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(8):
            done = redis_home.look()
            assert (counted(done), done.failures) == ([], ())
        assert redis_home.look(repair=True).status == 0
    finally:
        stop.set()
        writer.join()
    assert redis_home.look().status == 0


def test_a_server_that_may_drop_keys_and_one_without_vector_sets(tmp_path, home):
    with running(tmp_path, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server:
        home.store_ref = server.url
        store = open_redis(home.ref).shared
        fill(store)
        done = home.look()
        assert (done.status, [f.severity for f in counted(done)]) == (1, [Severity.ERROR])
        assert "noeviction" in counted(done)[0].what
        client = server.client()
        client.config_set("maxmemory-policy", "noeviction")
        assert home.look().status == 0
        client.execute_command("ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", *NO_VECTORS)
        home.store_ref = server.url.replace("unix://", "unix://plain:pw@")
        done = home.look()
        assert any("no vector sets" in f.what for f in counted(done)), done
        assert "pw" not in str(done)
        store.close()


NO_VECTORS = ("-vadd", "-vsim", "-vcard", "-vrem", "-vemb", "-vismember")


def test_the_user_that_the_documents_name_may_do_all_that_is_needed(tmp_path, home):
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    words = re.search(r"`user cachestack on >PASSWORD ([^`]+)`", text)[1].split()
    with running(tmp_path) as server:
        client = server.client()
        client.execute_command("ACL", "SETUSER", "cachestack", "on", ">pw", *words)
        client.config_set("maxmemory", "100mb")
        home.store_ref = server.url.replace("unix://", "unix://cachestack:pw@")
        tier = open_redis(home.ref)
        entries = fill(tier.shared)
        tier.shared.put(make_entry(), max_bytes=20_000)
        assert tier.find_exact(ACME, entries[0].exact) == entries[0]
        wait_until(lambda: tier._is_listening())
        assert RedisIndex(tier.shared).search(ACME, entries[0].contract, entries[0].vector, ENCODER, 1)
        assert tier.shared.set_vector(ACME, entries[0].entry_id, entries[1].vector, "f" * 64)
        tier.purge(1.0)
        (slot,) = tier.shared.names.slots(ACME)
        client.delete(slot.records)
        assert home.look(repair=True).status == 0
        assert counted(home.look()) == []
        assert tier.invalidate(Selector(tenant="acme")) > 0
        with pytest.raises(redis.exceptions.NoPermissionError):
            tier.shared.link.client.flushall()
        tier.close()


def test_a_server_that_is_not_there(home, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CACHESTACK_STORE", f"unix://user:hidden@{tmp_path}/none.sock")
    assert main(["doctor"]) == 2
    said = capsys.readouterr()
    assert "does not answer" in said.err
    assert "hidden" not in said.err + said.out


def test_looking_takes_a_deadline_of_its_own(redis_home):
    looked = Looked(redis_home.folder, replace(redis_home.ref, deadline_s=0.001), 0.0)
    assert examine_all(looked).failures == ()
