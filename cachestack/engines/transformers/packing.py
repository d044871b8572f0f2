"""Many prompts over one kept prefix, computed in one row.

The suffixes of a pack stand one behind the other; each sees the prefix and itself, and counts its positions from the
end of the prefix::

                prefix   suffix a   suffix b
    suffix a    ######   #
                ######   ##
    suffix b    ######              #
                ######              ##

The prefix stands there once for all of them: attention over it is computed where it lies, for all tokens of the row
together, and attention within the suffixes as if each had a row of its own (see attention.py). On models whose
attention cannot be replaced the prefix is gathered once a pass and a mask keeps the suffixes apart. Labels that have to
be scored whole are computed in further passes of the same kind, as trees behind their items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cachestack.engines.base import KVRun
from cachestack.engines.transformers.adapter import forward
from cachestack.engines.transformers.kv import fork
from cachestack.engines.transformers.labels import (
    ROOT,
    LabelSet,
    LabelTrie,
    first_token_scores,
    inner_scores,
    label_tries,
)

if TYPE_CHECKING:
    import torch

PACK_TOKENS = 384
"""Tokens in one pass: enough to keep the cores busy, few enough that attention inside the pack stays cheap.

Times an item are flat from 200 to 800 tokens, at prefixes of 167 and 977 tokens, on two CPU cores.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """`scores`: log-probabilities `[labels]`, float64. `row`: logits `[vocabulary]` at the start of the answer."""

    scores: torch.Tensor
    row: torch.Tensor


def plan_packs(lengths: Sequence[int], max_tokens: int) -> tuple[tuple[int, ...], ...]:
    """Indices of items that go together: in input order, at most `max_tokens` a pack; a longer item goes alone."""
    packs: list[tuple[int, ...]] = []
    current: list[int] = []
    filled = 0
    for index, length in enumerate(lengths):
        if current and filled + length > max_tokens:
            packs.append(tuple(current))
            current, filled = [], 0
        current.append(index)
        filled += length
    if current:
        packs.append(tuple(current))
    return tuple(packs)


def score_pack(
    model: Any,
    past: Sequence[KVRun],
    suffixes: Sequence[Sequence[int]],
    labels: LabelSet,
    tries: Sequence[LabelTrie] = (),
    *,
    max_tokens: int = PACK_TOKENS,
) -> tuple[Scored, ...]:
    """Score the labels after `past` and each suffix (at least one token each); results in the suffixes' order.

    `tries` hold the labels where first tokens do not tell them apart; their passes take `max_tokens` at most. More
    than one suffix, or tries that branch, need a model that `takes_packs`.
    """
    from cachestack.engines.transformers.attention import shares_past

    assert all(suffixes), "a suffix needs at least one token"
    lengths = [len(suffix) for suffix in suffixes]
    units = [_Unit(i, trie) for i in range(len(suffixes)) for trie in tries if trie.tokens]
    passes = [[units[i] for i in p] for p in plan_packs([len(unit.trie.tokens) for unit in units], max_tokens)]
    cache: Any = None
    if past or passes:
        shares = shares_past(model, num_tokens(past), num_members=len(suffixes))
        cache = fork(past, model.config, shares=shares)
        cache.reserve(sum(lengths) + max((sum(len(unit.trie.tokens) for unit in p) for p in passes), default=0))
    rows = _suffix_rows(model, cache, num_tokens(past), suffixes)
    scores = [first_token_scores(labels, row) for row in rows]
    for chosen in passes:
        _add_inner_scores(model, cache, num_tokens(past), lengths, chosen, labels, scores)
        cache.truncate(sum(lengths))
    return tuple(Scored(s, row) for s, row in zip(scores, rows, strict=True))


def score_whole(model: Any, ids: Sequence[int], labels: LabelSet) -> Scored:
    """Score after a whole prompt with nothing but ordinary causal passes, one a label where first tokens collide.

    For models whose cache cannot be forked, and the plain yardstick of the tests.
    """
    import torch

    def rows(sequence: Sequence[int]) -> torch.Tensor:
        last = torch.arange(len(ids) - 1, len(sequence), device=model.device)
        tokens = torch.tensor([list(sequence)], device=model.device)
        return forward(model, input_ids=tokens, keep_logits=last)[0].float()

    row = rows(ids)[0].cpu()
    scores = first_token_scores(labels, row)
    for trie in () if labels.by_first_token else label_tries(labels, 0):
        if trie.tokens:
            (member,) = trie.members
            scores[member] += inner_scores(labels, trie, rows([*ids, *trie.tokens])[1:])[0]
    return Scored(scores, row)


@dataclass(frozen=True, slots=True)
class _Unit:
    """One trie behind one item of the pack."""

    item: int
    trie: LabelTrie


