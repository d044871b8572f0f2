"""Kept logits: found for exactly these tokens, this model, this tenant; within the budget; gone when invalidated."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cachestack.prefix.rows import LogitRows

HERE = {"fingerprint": "f", "tenant": "acme"}


@pytest.fixture
def rows():
    return LogitRows(max_bytes=10_000, secret=b"secret")


def keep(rows, ids, payload, num_bytes=100, **where):
    where = HERE | where
    return rows.keep(ids, payload, num_bytes, epoch=where.pop("epoch", rows.epoch), **where)


def test_a_row_is_found_for_exactly_its_tokens_model_and_tenant(rows):
    assert keep(rows, (1, 2, 3), "row")
    assert rows.find((1, 2, 3), **HERE) == "row"
    for ids in ((1, 2), (1, 2, 3, 4), (1, 3, 2), (3,)):
        assert rows.find(ids, **HERE) is None
    assert rows.find((1, 2, 3), **HERE | {"fingerprint": "g"}) is None
    assert rows.find((1, 2, 3), **HERE | {"tenant": "other"}) is None


def test_ids_are_compared_even_where_hashes_agree():
    rows = LogitRows(10_000, b"secret", hasher=lambda ids, size, fingerprint, salt: iter([b"same"]))
    assert keep(rows, (1, 2), "first")
    assert rows.find((1, 3), **HERE) is None
    assert rows.find((1, 2), **HERE | {"tenant": "other"}) is None
    assert keep(rows, (1, 3), "second")
    assert (rows.find((1, 2), **HERE), rows.find((1, 3), **HERE)) == (None, "second")
    rows.check_integrity()


def test_the_least_recently_used_go_first(rows):
    for n in range(5):
        assert keep(rows, (n,), n, num_bytes=1800)
    assert rows.find((0,), **HERE) == 0
    assert keep(rows, (5,), 5, num_bytes=1800)
    assert [rows.find((n,), **HERE) for n in range(6)] == [0, None, 2, 3, 4, 5]
    rows.check_integrity()


def test_what_cannot_fit_is_not_kept_and_evicts_nothing(rows):
    assert keep(rows, (1,), "small")
    assert not keep(rows, (2,), "large", num_bytes=10_000)  # the ids need room too
    assert rows.find((1,), **HERE) == "small"


def test_the_first_of_two_equal_passes_stays(rows):
    assert keep(rows, (1, 2), "first")
    before = rows.sizes()
    assert keep(rows, (1, 2), "second")
    assert rows.find((1, 2), **HERE) == "first"
    assert rows.sizes() == before


def test_a_tenant_is_invalidated_alone(rows):
    keep(rows, (1,), "a")
    keep(rows, (1,), "b", tenant="other")
    assert rows.invalidate("acme") == 1
    assert rows.find((1,), **HERE) is None
    assert rows.find((1,), **HERE | {"tenant": "other"}) == "b"


def test_a_users_rows_go_but_for_those_that_others_asked_for(rows):
    keep(rows, (1,), "ann's", user="ann")
    keep(rows, (2,), "both", user="ann")
    keep(rows, (3,), "the tenant's")
    assert rows.find((2,), **HERE, user="bob") == "both"
    assert rows.find((3,), **HERE, user="ann") == "the tenant's"
    assert rows.invalidate("acme", "ann") == 1
    assert [rows.find((n,), **HERE, user="bob") for n in (1, 2, 3)] == [None, "both", "the tenant's"]
    assert rows.invalidate("acme", "ann") == 0
    assert rows.invalidate("acme", "bob") == 1, "ann's name is gone from what both had"


def test_without_a_tenant_a_users_rows_of_all_tenants_go(rows):
    keep(rows, (1,), "a", user="ann")
    keep(rows, (1,), "b", user="ann", tenant="other")
    assert rows.invalidate(None, "ann") == 2


def test_a_row_whose_pass_began_before_an_invalidation_is_not_kept(rows):
    epoch = rows.epoch
    rows.invalidate("acme")
    assert not keep(rows, (1,), "late", epoch=epoch)
    assert rows.find((1,), **HERE) is None


prompts = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)
tenants = st.sampled_from(["a", "b"])
users = st.sampled_from([None, "ann", "bob"])


class RowsAgainstADictionary(RuleBasedStateMachine):
    """With room for everything, rows are a dictionary; with little, what is found is never wrong."""

    def __init__(self):
        super().__init__()
        self.wide, self.tight = LogitRows(10**9, b"s"), LogitRows(1000, b"s")
        self.model: dict = {}
        self.users: dict = {}

    @rule(ids=prompts, tenant=tenants, user=users, num_bytes=st.integers(0, 400))
    def keep(self, ids, tenant, user, num_bytes):
        payload = (tenant, ids)
        for rows in (self.wide, self.tight):
            rows.keep(ids, payload, num_bytes, fingerprint="f", tenant=tenant, user=user, epoch=rows.epoch)
        self.users.setdefault((tenant, ids), set()).add(user)
        self.model[tenant, ids] = payload

    @rule(ids=prompts, tenant=tenants, user=users)
    def find(self, ids, tenant, user):
        expected = self.model.get((tenant, ids))
        assert self.wide.find(ids, fingerprint="f", tenant=tenant, user=user) == expected
        assert self.tight.find(ids, fingerprint="f", tenant=tenant, user=user) in (None, expected)
        if expected is not None:
            self.users[tenant, ids].add(user)

    @rule(tenant=st.sampled_from(["a", "b", None]), user=users)
    def invalidate(self, tenant, user):
        gone = 0
        for key in [key for key in self.model if tenant in (None, key[0])]:
            named = user in self.users[key]
            self.users[key].discard(user)
            if user is None or (named and not self.users[key]):
                del self.model[key], self.users[key]
                gone += 1
        assert self.wide.invalidate(tenant, user) == gone
        self.tight.invalidate(tenant, user)

    @invariant()
    def whole(self):
        self.wide.check_integrity()
        self.tight.check_integrity()


TestStates = RowsAgainstADictionary.TestCase


def test_threads_find_what_was_kept_or_nothing():
    rows = LogitRows(5_000, b"secret")
    barrier = threading.Barrier(8)

    def work(seed: int) -> None:
        barrier.wait(30)
        for n in range(300):
            ids = ((seed * 7 + n) % 40, n % 3)
            if n % 50 == 49:
                rows.invalidate("acme", "ann" if n % 100 == 49 else None)
            elif n % 2:
                rows.keep(ids, ids, 200, **HERE, user="ann", epoch=rows.epoch)
            else:
                assert rows.find(ids, **HERE) in (None, ids)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    rows.check_integrity()
