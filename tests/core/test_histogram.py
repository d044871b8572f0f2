from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachestack.histogram import bucket, middle, quantile

VALUES = st.floats(min_value=1e-6, max_value=1e6)


@given(VALUES)
def test_a_bucket_stands_for_its_values_within_five_percent(value: float) -> None:
    assert middle(bucket(value)) == pytest.approx(value, rel=0.0501)


@given(VALUES, VALUES)
def test_buckets_keep_order(a: float, b: float) -> None:
    assert (bucket(a) <= bucket(b)) or a > b


@given(st.lists(VALUES, min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_quantiles_are_close(values: list[float], share: float) -> None:
    counts: dict[int, float] = dict(Counter(map(bucket, values)))
    rank = min(len(values) - 1, max(0, -(-int(share * len(values) * 1000) // 1000) - 1))
    exact = sorted(values)[rank]
    found = quantile(counts, share)
    assert found is not None
    near = sorted(values)[max(0, rank - 1) : rank + 2]
    assert any(found == pytest.approx(v, rel=0.0501) for v in (*near, exact))


def test_nothing_has_no_quantile_and_zero_is_zero() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({bucket(0.0): 3}, 0.5) == 0.0
