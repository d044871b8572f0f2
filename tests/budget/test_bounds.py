"""The tests hold under repeated looks: they fail at most as often as they say."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.semantic.budget.bounds import (
    are_too_many,
    binomial_at_most,
    exact_upper,
    interval,
    is_above,
    log_wealth_below,
)

STREAMS, HITS, EVERY = 120, 400, 40


def weighted(rng: random.Random, rate: float, chance: float) -> float:
    """A hit that is wrong with `rate`, audited with `chance`."""
    wrong, seen = rng.random() < rate, rng.random() < chance
    return 1 / chance if wrong and seen else 0.0


@pytest.mark.parametrize(("rate", "chance"), [(0.02, 0.1), (0.05, 0.03), (0.01, 1.0)])
def test_the_alarm_is_false_at_most_as_often_as_alpha_however_often_one_looks(rate: float, chance: float) -> None:
    rng, false = random.Random(7), 0
    for _ in range(STREAMS):
        seen: Counter[float] = Counter()
        for hit in range(1, HITS + 1):
            seen[weighted(rng, rate, chance)] += 1
            if hit % EVERY == 0 and is_above(seen, rate, 0.1):
                false += 1
                break
    assert false <= 0.1 * STREAMS + 3 * (0.09 * STREAMS) ** 0.5


@pytest.mark.parametrize(("rate", "chance"), [(0.05, 0.1), (0.2, 0.5), (0.02, 1.0)])
def test_the_interval_misses_at_most_as_often_as_alpha_at_any_look(rate: float, chance: float) -> None:
    rng, missed = random.Random(11), 0
    for _ in range(60):
        seen: Counter[float] = Counter()
        for hit in range(1, HITS + 1):
            seen[weighted(rng, rate, chance)] += 1
            if hit % 200 == 0:
                low, high = interval(seen, 1 / chance, 0.1)
                if not low <= rate <= high:
                    missed += 1
                    break
    assert missed <= 0.1 * 60 + 3 * (0.09 * 60) ** 0.5


def test_the_interval_holds_for_the_hits_that_were_even_where_rates_change_and_audits_depend_on_the_past() -> None:
    """What is bounded is the share of wrong ones among the hits so far, not a rate that stays."""
    rng, missed = random.Random(3), 0
    for _ in range(150):
        seen: Counter[float] = Counter()
        wrong = 0
        for hit in range(HITS):
            rate = 0.01 if hit < HITS // 2 else 0.15
            chance = 1.0 if wrong % 2 else 0.2
            is_wrong = rng.random() < rate
            wrong += is_wrong
            seen[1 / chance if is_wrong and rng.random() < chance else 0.0] += 1
        low, high = interval(seen, 5.0, 0.1)
        missed += not low <= wrong / HITS <= high
    assert missed <= 0.1 * 150 + 3 * (0.09 * 150) ** 0.5


def test_the_alarm_does_come() -> None:
    rng = random.Random(5)
    seen = Counter(weighted(rng, 0.2, 0.1) for _ in range(1500))
    assert is_above(seen, 0.01, 0.05)


def test_without_hits_nothing_is_known() -> None:
    assert interval({}, 10.0, 0.05) == (0.0, 1.0)


def test_many_hits_that_were_all_compared_and_right_leave_little_doubt() -> None:
    low, high = interval({0.0: 3000}, 1.0, 0.05)
    assert low == 0.0
    assert high < 0.003
    assert log_wealth_below({0.0: 3000}, 0.01, 1.0) > 0


@given(st.integers(0, 60), st.integers(0, 60), st.floats(0.01, 0.3))
def test_the_exact_bound_is_where_the_binomial_says(a: int, b: int, alpha: float) -> None:
    wrong, n = min(a, b), max(a, b)
    bound = exact_upper(wrong, n, alpha)
    if wrong == n:
        assert bound == 1.0
    else:
        assert binomial_at_most(wrong, n, bound) == pytest.approx(alpha, abs=1e-6)


def test_the_exact_bound_against_known_values() -> None:
    assert exact_upper(0, 100, 0.05) == pytest.approx(0.02951, abs=1e-4)
    assert exact_upper(2, 50, 0.05) == pytest.approx(0.12061, abs=1e-4)


def test_reports_are_too_many_only_beyond_what_the_budget_explains() -> None:
    assert not are_too_many(1, 100, 0.01, 0.05)
    assert are_too_many(5, 100, 0.01, 0.05)
    assert not are_too_many(0, 0, 0.01, 0.05)
