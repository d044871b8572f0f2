"""The network of the cross-encoder: the encoder's layers read each text, then each word is held against the other text.

All six layers are the default encoder's, trained further; its word embeddings stay as they are. What a word means in
one text is set beside what it is most like in the other: difference and product of the two say which words have no
equal, wherever these stand. Two fresh layers then read both texts' comparisons together. After Parikh et al., "A
Decomposable Attention Model for Natural Language Inference" (2016), and Chen et al., "Enhanced LSTM for Natural
Language Inference" (2017). One of the files that run a model here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN, HEADS, INNER, LAYERS = 384, 12, 1536, 6
MAX_TOKENS = 128
"""Of each text; a longer one is not verified."""
NORM_EPS = 1e-12
WIDTH = 256
"""What the comparison keeps of each word piece."""
COMPARING_LAYERS = 2
NO_WORD = -1


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Some texts: `ids` `[texts, tokens]` (NO_WORD where there is none), `states` `[texts, tokens, hidden]`, and which
    tokens are `words`, `[texts, tokens]`: special ones are not."""

    ids: Tensor
    states: Tensor
    words: Tensor


class Embeddings(nn.Module):
    """Word and position embeddings, as the encoder has them; never trained."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.words = weights["embeddings.word_embeddings.weight"].float()
        self.places = weights["embeddings.position_embeddings.weight"].float()
        self.kind = weights["embeddings.token_type_embeddings.weight"][0].float()
        self.norm = nn.LayerNorm(HIDDEN, NORM_EPS)
        self.norm.load_state_dict(
            {part: weights[f"embeddings.LayerNorm.{part}"].float() for part in ("weight", "bias")}
        )
        self.requires_grad_(False).eval()

    @torch.no_grad()
    def forward(self, texts: Sequence[Sequence[int]]) -> Texts:
        """From each text's ids, special tokens at both ends included."""
        longest = max(map(len, texts))
        ids = torch.full((len(texts), longest), NO_WORD)
        words = torch.zeros(len(texts), longest, dtype=torch.bool)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = torch.tensor(text)
            words[row, 1 : len(text) - 1] = True
        states: Tensor = self.norm(self.words[ids.clamp(min=0)] + self.places[:longest] + self.kind)
        return Texts(ids, states, words)


class Layer(nn.Module):
    """One layer of a BERT encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.first, self.second = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.norm_1, self.norm_2 = nn.LayerNorm(HIDDEN, NORM_EPS), nn.LayerNorm(HIDDEN, NORM_EPS)

    def forward(self, states: Tensor, there: Tensor) -> Tensor:
        """`states` `[texts, tokens, hidden]`; `there` `[texts, 1, 1, tokens]`, true where there is a token."""
        batch, tokens, _ = states.shape

        def heads(x: Tensor) -> Tensor:
            return x.view(batch, tokens, HEADS, HIDDEN // HEADS).transpose(1, 2)

        query, key, value = heads(self.query(states)), heads(self.key(states)), heads(self.value(states))
        likeness = (query @ key.transpose(-1, -2)).float() / (HIDDEN // HEADS) ** 0.5
        seen = torch.softmax(likeness.masked_fill(~there, -1e4), -1).to(value.dtype) @ value
        states = self.norm_1(states + self.out(seen.transpose(1, 2).reshape(batch, tokens, HIDDEN)))
        done: Tensor = self.norm_2(states + self.second(functional.gelu(self.first(states))))
        return done


class PairNetwork(nn.Module):
    """`read` each text, then `forward` two of them. Gives log-odds `[pairs]`."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.align = nn.Linear(HIDDEN, HIDDEN, bias=False)
        nn.init.eye_(self.align.weight)
        self.sharpness = nn.Parameter(torch.tensor(10.0))
        self.piece = nn.Linear(4 * HIDDEN + 1, WIDTH)
        self.side, self.mark = nn.Parameter(torch.zeros(2, WIDTH)), nn.Parameter(torch.zeros(2, WIDTH))
        self.mix = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, 4, 2 * WIDTH, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(COMPARING_LAYERS)
        )
        self.compare, self.decide = nn.Linear(2 * WIDTH + 1, 128), nn.Linear(128, 1)
        self.dropout = dropout

    def read(self, texts: Texts) -> Texts:
        """What each text's words mean in it. The two texts of a pair may be read in one pass."""
        states, there = texts.states, (texts.ids != NO_WORD)[:, None, None, :]
        for layer in self.layers:
            states = layer(states, there)
        return Texts(texts.ids, states.float(), texts.words)

    def forward(self, first: Texts, second: Texts) -> Tensor:
        likeness = self._directions(first) @ self._directions(second).transpose(1, 2)
        rows = [
            self._held_against(first, second, likeness, 0),
            self._held_against(second, first, likeness.transpose(1, 2), 1),
        ]
        words = torch.cat([first.words, second.words], 1)
        seen = torch.cat(rows, 1)
        for layer in self.mix:
            seen = layer(seen, src_key_padding_mask=~words)
        seen = seen.float()
        highest = seen.masked_fill(~words[..., None], -10.0).amax(1)  # one word among thirty can change an answer
        close = functional.cosine_similarity(_mean(first.states, first.words), _mean(second.states, second.words))
        pooled = torch.cat([_mean(seen, words), highest, 4 * close[:, None]], -1)
        inner = functional.gelu(self.compare(functional.dropout(pooled, self.dropout, self.training)))
        scores: Tensor = self.decide(inner)[:, 0]
        return scores.float()

    def _directions(self, texts: Texts) -> Tensor:
        aligned: Tensor = self.align(texts.states)
        return functional.normalize(aligned.float(), dim=-1)

    def _held_against(self, own: Texts, other: Texts, likeness: Tensor, side: int) -> Tensor:
        """Each word of `own` beside what it is most like in `other`: `[pairs, tokens, width]`."""
        likeness = likeness.masked_fill(~other.words[:, None, :], -1.0)
        shares = torch.softmax((likeness * self.sharpness).masked_fill(~other.words[:, None, :], -1e4), -1)
        partner = shares @ other.states
        features = (own.states, partner, own.states - partner, own.states * partner, likeness.amax(-1, keepdim=True))
        seen = functional.gelu(self.piece(torch.cat(features, -1)).float())
        in_other = ((own.ids[:, :, None] == other.ids[:, None, :]) & other.words[:, None, :]).any(-1)[..., None]
        return seen + self.side[side] + torch.where(in_other, self.mark[1], self.mark[0])


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


def network_from(weights: Mapping[str, Tensor]) -> PairNetwork:
    """Before training: the encoder's own layers, and a random comparison."""
    network = PairNetwork()
    network.layers = nn.ModuleList(layer_of(weights, number) for number in range(LAYERS))
    return network
