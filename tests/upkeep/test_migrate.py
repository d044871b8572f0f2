"""Entries from store to store: all of them, nothing older over anything newer, and nothing that was invalidated."""

from __future__ import annotations

import json
import threading

import pytest

from cachestack.cli.app import main
from cachestack.entries import Selector
from cachestack.errors import StoreError, UnknownTenant
from cachestack.keys import Partition
from cachestack.stores.disk import DiskStore
from cachestack.stores.opening import open_redis
from cachestack.upkeep.moving import migrate
from tests.upkeep.conftest import make_entry

ACME = Partition("acme")
NOW_S = 1e9


@pytest.fixture(params=["disk to redis", "redis to disk", "redis to redis in slots", "disk to disk"])
def stores(request, tmp_path, redis_server, home):
    """Source and target."""
    made = []
    for kind in request.param.split(" to "):
        if kind == "disk":
            made.append(DiskStore(tmp_path / f"entries-{len(made)}"))
        else:
            home.store_ref = (
                f"{redis_server.url}?prefix={redis_server.new_prefix()}{'&slots=3' if 'slots' in kind else ''}"
            )
            made.append(open_redis(home.ref).shared)
    yield tuple(made)
    for store in made:
        store.close()


def moved(source, target, **options):
    values = {"max_bytes_of": lambda tenant: None, "clock": lambda: NOW_S}
    return migrate(source, target, **(values | options))


def everything(store):
    return {entry.entry_id: entry for entry in store.select(Selector())}


def fill(store, num: int = 8):
    entries = [make_entry() for _ in range(num)]
    entries += [make_entry(tenant="beta"), make_entry(partition=Partition("acme", user="ana"))]
    for entry in entries:
        assert store.put(entry)
    return {entry.entry_id: entry for entry in entries}


def test_all_entries_are_moved_and_stay_where_they_were(stores):
    source, target = stores
    entries = fill(source)
    told = []
    done = moved(source, target, advance=lambda *counts: told.append(counts))
    assert (done.num_entries, done.moved, done.removed, done.skipped) == (10, 10, 0, {})
    assert everything(target) == everything(source) == entries
    assert told[-1] == (10, 10)
    for entry in entries.values():
        assert target.find_exact(entry.partition, entry.exact) == entry


def test_a_second_run_moves_nothing(stores):
    source, target = stores
    fill(source)
    moved(source, target)
    done = moved(source, target)
    assert (done.moved, done.skipped) == (0, {"there": 10})


def test_a_dry_run_moves_nothing_and_counts_the_same(stores):
    source, target = stores
    entries = list(fill(source).values())
    target.put(entries[0])
    source.put(make_entry(expires_at_s=NOW_S - 1, stale_until_s=NOW_S - 1))
    before = everything(target)
    tried = moved(source, target, dry_run=True)
    assert everything(target) == before
    assert (tried.moved, tried.skipped) == (9, {"there": 1, "expired": 1})
    done = moved(source, target)
    assert (done.moved, done.skipped) == (tried.moved, tried.skipped)


def test_the_newer_stays(stores):
    source, target = stores
    old, new = make_entry("q", age_s=100), make_entry("q", age_s=50)
    source.put(old)
    target.put(new)
    older_there = make_entry("r", age_s=100)
    newer_here = make_entry("r", age_s=50)
    target.put(older_there)
    source.put(newer_here)
    moved(source, target)
    assert everything(target) == {new.entry_id: new, newer_here.entry_id: newer_here}


def test_a_run_that_was_cut_off_is_repeated(stores):
    source, target = stores
    entries = fill(source)
    put, num = target.put, 0

    def dies(*arguments, **options):
        nonlocal num
        num += 1
        if num == 5:
            raise StoreError("killed")
        return put(*arguments, **options)

    target.put = dies
    with pytest.raises(StoreError):
        moved(source, target)
    done = moved(source, target)
    assert (done.moved, done.skipped) == (6, {"there": 4})
    assert everything(target) == entries


def test_what_is_invalidated_between_two_runs_is_gone_at_the_target(stores):
    source, target = stores
    fill(source)
    moved(source, target)
    assert source.invalidate(Selector(tenant="acme")) == 9
    source.put(fresh := make_entry(age_s=-1))
    done = moved(source, target)
    assert (done.removed, done.moved) == (9, 1)
    assert {e.partition.tenant for e in everything(target).values()} == {"acme", "beta"}
    assert everything(target)[fresh.entry_id] == fresh


def test_what_is_invalidated_at_the_target_does_not_come_back(stores):
    source, target = stores
    fill(source)
    moved(source, target)
    target.invalidate(Selector(tenant="acme"))
    done = moved(source, target)
    assert done.skipped == {"invalidated": 9, "there": 1}
    assert [e.partition.tenant for e in everything(target).values()] == ["beta"]


@pytest.mark.parametrize("what", ["removed", "replaced", "added"])
def test_what_happens_at_the_source_meanwhile_is_followed(stores, what):
    source, target = stores
    entries = list(fill(source).values())
    plain = [e for e in entries if e.partition == ACME]
    put, happened = target.put, threading.Event()
    fresh = make_entry(plain[0].question, age_s=1)

    def and_then(entry, *arguments, **options):
        done = put(entry, *arguments, **options)
        if entry.partition == ACME and not happened.is_set() and len(everything(target)) >= 3:
            happened.set()
            victims = [e for e in plain if target.get(ACME, e.entry_id) is not None][:2]
            for victim in victims:
                if what == "removed":
                    source.invalidate(Selector(entry_id=victim.entry_id))
                elif what == "replaced":
                    source.put(make_entry(victim.question, age_s=1))
            if what == "added":
                source.put(fresh)
        return done

    target.put = and_then
    moved(source, target)
    assert happened.is_set()
    assert everything(target) == everything(source)


def test_budgets_and_refused_tenants(stores):
    source, target = stores
    fill(source)
    source.put(make_entry(answer="x" * 50_000))
    done = moved(source, target, max_bytes_of=lambda tenant: 10_000)
    assert done.skipped == {"too_large": 1}
    assert target.size("acme").num_bytes <= 10_000

    def refuse(tenant):
        raise UnknownTenant(tenant)

    before = everything(target)
    with pytest.raises(UnknownTenant):
        moved(source, target, max_bytes_of=refuse)
    assert everything(target) == before


def test_the_command_there_and_back(home, redis_server, capsys):
    entries = [make_entry() for _ in range(5)]
    home.put(*entries)
    ref = f"{redis_server.url}?prefix={redis_server.new_prefix()}"
    assert main(["migrate", "--from", "disk:", "--to", ref, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["moved"] == 5
    assert main(["migrate", "--from", "disk:", "--to", ref]) == 0
    assert "5 of 5 moved" in capsys.readouterr().out
    other = home.folder / "elsewhere"
    assert main(["migrate", "--from", ref, "--to", f"disk:{other}", "--json"]) == 0
    store = DiskStore(other)
    assert everything(store) == {e.entry_id: e for e in entries}
    store.close()
    assert main(["migrate", "--from", ref, "--to", ref]) == 2
    assert "the same store" in capsys.readouterr().err
    assert main(["migrate", "--from", "nowhere", "--to", ref]) == 2
