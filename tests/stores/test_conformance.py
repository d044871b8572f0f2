"""What every store must do. The same tests run over memory, disk and Redis."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cachestack.entries import Selector
from cachestack.errors import EntryTooLarge, StoreError, UsageError
from cachestack.keys import Partition
from cachestack.stores.codec import charged_bytes, encode_entry
from cachestack.stores.disk import DiskStore
from cachestack.stores.redis.store import RedisStore

ACME = Partition("acme")


def cost(entry):
    return charged_bytes(encode_entry(entry))


def tells_changes(store):
    """A partition in several slots has no common order of changes: whoever follows it starts over."""
    return not isinstance(store, RedisStore) or store.names.num_slots == 1


def ids(store, partition=ACME):
    return {e.entry_id for e in store.entries(partition)}


def test_an_entry_comes_back_as_it_was_put(store, make_entry):
    entry = make_entry(
        "où est ma commande ?",
        principal="ana",
        version="v2",
        tags=("faq", "été"),
        vector=b"\x00\x00\x80\x3f" * 3,
        encoder="e" * 64,
        language="fr",
        finish_reason="length",
    )
    store.put(entry)
    assert store.find_exact(ACME, entry.exact) == entry
    assert store.get(ACME, entry.entry_id) == entry
    assert list(store.entries(ACME)) == [entry]


def test_nothing_is_found_where_nothing_was_put(store):
    assert store.find_exact(ACME, "x") is None
    assert store.get(ACME, "x") is None
    assert list(store.entries(ACME)) == []
    assert store.latest(ACME) == 0
    assert store.changes(ACME, 0).complete
    assert not store.changes(ACME, 7).complete
    assert store.size().num_entries == store.size("acme").num_bytes == 0
    assert store.invalidate(Selector(tenant="acme")) == 0
    assert store.purge(1e12) == 0


@pytest.mark.parametrize(
    "other", [Partition("other"), Partition("acme", user="u"), Partition("acme", role="u"), Partition("acmе")]
)
def test_partitions_are_walls(store, make_entry, other):
    ours = make_entry("same", entry_id="same")
    theirs = make_entry("same", entry_id="same", partition=other, exact=ours.exact, answer="theirs")
    store.put(ours)
    assert store.find_exact(other, ours.exact) is None
    assert store.get(other, "same") is None
    assert list(store.entries(other)) == []
    store.put(theirs)
    assert store.find_exact(ACME, ours.exact) == ours
    assert store.find_exact(other, ours.exact) == theirs
    assert store.get(ACME, "same") == ours
    assert store.get(other, "same") == theirs


def test_user_and_role_of_the_same_name_are_different_walls(store, make_entry):
    store.put(make_entry("q", partition=Partition("acme", user="x")))
    assert list(store.entries(Partition("acme", role="x"))) == []


def test_a_new_answer_to_the_same_question_replaces_the_old_one(store, make_entry):
    old, new = make_entry("q"), make_entry("q")
    store.put(old)
    store.put(new)
    assert store.find_exact(ACME, old.exact) == new
    assert store.get(ACME, old.entry_id) is None
    assert list(store.entries(ACME)) == [new]
    assert store.size("acme").num_entries == 1
    assert store.size("acme").num_bytes == cost(new)


def test_the_same_id_put_again_leaves_no_way_from_its_old_question(store, make_entry):
    first = make_entry("first question", entry_id="one")
    second = make_entry("second question", entry_id="one", answer="a longer answer than before")
    store.put(first)
    store.put(second)
    assert store.find_exact(ACME, first.exact) is None
    assert store.find_exact(ACME, second.exact) == second
    assert store.size("acme").num_entries == 1
    assert store.size("acme").num_bytes == cost(second)
    store.put(make_entry("first question", entry_id="two"))
    assert store.find_exact(ACME, second.exact) == second


def test_expired_entries_are_still_read_until_they_are_purged(store, make_entry, clock):
    short = make_entry(ttl_s=10)
    stale = make_entry(ttl_s=10, stale_until_s=clock() + 100)
    long = make_entry(ttl_s=1000)
    for entry in (short, stale, long):
        store.put(entry)
    clock.tick(10)
    assert not short.is_live(clock())
    assert store.find_exact(ACME, short.exact) == short
    assert store.purge(clock()) == 1
    assert ids(store) == {stale.entry_id, long.entry_id}
    assert store.find_exact(ACME, short.exact) is None
    assert store.purge(clock.tick(89)) == 0
    assert store.purge(clock.tick(1)) == 1
    assert ids(store) == {long.entry_id}
    assert store.size("acme").num_bytes == cost(long)


def test_a_live_entry_is_not_purged_whatever_its_stale_limit(store, make_entry, clock):
    store.put(make_entry(entry_id="live", ttl_s=50, stale_until_s=clock() - 1))
    assert store.purge(clock()) == 0
    assert ids(store) == {"live"}


@pytest.mark.parametrize("how", ["used", "encoded anew"])
def test_neither_use_nor_a_new_vector_prolongs_a_life(store, make_entry, clock, how):
    """Traps 6 and 7. Its own life, which is shorter than others': none starts anew, and none becomes the usual one."""
    entry = make_entry(entry_id="e", ttl_s=10)
    store.put(entry)
    store.put(make_entry(entry_id="longer", ttl_s=1000))
    for _ in range(3):  # uses are written once a second
        clock.tick(3)
        if how == "used":
            store.touch(ACME, "e", clock())
        else:
            assert store.set_vector(ACME, "e", b"\1" * 16, "fresh")
    kept = store.find_exact(ACME, entry.exact)
    assert (kept.created_at_s, kept.expires_at_s, kept.stale_until_s) == (clock() - 9, clock() + 1, clock() + 1)
    assert store.purge(clock()) == 0
    assert store.purge(clock.tick(1)) == 1
    assert ids(store) == {"longer"}


