"""Limits hold in every window, whoever asks at once; what the cache serves costs nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cachestack.access import Lease, Limiter, Principal
from cachestack.access.limiter import DAY_S, MINUTE_S
from cachestack.access.sliding import SlidingSum
from cachestack.errors import LimitExceeded
from cachestack.policy import LimitsPolicy, Policy
from cachestack.requests import Usage

ACME = Principal("acme", user="ana")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def policy(**limits) -> Policy:
    return Policy(limits=LimitsPolicy(**limits))


def try_to(admit: Callable[[], Lease]) -> Lease | LimitExceeded:
    try:
        return admit()
    except LimitExceeded as error:
        return error


def in_any_window(events: list[tuple[float, float]], window_s: float) -> float:
    """The most that lies in any half-open window of this length."""
    return max((sum(a for t, a in events if start <= t < start + window_s) for start, _ in events), default=0)


steps = st.lists(
    st.tuples(st.floats(0, 40), st.integers(0, 30), st.booleans()), min_size=1, max_size=60
)  # seconds to wait, amount, whether it ends at once


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 9)), max_size=80))
def test_the_sum_never_forgets_too_early_nor_later_than_one_slot(adds):
    window, now_s, events = SlidingSum(60.0, 60), 0.0, []
    for wait_s, amount in adds:
        now_s += wait_s
        window.add(amount, now_s)
        events.append((now_s, amount))
        total = window.total(now_s)
        assert total >= sum(a for t, a in events if t > now_s - 60)
        assert total <= sum(a for t, a in events if t > now_s - 61.001)
        assert len(window._slots) <= 61
        wait = window.seconds_until(0, now_s)
        assert window.seconds_until(total, now_s) == 0
        assert wait is not None


@given(steps, st.integers(1, 8))
def test_requests_in_any_minute(steps, limit):
    clock, admitted = Clock(), []
    limiter = Limiter(clock)
    for wait_s, _, _ in steps:
        clock.now_s += wait_s
        result = try_to(lambda: limiter.admit(ACME, policy(requests_per_minute=limit)))
        if isinstance(result, LimitExceeded):
            assert 0 < result.retry_after_s <= MINUTE_S + 1
            clock.now_s += result.retry_after_s
            result = limiter.admit(ACME, policy(requests_per_minute=limit))  # as it was promised
        result.release()
        admitted.append((clock.now_s, 1))
        assert in_any_window(admitted, MINUTE_S) <= limit


@given(steps, st.integers(1, 60))
def test_tokens_held_back_keep_the_limit_in_any_minute(steps, limit):
    """What is used at most is known before: then the limit holds, however long answers take."""
    clock, used, under_way = Clock(), [], []
    limiter = Limiter(clock)
    for wait_s, tokens, ends in steps:
        clock.now_s += wait_s
        with contextlib.suppress(LimitExceeded):
            lease = limiter.admit(ACME, policy(tokens_per_minute=limit), reserve_tokens=tokens)
            under_way.append((lease, tokens))
        if ends and under_way:
            lease, tokens = under_way.pop(0)
            limiter.charge(lease, Usage(prompt_tokens=min(tokens, limit)))
            lease.release()
            used.append((clock.now_s, min(tokens, limit)))
        assert in_any_window(used, MINUTE_S) <= limit


@given(steps, st.integers(1, 60))
def test_tokens_unknown_before_go_beyond_by_what_is_under_way_at_most(steps, limit):
    clock, used = Clock(), []
    limiter = Limiter(clock)
    for wait_s, tokens, _ in steps:
        clock.now_s += wait_s
        result = try_to(lambda: limiter.admit(ACME, policy(tokens_per_minute=limit)))
        if isinstance(result, LimitExceeded):
            assert result.limit == "tokens_per_minute"
        else:
            limiter.charge(result, Usage(completion_tokens=tokens))
            result.release()
            used.append((clock.now_s, tokens))
        assert in_any_window(used, MINUTE_S) < limit + 31


@given(st.lists(st.tuples(st.floats(0, 20_000), st.floats(0, 3)), max_size=60))
def test_spend_in_any_day(steps):
    clock, spent = Clock(), []
    limiter, limits = Limiter(clock), policy(spend_per_day=5.0)
    for wait_s, cost in steps:
        clock.now_s += wait_s
        result = try_to(lambda: limiter.admit(ACME, limits, reserve_cost=cost))  # noqa: B023 - called at once
        if isinstance(result, LimitExceeded):
            assert result.limit == "spend_per_day"
            assert 0 < result.retry_after_s <= DAY_S * (1 + 1 / 96)
        else:
            limiter.charge(result, Usage(), cost)
            result.release()
            spent.append((clock.now_s, cost))
        assert in_any_window(spent, DAY_S) <= 5.0 + 1e-6


def test_money_does_not_drift():
    clock = Clock()
    limiter, limits = Limiter(clock), policy(spend_per_day=1.0)
    for _ in range(10):
        with limiter.admit(ACME, limits, reserve_cost=0.1) as lease:
            limiter.charge(lease, None, 0.1)
    with pytest.raises(LimitExceeded, match=r"spend_per_day of tenant 'acme' \(1\) is reached"):
        limiter.admit(ACME, limits)


def test_what_the_cache_serves_counts_as_a_request_only():
    limiter, limits = Limiter(Clock()), policy(tokens_per_minute=1, spend_per_day=0.01, requests_per_minute=20)
    for _ in range(20):
        with limiter.admit(ACME, limits) as lease:
            limiter.charge(lease, None)
    with pytest.raises(LimitExceeded) as caught:
        limiter.admit(ACME, limits)
    assert caught.value.limit == "requests_per_minute"


def test_a_refused_request_counts_for_nothing():
    clock = Clock()
    limiter = Limiter(clock)
    limits = policy(requests_per_minute=2, user_requests_per_minute=1)
    limiter.admit(ACME, limits).release()
    for _ in range(5):
        with pytest.raises(LimitExceeded) as caught:
            limiter.admit(ACME, limits)
        assert caught.value.limit == "user_requests_per_minute"
    limiter.admit(Principal("acme", user="bob"), limits).release()
    with pytest.raises(LimitExceeded) as caught:
        limiter.admit(Principal("acme", user="cyd"), limits)
    assert caught.value.limit == "requests_per_minute"


def test_tenants_and_users_do_not_count_for_each_other():
    limiter, limits = Limiter(Clock()), policy(user_max_concurrent=1)
    people = [Principal(t, user=u) for t in ("a", "b") for u in ("x", "y", None, "")]
    leases = [limiter.admit(p, limits) for p in people]
    for person in people:
        with pytest.raises(LimitExceeded):
            limiter.admit(person, limits)
    leases[0].release()
    limiter.admit(people[0], limits)


def test_none_at_all_and_without_limits():
    limiter = Limiter(Clock())
    with pytest.raises(LimitExceeded) as caught:
        limiter.admit(ACME, policy(requests_per_minute=0))
    assert caught.value.retry_after_s == MINUTE_S
    for _ in range(1000):
        limiter.admit(ACME, Policy())
    assert not limiter._meters


def test_a_request_larger_than_the_limit_waits_until_it_is_alone():
    clock = Clock()
    limiter, limits = Limiter(clock), policy(tokens_per_minute=100)
    with limiter.admit(ACME, limits, reserve_tokens=10) as small:
        with pytest.raises(LimitExceeded):
            limiter.admit(ACME, limits, reserve_tokens=1000)
        limiter.charge(small, Usage(prompt_tokens=10))
    with pytest.raises(LimitExceeded) as caught:
        limiter.admit(ACME, limits, reserve_tokens=1000)
    clock.now_s += caught.value.retry_after_s
    limiter.admit(ACME, limits, reserve_tokens=1000).release()


def test_a_limit_that_changes_holds_for_the_next_request():
    limiter = Limiter(Clock())
    for _ in range(5):
        limiter.admit(ACME, policy(requests_per_minute=10)).release()
    with pytest.raises(LimitExceeded):
        limiter.admit(ACME, policy(requests_per_minute=5))
    limiter.admit(ACME, policy(requests_per_minute=6))


def test_at_once_no_more_than_the_limit_begin():
    limiter, limits = Limiter(Clock()), policy(max_concurrent=3, requests_per_minute=1000)
    barrier, all_tried = threading.Barrier(12), threading.Barrier(12)

    def ask(_: int) -> bool:
        barrier.wait()
        try:
            lease = limiter.admit(ACME, limits)
        except LimitExceeded:
            all_tried.wait()
            return False
        all_tried.wait()
        lease.release()
        lease.release()  # twice does no harm
        return True

    with ThreadPoolExecutor(12) as pool:
        for _ in range(20):
            assert sum(pool.map(ask, range(12))) == 3


def test_accounts_that_nobody_uses_are_forgotten():
    clock = Clock()
    limiter, limits = Limiter(clock), policy(user_requests_per_minute=5)
    for number in range(1000):
        clock.now_s += 1
        limiter.admit(Principal("acme", user=f"u{number}"), limits).release()
    assert len(limiter._meters) < 200


def test_use_that_is_told_late_still_counts():
    limiter, limits = Limiter(Clock()), policy(tokens_per_minute=5)
    lease = limiter.admit(ACME, limits)
    lease.release()
    limiter.charge(lease, Usage(prompt_tokens=5))
    with pytest.raises(LimitExceeded):
        limiter.admit(ACME, limits)


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf")])
def test_a_cost_that_is_none(cost):
    limiter = Limiter(Clock())
    lease = limiter.admit(ACME, policy(spend_per_day=1))
    with pytest.raises(ValueError, match="a cost must be"):
        limiter.charge(lease, None, cost)
