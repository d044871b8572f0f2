"""The tree read off sorted prompts equals what comparing every prompt with every other one says."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cachestack.lint.diverging import common_length
from cachestack.lint.prefix_tree import PrefixTree, num_shared

ids = st.lists(st.lists(st.integers(0, 2), max_size=8), min_size=1, max_size=12)
alphabet = st.text(alphabet="aé🙂", max_size=300)


def arrays(prompts):
    return [np.array(prompt, dtype=np.int32) for prompt in prompts]


@given(ids)
def test_what_an_earlier_prompt_offers(prompts) -> None:
    tokens = arrays(prompts)
    expected = [max((num_shared(tokens[i], tokens[k]) for k in range(i)), default=0) for i in range(len(tokens))]
    assert PrefixTree(tokens).reusable() == expected


@given(ids)
def test_nodes_are_the_beginnings_at_which_prompts_part_or_end(prompts) -> None:
    tokens = arrays(prompts)
    nodes = {
        (n.num_tokens, n.num_prompts, tuple(prompts[n.prompt][: n.num_tokens])) for n in PrefixTree(tokens).nodes(1)
    }
    beginnings = {tuple(p[: num_shared(tokens[a], tokens[b])]) for a, b in combinations(range(len(prompts)), 2)
                  for p in [prompts[a]]} - {()}  # fmt: skip
    expected = {(len(b), sum(tuple(p[: len(b)]) == b for p in prompts), b) for b in beginnings}
    assert nodes == expected
    for node in PrefixTree(tokens).nodes(1):
        shorter = [n for n, _, b in expected if n < node.num_tokens and b == tuple(prompts[node.prompt][:n])]
        assert node.parent_tokens == max(shorter, default=0)


def test_ids_beyond_a_byte_are_in_order() -> None:
    tokens = arrays([[1, 300], [1, 2], [1, 70_000], [1, 300, 5]])
    assert PrefixTree(tokens).reusable() == [0, 1, 1, 2]


@given(alphabet, alphabet, alphabet)
def test_common_length(shared, a, b) -> None:
    first, second = shared + a, "x" + shared + b
    plain = next((n for n, (x, y) in enumerate(zip(first, second[1:], strict=False)) if x != y), None)
    expected = min(len(first), len(second) - 1) if plain is None else plain
    assert common_length(first, 0, second, 1) == expected