def test_the_least_recently_used_entries_go_first(store, make_entry, clock):
    entries = [make_entry(entry_id=f"e{i}", answer="x" * 100) for i in range(4)]
    for entry in entries:
        store.put(entry)
        clock.tick()
    store.touch(ACME, "e0", clock.tick())
    new = make_entry(entry_id="new", answer="x" * 100)
    store.put(new, max_bytes=sum(cost(e) for e in (entries[0], entries[3], new)))
    assert ids(store) == {"e0", "e3", "new"}
    assert store.find_exact(ACME, entries[1].exact) is None


def test_eviction_looks_at_all_partitions_of_the_tenant_and_at_no_other_tenant(store, make_entry, clock):
    theirs = make_entry(tenant="other", answer="y" * 5000)
    store.put(theirs)
    clock.tick()
    by_user = make_entry(partition=Partition("acme", user="u"))
    store.put(by_user)
    clock.tick()
    ours = make_entry()
    store.put(ours, max_bytes=cost(ours))
    assert list(store.entries(Partition("acme", user="u"))) == []
    assert ids(store) == {ours.entry_id}
    assert store.get(Partition("other"), theirs.entry_id) == theirs
    assert store.size("acme").num_bytes == cost(ours)
    assert store.size("other").num_bytes == cost(theirs)
    assert store.size().num_bytes == cost(ours) + cost(theirs)
    assert store.tenants() == ["acme", "other"]


def test_an_entry_above_the_whole_budget_is_refused_and_evicts_nobody(store, make_entry):
    kept, huge = make_entry(), make_entry(answer="x" * 10_000)
    store.put(kept)
    with pytest.raises(EntryTooLarge, match="does not fit the tenant's budget of 5000 bytes"):
        store.put(huge, max_bytes=5000)
    assert ids(store) == {kept.entry_id}


def test_an_entry_that_fits_exactly_stays(store, make_entry):
    entry = make_entry()
    store.put(entry, max_bytes=cost(entry))
    assert ids(store) == {entry.entry_id}