def num_tokens(runs: Sequence[KVRun]) -> int:
    return sum(run.num_tokens for run in runs)


def _suffix_rows(model: Any, cache: Any, num_past: int, suffixes: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits `[suffixes, vocabulary]` after the last token of each, float32, on the CPU."""
    import torch

    from cachestack.engines.transformers.attention import Rows

    device = model.device
    lengths = [len(suffix) for suffix in suffixes]
    ids = torch.tensor([[token for suffix in suffixes for token in suffix]], device=device)
    positions = torch.cat([torch.arange(num_past, num_past + n, device=device) for n in lengths])
    last = torch.tensor(lengths, device=device).cumsum(0) - 1
    mask = rows = None
    if len(lengths) > 1:  # one suffix alone is the ordinary causal pass, computed as any other request computes it
        if cache is not None and cache.shares and len(lengths) * max(lengths) ** 2 <= sum(lengths) ** 2:
            rows = Rows.of(lengths, device)
        else:
            mask = _suffix_mask(num_past - _num_shared(cache), lengths, device)
    logits = forward(
        model,
        input_ids=ids,
        position_ids=positions[None],
        attention_mask=mask,
        cache=cache,
        keep_logits=last,
        rows=rows,
    )
    return logits[0].float().cpu()


def _num_shared(cache: Any) -> int:
    """Tokens of the past that a mask has no columns for."""
    return 0 if cache is None else int(cache.num_shared)


def _suffix_mask(num_past: int, lengths: Sequence[int], device: Any) -> torch.Tensor:
    """Boolean `[1, 1, tokens, past + tokens]`."""
    import torch

    total = sum(lengths)
    mask = torch.zeros(total, num_past + total, dtype=torch.bool, device=device)
    mask[:, :num_past] = True
    start = 0
    for n in lengths:
        block = mask[start : start + n, num_past + start : num_past + start + n]
        block.copy_(torch.ones(n, n, dtype=torch.bool, device=device).tril())
        start += n
    return mask[None, None]


def _add_inner_scores(
    model: Any,
    cache: Any,
    num_past: int,
    lengths: Sequence[int],
    units: Sequence[_Unit],
    labels: LabelSet,
    scores: list[torch.Tensor],
) -> None:
    """One pass over the nodes of `units`; adds what it finds to the items' `scores`."""
    import torch

    device = model.device
    ids = torch.tensor([[token for unit in units for token in unit.trie.tokens]], device=device)
    positions = torch.tensor(
        [[num_past + lengths[unit.item] + depth for unit in units for depth in unit.trie.depths]],
        device=device,
    )
    plain = len(lengths) == 1 and len(units) == 1 and _is_chain(units[0].trie)
    mask = None if plain else _node_mask(num_past - _num_shared(cache), lengths, units, device)
    logits = forward(
        model,
        input_ids=ids,
        position_ids=positions,
        attention_mask=mask,
        cache=cache,
        keep_logits=0,
    )[0].float()
    start = 0
    for unit in units:
        nodes = logits[start : start + len(unit.trie.tokens)]
        scores[unit.item].index_add_(0, torch.tensor(unit.trie.members), inner_scores(labels, unit.trie, nodes))
        start += len(unit.trie.tokens)


def _is_chain(trie: LabelTrie) -> bool:
    return trie.parents == tuple(range(ROOT, len(trie.parents) - 1))


def _node_mask(num_past: int, lengths: Sequence[int], units: Sequence[_Unit], device: Any) -> torch.Tensor:
    """Boolean `[1, 1, nodes, past + suffixes + nodes]`: a node sees the prefix, its item, its ancestors, itself."""
    import torch

    num_suffix, num_nodes = sum(lengths), sum(len(unit.trie.tokens) for unit in units)
    before = num_past + num_suffix
    mask = torch.zeros(num_nodes, before + num_nodes, dtype=torch.bool, device=device)
    mask[:, :num_past] = True
    ends = torch.tensor(lengths).cumsum(0).tolist()
    start = 0
    for unit in units:
        stop, end = start + len(unit.trie.tokens), num_past + ends[unit.item]
        mask[start:stop, end - lengths[unit.item] : end] = True
        mask[start:stop, before + start : before + stop] = _ancestors(unit.trie).to(device)
        start = stop
    return mask[None, None]


def _ancestors(trie: LabelTrie) -> torch.Tensor:
    """Boolean `[nodes, nodes]`: which nodes lead to a node, itself included."""
    import torch

    leads = torch.eye(len(trie.tokens), dtype=torch.bool)
    for node, parent in enumerate(trie.parents):
        if parent != ROOT:
            leads[node] |= leads[parent]
    return leads
