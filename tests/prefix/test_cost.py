"""The prefill-cost model: what it recovers, what it never says, what does not fool it."""

from __future__ import annotations

import math
import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.prefix.cost import PrefillCost, PrefillCosts

Pass = tuple[int, int, float]
passes = st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 8000), st.floats(1e-6, 100)), max_size=40)


def learnt(observed: list[Pass]) -> PrefillCost:
    cost = PrefillCost()
    for num_tokens, past_tokens, seconds in observed:
        cost.observe(num_tokens, seconds, past_tokens=past_tokens)
    return cost


def true_s(a: float, b: float, c: float, num_tokens: int, past_tokens: int) -> float:
    return a + b * num_tokens + c * num_tokens * (past_tokens + num_tokens / 2)


@settings(deadline=None, max_examples=150)
@given(passes, st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 500))
def test_estimates_are_never_negative_and_grow_with_tokens_and_past(
    observed: list[Pass], num_tokens: int, past_tokens: int, more: int
) -> None:
    cost = learnt(observed)
    least = cost.seconds(num_tokens, past_tokens=past_tokens)
    assert 0 <= least < math.inf
    assert cost.seconds(num_tokens + more, past_tokens=past_tokens) >= least
    assert cost.seconds(num_tokens, past_tokens=past_tokens + more) >= least
    saved = cost.saved_s(past_tokens, past_tokens + num_tokens)
    assert 0 <= saved <= least or num_tokens == 0
    assert cost.saved_s(past_tokens + more, past_tokens + more + num_tokens) >= saved * (1 - 1e-9)


@settings(deadline=None, max_examples=30)
@given(st.floats(1e-3, 0.1), st.floats(1e-4, 1e-2), st.floats(1e-8, 1e-5), st.integers(0, 10**6))
def test_known_coefficients_come_back_out_of_disturbed_passes(a: float, b: float, c: float, seed: int) -> None:
    """A fifth of the passes took up to ten times as long, the others some percent more."""
    rng = random.Random(seed)
    observed = []
    for _ in range(300):
        num_tokens, past_tokens = int(2 ** rng.uniform(2, 11)), rng.choice((0, int(2 ** rng.uniform(4, 12))))
        slow = rng.uniform(1.5, 10) if rng.random() < 0.2 else 1 + abs(rng.gauss(0, 0.03))
        observed.append((num_tokens, past_tokens, slow * true_s(a, b, c, num_tokens, past_tokens)))
    cost = learnt(observed)
    for num_tokens, past_tokens in ((10, 0), (200, 0), (1500, 0), (25, 977), (300, 3000)):
        expected = true_s(a, b, c, num_tokens, past_tokens)
        assert cost.seconds(num_tokens, past_tokens=past_tokens) == pytest.approx(expected, rel=0.12)


def test_nothing_is_known_before_a_pass_of_some_length() -> None:
    cost = learnt([(31, 0, 1.0), (5, 700, 0.5)])
    assert (cost.seconds(100), cost.saved_s(0, 100)) == (0, 0)
    cost.observe(32, 0.32)
    assert cost.saved_s(0, 100) > 0


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_what_cannot_be_a_time_teaches_nothing(seconds: float) -> None:
    cost = learnt([(100, 0, seconds)])
    assert cost.seconds(100) == 0
    cost.observe(0, 1.0)
    assert cost.seconds(100) == 0


@pytest.mark.parametrize("seconds", [(9.0, 1.0, 1.0), (1.0, 9.0, 1.0), (1.0, 1.0, 9.0)])
def test_of_passes_alike_one_that_was_disturbed_does_not_count(seconds: tuple[float, ...]) -> None:
    assert learnt([(100, 0, s) for s in seconds]).saved_s(0, 100) == pytest.approx(1.0)


def test_one_disturbed_pass_of_a_length_of_its_own_is_outvoted() -> None:
    calm = [(n, 0, 0.01 * n) for n in (40, 70, 150, 300, 600)]
    assert learnt([*calm, (1200, 0, 120.0)]).saved_s(0, 1000) == pytest.approx(10, rel=0.05)


def test_a_machine_that_has_become_slower_is_noticed_in_time() -> None:
    cost = learnt([(100, 0, 1.0)] * 5 + [(100, 0, 2.0)] * 40)
    assert cost.saved_s(0, 100) == pytest.approx(2.0)


def test_a_split_prefill_teaches_what_the_passes_apart_do() -> None:
    def total(*parts: tuple[int, int]) -> float:
        return sum(true_s(1.0, 0.01, 1e-5, n, past) for n, past in parts)

    cost = PrefillCost()
    for n in (40, 120, 400, 1600):
        cost.observe(2 * n, total((n, 0), (n, n)), num_passes=2)
    cost.observe(25, total((25, 300)), past_tokens=300)
    for n, past in ((50, 0), (800, 0), (25, 1000)):
        assert cost.seconds(n, past_tokens=past) == pytest.approx(true_s(1.0, 0.01, 1e-5, n, past), rel=0.02)


def test_the_same_passes_give_the_same_estimates() -> None:
    rng = random.Random(5)
    observed = [(rng.randint(1, 900), rng.randint(0, 900), rng.uniform(0.01, 2)) for _ in range(100)]
    assert learnt(observed).seconds(777, past_tokens=3) == learnt(observed).seconds(777, past_tokens=3)


def test_each_model_has_its_own_cost_and_few_are_remembered() -> None:
    costs = PrefillCosts()
    costs.of("one").observe(100, 1.0)
    assert costs.of("other").seconds(100) == 0
    for n in range(15):
        costs.of("one").observe(100, 1.0)
        costs.of(f"model {n}")
    assert costs.of("one").seconds(100) == pytest.approx(1.0)
    for n in range(16):
        costs.of(f"model {n}")
    assert costs.of("one").seconds(100) == 0


def test_threads_observe_and_ask_at_once() -> None:
    cost, start = PrefillCost(), threading.Barrier(6)
    wrong: list[float] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        start.wait()
        for _ in range(150):
            n = rng.randint(32, 2000)
            cost.observe(n, 0.02 + 0.001 * n)
            if not 0 <= cost.seconds(100) < 1:
                wrong.append(cost.seconds(100))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cost.seconds(1000) == pytest.approx(1.02, rel=0.01)