def test_touching_what_is_not_there_does_nothing(store, make_entry, clock):
    store.touch(ACME, "nobody", clock())
    store.put(make_entry(entry_id="e"))
    store.touch(ACME, "nobody", clock.tick(5))
    assert ids(store) == {"e"}


@pytest.fixture
def catalogue(store, make_entry, clock):
    """Entries that differ in every field a selector knows; by id."""
    start = clock()
    made = [
        make_entry(entry_id="plain"),
        make_entry(entry_id="tagged", tags=("faq", "prices")),
        make_entry(entry_id="v1", version="v1", tags=("faq",)),
        make_entry(entry_id="v2", version="v2"),
        make_entry(entry_id="walled", partition=Partition("acme", user="ana")),
        make_entry(entry_id="by-ana", principal="ana"),
        make_entry(entry_id="role", partition=Partition("acme", role="admin"), principal="bob"),
        make_entry(entry_id="new", created_at_s=start + 100),
        make_entry(entry_id="theirs", tenant="other", tags=("faq",), version="v1", principal="ana"),
    ]
    for entry in made:
        store.put(entry)
    return {e.entry_id: e for e in made}


@pytest.mark.parametrize(
    ("selector", "gone"),
    [
        (Selector(tenant="other"), {"theirs"}),
        (Selector(tenant="nobody"), set()),
        (Selector(user="ana"), {"walled", "by-ana", "theirs"}),
        (Selector(user="bob"), {"role"}),
        (Selector(user="admin"), set()),
        (Selector(tag="faq"), {"tagged", "v1", "theirs"}),
        (Selector(tag="fa"), set()),
        (Selector(version="v1"), {"v1", "theirs"}),
        (Selector(created_before_s=1_000_000.5), {"plain", "tagged", "v1", "v2", "walled", "by-ana", "role", "theirs"}),
        (Selector(created_before_s=1_000_000.0), set()),
        (Selector(entry_id="role"), {"role"}),
        (Selector(entry_id="nobody"), set()),
        (Selector(tenant="acme", user="ana"), {"walled", "by-ana"}),
        (Selector(tenant="acme", tag="faq", version="v1"), {"v1"}),
        (Selector(tenant="other", tag="faq", version="v1", user="ana", created_before_s=2e6), {"theirs"}),
        (Selector(tenant="acme", entry_id="theirs"), set()),
        (Selector(entry_id="tagged", tag="prices"), {"tagged"}),
        (Selector(entry_id="tagged", tag="other"), set()),
    ],
)
def test_invalidation_removes_what_matches_all_conditions_and_nothing_else(store, catalogue, selector, gone):
    assert store.invalidate(selector) == len(gone)
    for entry_id, entry in catalogue.items():
        expected = None if entry_id in gone else entry
        assert store.get(entry.partition, entry_id) == expected
        assert store.find_exact(entry.partition, entry.exact) == expected
    assert store.size().num_entries == len(catalogue) - len(gone)
    assert store.invalidate(selector) == 0


def test_an_entry_id_is_found_in_every_partition_and_tenant(store, make_entry):
    for partition in (ACME, Partition("acme", user="u"), Partition("other")):
        store.put(make_entry(entry_id="same", partition=partition))
    assert store.invalidate(Selector(entry_id="same")) == 3
    assert store.size().num_entries == 0


def test_an_empty_selector_is_refused(store, make_entry):
    store.put(make_entry())
    with pytest.raises(UsageError, match="at least one of tenant, user, tag"):
        store.invalidate(Selector())
    assert store.size().num_entries == 1


