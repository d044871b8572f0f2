"""Choosing the next token."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.engines.transformers.sampling import Sampler
from cachestack.errors import EngineError
from cachestack.requests import Sampling

LOGITS = torch.log(torch.tensor([0.1, 0.5, 0.15, 0.25]))


def draws(sampling: Sampling, seed: int, num: int, logits: torch.Tensor = LOGITS) -> list[int]:
    sampler = Sampler(sampling, seed)
    return [sampler.next(logits) for _ in range(num)]


@pytest.mark.parametrize("temperature", [None, 0, 0.0])
def test_without_a_temperature_the_best_token_is_taken(temperature: float | None) -> None:
    assert draws(Sampling(temperature=temperature, top_p=0.1), 3, 5) == [1] * 5


def test_the_same_seed_draws_the_same_tokens() -> None:
    sampling = Sampling(temperature=1.0, top_p=0.95)
    assert draws(sampling, 5, 50) == draws(sampling, 5, 50)
    assert draws(sampling, 5, 50) != draws(sampling, 6, 50)


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, 2**64 + 5])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert len(draws(Sampling(temperature=1.0), seed, 3)) == 3


def test_tokens_come_as_often_as_they_are_likely() -> None:
    counts = Counter(draws(Sampling(temperature=1.0), 1, 4000))
    for token, share in enumerate((0.1, 0.5, 0.15, 0.25)):
        assert counts[token] / 4000 == pytest.approx(share, abs=0.03)


def test_a_temperature_below_one_favours_the_likely() -> None:
    # probabilities to the power of 1/0.5: 0.01, 0.25, 0.0225, 0.0625 of their sum 0.345
    counts = Counter(draws(Sampling(temperature=0.5), 1, 4000))
    assert counts[1] / 4000 == pytest.approx(0.25 / 0.345, abs=0.03)


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    assert set(draws(Sampling(temperature=1.0, top_p=0.5), 1, 300)) == {1}
    assert set(draws(Sampling(temperature=1.0, top_p=0.6), 1, 300)) == {1, 3}
    assert set(draws(Sampling(temperature=1.0, top_p=0.8), 1, 600)) == {1, 2, 3}
    assert set(draws(Sampling(temperature=1.0, top_p=1e-9), 1, 300)) == {1}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-9, 5), st.floats(1e-6, 1))
def test_a_token_that_is_ruled_out_is_never_drawn(seed: int, temperature: float, top_p: float) -> None:
    logits = torch.tensor([float("-inf"), 3.0, float("-inf"), 1.0])
    assert set(draws(Sampling(temperature=temperature, top_p=top_p), seed, 20, logits)) <= {1, 3}


def test_rounding_of_the_last_bits_does_not_change_a_draw() -> None:
    sampling = Sampling(temperature=0.8, top_p=0.9)
    logits = torch.randn(49152, generator=torch.Generator().manual_seed(0)) * 3
    noise = torch.randn(49152, generator=torch.Generator().manual_seed(1)) * 1e-6
    assert draws(sampling, 9, 30, logits) == draws(sampling, 9, 30, logits + noise)


@pytest.mark.parametrize("temperature", [None, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_an_error(temperature: float | None, bad: float) -> None:
    logits = LOGITS.clone()
    logits[2] = bad
    with pytest.raises(EngineError, match="not finite"):
        Sampler(Sampling(temperature=temperature), 0).next(logits)


def test_all_tokens_ruled_out_is_an_error() -> None:
    with pytest.raises(EngineError, match="not finite"):
        Sampler(Sampling(), 0).next(torch.full((4,), float("-inf")))
