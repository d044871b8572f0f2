"""Ratios and their intervals, against values that can be checked by hand or by counting all outcomes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.bench.ratios import coverage, paired_ratio, percentile


def test_the_ratio_is_the_median_of_pairs_not_the_ratio_of_medians():
    ratio = paired_ratio([1.0, 4.0, 9.0], [1.0, 2.0, 1.0])
    assert ratio.median == 2.0
    assert (ratio.low, ratio.high) == (1.0, 9.0)


def test_a_slow_moment_slows_both_sides_and_changes_nothing():
    quiet = [2.0] * 9
    noisy = [2.0 * factor for factor in (1, 1, 3, 1, 1, 8, 1, 1, 1)]
    floor = [1.0 * factor for factor in (1, 1, 3, 1, 1, 8, 1, 1, 1)]
    assert paired_ratio(noisy, floor) == paired_ratio(quiet, [1.0] * 9)


@pytest.mark.parametrize(
    ("num_pairs", "low", "high", "covered"),
    [(1, 1, 1, 0.0), (2, 1, 2, 0.5), (5, 1, 5, 0.9375), (6, 1, 6, 0.96875), (9, 2, 8, 0.9609375), (15, 4, 12, 0.96484)],
)
def test_ends_of_the_interval_are_those_of_the_tables(num_pairs, low, high, covered):
    """The ranks of published tables of confidence limits for a median at 95 %."""
    ratio = paired_ratio([float(n) for n in range(num_pairs, 0, -1)], [1.0] * num_pairs)
    assert (ratio.low, ratio.high) == (low, high)
    assert coverage(num_pairs) == pytest.approx(covered, abs=1e-5)


@pytest.mark.parametrize("num_pairs", [1, 4, 6, 7, 10])
def test_coverage_by_counting_all_outcomes(num_pairs):
    """Each ratio is below (0) or above (1) the true median, as a coin falls."""
    ranks = [float(n) for n in range(num_pairs)]
    ratio = paired_ratio(ranks, [1.0] * num_pairs)
    low, high = int(ratio.low), int(ratio.high)
    outcomes = [sorted(sides) for sides in product((0, 1), repeat=num_pairs)]
    inside = sum(sides[low] == 0 and sides[high] == 1 for sides in outcomes)
    assert coverage(num_pairs) == pytest.approx(inside / len(outcomes))


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=40))
def test_the_median_is_within_its_interval_and_the_interval_within_the_ratios(values):
    ratio = paired_ratio(values, [2.0] * len(values))
    assert min(values) / 2 <= ratio.low <= ratio.median <= ratio.high <= max(values) / 2


@pytest.mark.parametrize("times", [([], []), ([1.0], [1.0, 2.0])])
def test_without_pairs_there_is_no_ratio(times):
    with pytest.raises(ValueError, match="pairs are needed"):
        paired_ratio(*times)


def test_percentiles_are_values_that_were_measured():
    values = [float(n) for n in range(100, 0, -1)]
    assert percentile(values, 0.95) == 95.0
    assert percentile(values, 1.0) == 100.0
    assert percentile([7.0], 0.05) == 7.0
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 0.5)