@pytest.mark.parametrize(
    "text",
    ["", "\0", "naïve ñ 日本語 🙂 \u202e", "\ud800 lone surrogate", "x" * 3_000_000, "ÿ" * 70_000, 'quote " \\ \n'],
    ids=["empty", "nul", "unicode", "surrogate", "huge", "two-bytes", "escapes"],
)
def test_any_text_is_kept(store, make_entry, text):
    entry = make_entry(
        text,
        partition=Partition(text, user=text),
        entry_id=text,
        exact=text,
        answer=text,
        tags=(text,),
        version=text,
        principal=text,
        vector=b"\xff\x00" * 50,
    )
    store.put(entry)
    assert store.find_exact(entry.partition, text) == entry
    assert store.get(entry.partition, text) == entry
    if tells_changes(store):
        assert store.changes(entry.partition, store.latest(entry.partition) - 1).changes[0].entry_id == text
    assert store.invalidate(Selector(tenant=text, user=text, tag=text, version=text, entry_id=text)) == 1


def test_times_without_end_are_kept(store, make_entry):
    entry = make_entry(expires_at_s=float("inf"), stale_until_s=float("inf"))
    store.put(entry)
    assert store.purge(1e18) == 0
    assert store.get(ACME, entry.entry_id) == entry


def test_changes_tell_what_happened_in_order(store, make_entry, clock):
    store.put(make_entry(entry_id="a"))
    start = store.latest(ACME)
    store.put(make_entry("q", entry_id="b"))
    store.put(make_entry("q", entry_id="c"))
    store.put(make_entry(tenant="other"))
    store.invalidate(Selector(entry_id="a"))
    found = store.changes(ACME, start)
    if not tells_changes(store):
        assert not found.complete
        assert store.changes(ACME, found.latest).complete
        return
    assert found.complete
    assert found.latest == store.latest(ACME) == start + 4
    assert [(c.number - start, c.kind, c.entry_id) for c in found.changes] == [
        (1, "put", "b"),
        (2, "remove", "b"),
        (3, "put", "c"),
        (4, "remove", "a"),
    ]
    assert store.changes(ACME, found.latest).changes == ()
    assert store.changes(ACME, found.latest).complete
    assert not store.changes(ACME, found.latest + 1).complete
    assert not store.changes(ACME, 0).complete


def test_a_vector_can_be_replaced_in_place(store, make_entry, clock):
    entry = make_entry(entry_id="old", vector=b"\0" * 8, encoder="old", answer="x")
    newer = make_entry(entry_id="newer")
    store.put(entry)
    clock.tick()
    store.put(newer)
    clock.tick()
    before = store.latest(ACME)
    assert store.set_vector(ACME, "old", b"\1" * 16, "fresh")
    changed = replace(entry, vector=b"\1" * 16, encoder="fresh")
    assert store.get(ACME, "old") == store.find_exact(ACME, entry.exact) == changed
    assert store.latest(ACME) == before + 1
    if tells_changes(store):
        assert [(c.kind, c.entry_id) for c in store.changes(ACME, before).changes] == [("put", "old")]
    assert store.size().num_bytes == cost(changed) + cost(newer)
    last = make_entry(entry_id="last")
    store.put(last, max_bytes=cost(newer) + cost(last))
    assert ids(store) == {"newer", "last"}, "a new vector is not a use"
    assert not store.set_vector(ACME, "old", b"", "fresh")
    assert not store.set_vector(Partition("nobody"), "old", b"", "fresh")
    assert store.get(ACME, "old") is None


