"""Trains the small network over word states with torch. The same arithmetic as `semantic/verifiers/head.py`."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cachestack.semantic.verifiers.alignment import Words, equal_words
from cachestack.semantic.verifiers.head import EQUAL_BONUS, SHARPNESS, Head

PROJECTED, COMPARED, INNER = 64, 96, 64
DROPOUT = 0.2
BATCH, WINDOW = 128, 16
RATE = 3e-3
SMOOTHING = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    cached: Words
    asked: Words
    equal: NDArray[np.bool_]
    same: bool
    weight: float

    @staticmethod
    def of(cached: Words, asked: Words, same: bool, weight: float) -> Example:
        return Example(cached, asked, equal_words(cached, asked), same, weight)


class Network(nn.Module):
    def __init__(self, dims: int) -> None:
        super().__init__()
        self.project = nn.Parameter(torch.randn(dims, PROJECTED) / dims**0.5)
        self.compare = nn.Linear(4 * dims + 3, COMPARED)
        self.attend = nn.Parameter(torch.zeros(COMPARED))
        self.hidden, self.out = nn.Linear(2 * COMPARED, INNER), nn.Linear(INNER, 1)

    def forward(self, batch: _Batch) -> Tensor:
        ours, theirs = (functional.normalize(x @ self.project, dim=-1) for x in (batch.cached, batch.asked))
        logits = SHARPNESS * (ours @ theirs.mT) + EQUAL_BONUS * batch.equal
        raw = batch.cached @ batch.asked.mT
        both = self._read(
            batch.cached, batch.weights, batch.live, batch.asked, batch.their_live, logits, raw, batch.equal
        )
        both = both + self._read(
            batch.asked,
            batch.their_weights,
            batch.their_live,
            batch.cached,
            batch.live,
            logits.mT,
            raw.mT,
            batch.equal.mT,
        )
        inner = functional.dropout(functional.relu(self.hidden(both)), DROPOUT, self.training)
        scores: Tensor = self.out(inner)[:, 0]
        return scores

    def _read(
        self,
        mine: Tensor,
        weights: Tensor,
        live: Tensor,
        other: Tensor,
        other_live: Tensor,
        logits: Tensor,
        raw: Tensor,
        equal: Tensor,
    ) -> Tensor:
        shares = torch.softmax(logits.masked_fill(~other_live[:, None], -1e9), dim=-1)
        partner = shares @ other
        best = raw.masked_fill(~other_live[:, None], -2).amax(dim=-1)
        columns = torch.stack([weights, equal.amax(dim=-1), best], dim=-1)
        seen = torch.cat([mine, partner, (mine - partner).abs(), mine * partner, columns], dim=-1)
        compared = functional.relu(self.compare(functional.dropout(seen, DROPOUT, self.training)))
        attention = torch.softmax((compared @ self.attend).masked_fill(~live, -1e9), dim=-1)
        highest = compared.masked_fill(~live[..., None], -1e9).amax(dim=1)
        return torch.cat([(attention[..., None] * compared).sum(dim=1), highest], dim=-1)

    def head(self) -> Head:
        def array(tensor: Tensor) -> NDArray[np.float32]:
            return np.ascontiguousarray(tensor.detach().numpy(), dtype=np.float32)

        return Head(
            project=array(self.project),
            compare=array(self.compare.weight.T),
            compare_bias=array(self.compare.bias),
            attend=array(self.attend),
            hidden=array(self.hidden.weight.T),
            hidden_bias=array(self.hidden.bias),
            out=array(self.out.weight[0]),
            out_bias=array(self.out.bias),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """States `[batch, words, dims]`, weights and live `[batch, words]`, equal `[batch, words, their words]`."""

    cached: Tensor
    weights: Tensor
    live: Tensor
    asked: Tensor
    their_weights: Tensor
    their_live: Tensor
    equal: Tensor


def _batch(examples: Sequence[Example]) -> _Batch:
    sides = []
    for words in ([e.cached for e in examples], [e.asked for e in examples]):
        longest = max(len(w.weights) for w in words)
        states = torch.zeros(len(words), longest, words[0].states.shape[1])
        weights, live = torch.zeros(len(words), longest), torch.zeros(len(words), longest, dtype=torch.bool)
        for row, some in enumerate(words):
            states[row, : len(some.weights)] = torch.from_numpy(some.states)
            weights[row, : len(some.weights)] = torch.from_numpy(some.weights)
            live[row, : len(some.weights)] = True
        sides.append((states, weights, live))
    equal = torch.zeros(len(examples), sides[0][0].shape[1], sides[1][0].shape[1])
    for row, example in enumerate(examples):
        equal[row, : example.equal.shape[0], : example.equal.shape[1]] = torch.from_numpy(example.equal)
    return _Batch(*sides[0], *sides[1], equal)


def train_head(examples: Sequence[Example], *, epochs: int, seed: int) -> Head:
    """The same head for the same examples, seed, library versions and number of threads."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    network = Network(examples[0].cached.states.shape[1]).train()
    optimiser = torch.optim.AdamW(network.parameters(), RATE, weight_decay=0.01)
    num_steps = epochs * -(-len(examples) // BATCH)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=num_steps + 1)
    for _ in range(epochs):
        order = rng.sample(range(len(examples)), k=len(examples))
        cuts = []
        for start in range(0, len(order), BATCH * WINDOW):
            some = sorted(order[start : start + BATCH * WINDOW], key=lambda i: examples[i].equal.size)
            cuts += [some[i : i + BATCH] for i in range(0, len(some), BATCH)]
        rng.shuffle(cuts)
        for cut in cuts:
            chosen = [examples[i] for i in cut]
            wanted = torch.tensor([1 - SMOOTHING if e.same else SMOOTHING for e in chosen])
            weight = torch.tensor([e.weight for e in chosen])
            loss = functional.binary_cross_entropy_with_logits(network(_batch(chosen)), wanted, weight=weight)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad()
            rates.step()
    return network.eval().head()
