"""The tree of all beginnings of many prompts, read off the sorted prompts.

Sorted by their token ids, prompts that share a beginning stand together, and the tree's inner nodes are the intervals
over which the length shared by neighbours does not fall below a value (Kasai et al. 2001, on suffix arrays). Nothing is
hashed and no tree is built: ten thousand prompts of two thousand tokens take a second or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cachestack.engines.token_space import Ints


@dataclass(frozen=True, slots=True)
class Node:
    """A beginning of `num_tokens` tokens that `num_prompts` prompts share; `parent_tokens` of them more prompts do.
    `prompt` is the number of one that begins so."""

    num_tokens: int
    num_prompts: int
    parent_tokens: int
    prompt: int


class PrefixTree:
    """Over the token ids of prompts, in the order in which they were sent."""

    def __init__(self, prompts: Sequence[Ints]) -> None:
        keys = [ids.astype(">u4").tobytes() for ids in prompts]
        self._order = sorted(range(len(prompts)), key=keys.__getitem__)
        neighbours = zip(self._order, self._order[1:], strict=False)
        self._shared = [num_shared(prompts[a], prompts[b]) for a, b in neighbours]

    def reusable(self) -> list[int]:
        """For each prompt, the most first tokens that it shares with any earlier one.

        Prompts leave from the last to the first, so that a prompt's neighbours, when it leaves, are all earlier.
        """
        order, n = self._order, len(self._order)
        place = {prompt: i for i, prompt in enumerate(order)}
        before, after = list(range(-1, n - 1)), list(range(1, n + 1))
        shared = [0, *self._shared, 0]  # shared[i]: place i with the nearest place before it that is left
        reusable = [0] * n
        for prompt in range(n - 1, -1, -1):
            i = place[prompt]
            b, a = before[i], after[i]
            reusable[prompt] = max(shared[i] if b >= 0 else 0, shared[a] if a < n else 0)
            if a < n:
                shared[a] = min(shared[i], shared[a]) if b >= 0 else 0
                before[a] = b
            if b >= 0:
                after[b] = a
        return reusable

    def nodes(self, min_tokens: int) -> list[Node]:
        """The inner nodes of at least so many tokens, the longest branches first."""
        nodes: list[Node] = []
        stack: list[tuple[int, int]] = []  # (tokens, first place)
        for place, tokens in enumerate([*self._shared, 0], start=1):
            first = place - 1
            while stack and stack[-1][0] > tokens:
                length, first = stack.pop()
                parent = max(tokens, stack[-1][0] if stack else 0)
                if length >= min_tokens:
                    nodes.append(Node(length, place - first, parent, min(self._order[first:place])))
            if tokens and (not stack or stack[-1][0] < tokens):
                stack.append((tokens, first))
        return nodes


def num_shared(first: Ints, second: Ints) -> int:
    """How many first ids are equal."""
    n = min(len(first), len(second))
    different = first[:n] != second[:n]
    return int(np.argmax(different)) if different.any() else n