def test_a_closed_store_says_so_and_can_be_closed_again(store, make_entry):
    store.put(make_entry())
    store.close()
    store.close()
    for call in (
        lambda: store.get(ACME, "x"),
        lambda: store.find_exact(ACME, "x"),
        lambda: store.put(make_entry()),
        lambda: list(store.entries(ACME)),
        lambda: store.latest(ACME),
        lambda: store.invalidate(Selector(tenant="acme")),
    ):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_threads_that_start_together_lose_nothing(store, make_entry):
    num_threads, num_each = 8, 15
    barrier = threading.Barrier(num_threads)
    lots = [[make_entry(entry_id=f"{t}-{i}") for i in range(num_each)] for t in range(num_threads)]

    def work(mine):
        barrier.wait()
        for entry in mine:
            store.put(entry)
            assert store.find_exact(ACME, entry.exact) == entry
            store.touch(ACME, entry.entry_id, 5.0)

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(work, lots))
    everything = [e for mine in lots for e in mine]
    assert ids(store) == {e.entry_id for e in everything}
    assert store.size("acme").num_bytes == sum(map(cost, everything))
    if not tells_changes(store):
        return
    newest = store.changes(ACME, store.latest(ACME) - len(everything))
    assert newest.complete
    assert {c.entry_id for c in newest.changes} == {e.entry_id for e in everything}


def test_threads_that_answer_the_same_question_leave_one_answer(store, make_entry):
    num_threads = 8
    barrier = threading.Barrier(num_threads)
    rivals = [make_entry("q", entry_id=f"rival-{i}") for i in range(num_threads)]

    def work(entry):
        barrier.wait()
        store.put(entry)

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(work, rivals))
    (left,) = store.entries(ACME)
    assert left in rivals
    assert store.find_exact(ACME, left.exact) == left
    assert store.size("acme").num_bytes == cost(left)


def test_readers_see_an_entry_whole_or_not_at_all_while_it_is_replaced_and_evicted(store, make_entry):
    entries = [make_entry("q", entry_id=f"e{i}", answer=f"answer {i} " * 300) for i in range(30)]
    by_id = {e.entry_id: e for e in entries}
    barrier, done = threading.Barrier(4), threading.Event()

    store.put(entries[0])

    def write():
        barrier.wait()
        for entry in entries:
            store.put(entry, max_bytes=2 * cost(entry))
        done.set()

    def read():
        barrier.wait()
        last = False
        while not last:
            last = done.is_set()
            found = store.find_exact(ACME, entries[0].exact)
            assert found is not None, "a replaced answer is never missing in between"
            assert found == by_id[found.entry_id]

    with ThreadPoolExecutor(4) as pool:
        writer, *readers = [pool.submit(write), *(pool.submit(read) for _ in range(3))]
        writer.result()
        for reader in readers:
            reader.result()
    assert store.find_exact(ACME, entries[0].exact) == entries[-1]


@pytest.mark.parametrize(
    ("selector", "kept"),
    [
        (Selector(tenant="acme"), False),
        (Selector(tag="faq"), False),
        (Selector(user="ana"), False),
        (Selector(version="v1"), False),
        (Selector(tenant="acme", tag="faq", version="v1"), False),
        (Selector(created_before_s=1_000_001.0), False),
        (Selector(created_before_s=1_000_000.0), True),
        (Selector(tenant="other"), True),
        (Selector(tag="prices"), True),
        (Selector(tenant="acme", version="v2"), True),
        (Selector(entry_id="late"), True),
    ],
)
def test_an_entry_asked_for_before_an_invalidation_is_not_put_after_it(store, make_entry, clock, selector, kept):
    assert store.put(make_entry("another"))  # the tenant has a file
    late = make_entry("late", entry_id="late", tags=("faq",), version="v1", principal="ana")
    clock.tick(1)
    store.invalidate(selector)
    clock.tick(1)
    before = store.latest(late.partition)
    assert store.put(late) is kept
    assert store.find_exact(late.partition, late.exact) == (late if kept else None)
    assert (store.latest(late.partition) != before) is kept
    fresh = make_entry("late", tags=("faq",), version="v1", principal="ana")
    assert store.put(fresh)
    assert store.find_exact(late.partition, late.exact) == fresh


def test_an_invalidation_is_forgotten_after_an_hour(store, make_entry, clock):
    store.put(make_entry("another"))
    late = make_entry("late")
    clock.tick(1)
    store.invalidate(Selector(tenant="acme"))
    clock.tick(3700)
    store.invalidate(Selector(tenant="acme", tag="another"))  # this one forgets the older ones
    assert store.put(late)


