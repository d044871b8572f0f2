"""The network of the cross-encoder: the encoder's lower layers read each text alone, its upper ones both together.

Only the upper layers were trained; the lower ones are the encoder's own. After MacAvaney et al., "Efficient Document
Re-Ranking for Transformers by Precomputing Term Representations" (2020). One of the files that run a model here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN, HEADS, INNER, LAYERS = 384, 12, 1536, 6
LOWER = 3
"""How many layers read each text alone."""
MAX_TOKENS = 128
"""Of each text; a longer one is not verified."""
NORM_EPS = 1e-12
PIECE = 128
"""What the head keeps of each word piece."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One text: `ids` `[tokens]`, special tokens included, and `states` `[tokens, hidden]` of the lower layers."""

    ids: Tensor
    states: Tensor


class Layer(nn.Module):
    """One layer of a BERT encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.first, self.second = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.norm_1, self.norm_2 = nn.LayerNorm(HIDDEN, NORM_EPS), nn.LayerNorm(HIDDEN, NORM_EPS)

    def forward(self, states: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
        """`states` `[batch, tokens, hidden]`; `mask` `[batch, 1, 1, tokens]`, true where there is a token."""
        batch, tokens, _ = states.shape

        def heads(x: Tensor) -> Tensor:
            return x.view(batch, tokens, HEADS, HIDDEN // HEADS).transpose(1, 2)

        seen = functional.scaled_dot_product_attention(
            heads(self.query(states)), heads(self.key(states)), heads(self.value(states)), attn_mask=mask
        )
        joined: Tensor = self.out(seen.transpose(1, 2).reshape(batch, tokens, HIDDEN))
        states = self.norm_1(states + functional.dropout(joined, dropout, self.training))
        inner = self.second(functional.gelu(self.first(states)))
        done: Tensor = self.norm_2(states + functional.dropout(inner, dropout, self.training))
        return done


class Lower(nn.Module):
    """Embeddings and the first layers, as the encoder has them."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.words = weights["embeddings.word_embeddings.weight"].float()
        self.places = weights["embeddings.position_embeddings.weight"].float()
        self.kind = weights["embeddings.token_type_embeddings.weight"][0].float()
        self.norm = nn.LayerNorm(HIDDEN, NORM_EPS)
        self.norm.load_state_dict(
            {part: weights[f"embeddings.LayerNorm.{part}"].float() for part in ("weight", "bias")}
        )
        self.layers = nn.ModuleList(layer_of(weights, number) for number in range(LOWER))
        self.requires_grad_(False).eval()

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """`ids`, `mask`: `[batch, tokens]` → `[batch, tokens, hidden]`."""
        states: Tensor = self.norm(self.words[ids] + self.places[: ids.shape[1]] + self.kind)
        for layer in self.layers:
            states = layer(states, mask[:, None, None, :])
        return states


class Upper(nn.Module):
    """The last layers over both texts, and a head over what they made of each word. Returns log-odds `[batch]`.

    Each word piece is told whether the other text has it too (`mark`), and the head takes, beside the mean, the highest
    value over all pieces: one word among thirty is enough to change an answer.
    """

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS - LOWER))
        self.side = nn.Parameter(torch.zeros(2, HIDDEN))
        self.mark = nn.Parameter(torch.zeros(2, HIDDEN))
        self.piece = nn.Linear(HIDDEN, PIECE)
        self.compare, self.decide = nn.Linear(HIDDEN + 2 * PIECE + 1, 128), nn.Linear(128, 1)
        self.dropout = dropout

    def forward(self, first: Sequence[Piece], second: Sequence[Piece]) -> Tensor:
        """The texts' ids and lower states, with their special tokens at both ends."""
        states, marks, side, live, is_first, is_second = _laid_out(first, second)
        states = states + self.side[side] + self.mark[marks] * (is_first + is_second)[..., None]
        for layer in self.layers:
            states = layer(states, live[:, None, None, :], self.dropout)
        pieces = functional.gelu(self.piece(functional.dropout(states, self.dropout, self.training)))
        of = (is_first + is_second)[..., None]
        mean = (pieces * of).sum(1) / of.sum(1).clamp(min=1)
        highest = pieces.masked_fill(of == 0, -10.0).amax(1)
        close = functional.cosine_similarity(_mean(states, is_first), _mean(states, is_second))[:, None]
        seen = torch.cat([states[:, 0], mean, highest, 4 * close], dim=-1)
        inner = functional.gelu(self.compare(functional.dropout(seen, self.dropout, self.training)))
        scores: Tensor = self.decide(inner)[:, 0]
        return scores


def _laid_out(first: Sequence[Piece], second: Sequence[Piece]) -> tuple[Tensor, ...]:
    """One text after the other: states `[batch, tokens, hidden]`; and `[batch, tokens]` each: whether the other text
    has the piece, which side it is on, whether it is there, and which are the first's and the second's own words."""
    lengths = torch.tensor([[len(a.ids), len(b.ids)] for a, b in zip(first, second, strict=True)])
    longest = int(lengths.sum(1).max())
    states = torch.zeros(len(first), longest, HIDDEN)
    marks = torch.zeros(len(first), longest, dtype=torch.long)
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        end = len(a.ids) + len(b.ids)
        states[row, : len(a.ids)], states[row, len(a.ids) : end] = a.states, b.states
        marks[row, : len(a.ids)] = torch.isin(a.ids, b.ids).long()
        marks[row, len(a.ids) : end] = torch.isin(b.ids, a.ids).long()
    at = torch.arange(longest)[None]
    ends, starts = lengths.sum(1, keepdim=True), lengths[:, :1]
    is_first = ((at > 0) & (at < starts - 1)).float()
    is_second = ((at > starts) & (at < ends - 1)).float()
    return states, marks, (at >= starts).long(), at < ends, is_first, is_second


def _mean(states: Tensor, of: Tensor) -> Tensor:
    return (states * of[..., None]).sum(1) / of.sum(1, keepdim=True).clamp(min=1)


_PARTS = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "norm_1",
    "intermediate.dense": "first",
    "output.dense": "second",
    "output.LayerNorm": "norm_2",
}


def layer_of(weights: Mapping[str, Tensor], number: int) -> Layer:
    """A layer with a BERT checkpoint's weights."""
    layer = Layer()
    layer.load_state_dict(
        {
            f"{ours}.{part}": weights[f"encoder.layer.{number}.{theirs}.{part}"].float()
            for theirs, ours in _PARTS.items()
            for part in ("weight", "bias")
        }
    )
    return layer


def upper_from(weights: Mapping[str, Tensor]) -> Upper:
    """Before training: the encoder's own upper layers and a random head."""
    upper = Upper()
    upper.layers = nn.ModuleList(layer_of(weights, number) for number in range(LOWER, LAYERS))
    return upper


def read_lower(lower: Lower, ids: Sequence[Sequence[int]]) -> list[Piece]:
    """Each text's ids, special tokens included, to ids and lower states."""
    longest = max(map(len, ids))
    padded = torch.zeros(len(ids), longest, dtype=torch.long)
    for row, some in enumerate(ids):
        padded[row, : len(some)] = torch.tensor(some)
    mask = torch.arange(longest)[None] < torch.tensor([len(some) for some in ids])[:, None]
    states = lower(padded, mask)
    return [Piece(padded[row, : len(some)], states[row, : len(some)]) for row, some in enumerate(ids)]