def test_an_invalidation_by_a_clock_that_was_set_back_since_holds_nothing_back(store, make_entry, clock):
    store.put(make_entry("another"))
    clock.tick(86_400)
    store.invalidate(Selector(tenant="acme"))
    clock.tick(-86_400)
    assert store.put(make_entry("now"))


def test_another_store_on_the_folder_knows_of_the_invalidation(disk, tmp_path, make_entry, clock):
    disk.put(make_entry("another"))
    late = make_entry("late", tags=("faq",))
    clock.tick(1)
    other = DiskStore(tmp_path / "entries", clock)
    other.invalidate(Selector(tag="faq"))
    other.close()
    assert not disk.put(late)
    assert disk.problems() == []


def test_any_part_s_version_selects_an_entry(store, make_entry):
    entry = make_entry("a", entry_id="a", version="release", part_versions=("handbook-3", "règles-2"))
    store.put(entry)
    store.put(make_entry("b", entry_id="b", part_versions=("handbook-4",)))
    assert store.get(ACME, "a") == entry
    assert store.invalidate(Selector(version="handbook-3")) == 1
    assert ids(store) == {"b"}


def test_select_gives_what_matches_of_all_partitions(store, make_entry):
    assert list(store.select(Selector())) == []
    entries = [
        make_entry(tags=("a",)),
        make_entry(tags=("a", "b"), partition=Partition("acme", user="u")),
        make_entry(tenant="other", tags=("b",), ttl_s=-1.0),
        make_entry(tenant="other", partition=Partition("other", epoch=3)),
    ]
    for entry in entries:
        store.put(entry)

    def selected(**conditions):
        return sorted((e for e in store.select(Selector(**conditions))), key=lambda e: e.entry_id)

    assert selected() == entries
    assert selected(tenant="acme") == entries[:2]
    assert selected(tenant="nobody") == []
    assert selected(tag="b") == entries[1:3]
    assert selected(tenant="other", tag="b") == [entries[2]]
    assert selected(user="u") == [entries[1]]
    assert selected(entry_id="entry-2") == [entries[2]]
    assert selected(entry_id="entry-2", tenant="acme") == []
    assert selected(entry_id="nothing") == []


def test_select_goes_on_while_entries_come_and_go(store, make_entry):
    kept = [make_entry() for _ in range(600)]
    for entry in kept:
        store.put(entry)
    seen = set()
    for number, entry in enumerate(store.select(Selector(tenant="acme"))):
        seen.add(entry.entry_id)
        if number == 10:
            gone = make_entry()
            store.put(gone)
            store.invalidate(Selector(entry_id=gone.entry_id))
    assert {e.entry_id for e in kept} <= seen


def test_keep_newer_does_not_replace_what_is_as_new(store, make_entry, clock):
    old = make_entry("q")
    clock.tick()
    new = make_entry("q")
    store.put(new)
    assert not store.put(old, keep_newer=True)
    assert not store.put(replace(new, entry_id="same age"), keep_newer=True)
    assert list(store.entries(ACME)) == [new]
    clock.tick()
    newer = make_entry("q")
    assert store.put(newer, keep_newer=True)
    assert list(store.entries(ACME)) == [newer]
    assert store.put(old), "without it the last one counts"


def test_keep_newer_looks_at_the_id_too(store, make_entry, clock):
    old = make_entry("q", entry_id="same")
    clock.tick()
    new = make_entry("another", entry_id="same")
    store.put(new)
    assert not store.put(old, keep_newer=True)
    assert list(store.entries(ACME)) == [new]


def test_an_entry_keeps_the_epoch_of_its_partition(store, make_entry):
    partition = Partition("acme", epoch=2)
    entry = make_entry(partition=partition)
    store.put(entry)
    assert store.find_exact(partition, entry.exact) == entry
    assert store.find_exact(ACME, entry.exact) is None
