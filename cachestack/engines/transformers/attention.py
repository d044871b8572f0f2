"""Attention over kept keys and values where they lie, without gathering them first.

A request that continues after kept runs has its keys in several places: one part a run, shared with all other requests
and never written to, and its own tokens. Attention is computed over each place by itself and merged by the log-sum-exp
that the kernel returns: softmax over all keys is the average of the softmaxes over parts, weighted by exp(lse). (The
identity is that of online softmax, Milakov and Gimelshein 2018; its use for shared prefixes that of Hydragen,
Juravsky et al. 2024.) ::

    keys      [part 0][part 1]      kept, shared      every query of the pass sees all of them: no mask
              [own tokens]          this request's    causal, or the mask of a pack

Query heads that share a key head are laid one behind the other, so that a part is read once for all of them. Imported
only by functions that are about to run a model: it needs torch and Transformers at import.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from cachestack.engines.transformers.adapter import PARTS_ATTENTION, attention_name, forward
from cachestack.engines.transformers.kv import cut, fork, run_of
from cachestack.errors import EngineError

REPLACED = "sdpa"
SHORT_PAST_TOKENS = 256
"""Gathering a past of so many tokens costs a request less than the merges of attention over it."""
UNSUPPORTED = ("softcap", "position_bias", "s_aux", "sliding_window")

Attended = tuple[torch.Tensor, torch.Tensor]
"""Output `[1, heads, tokens, dim]` and log-sum-exp `[1, heads, tokens]`."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The members of a pack as rows of one length, for attention within each of them.

    `slots` `[rows * longest]`: the pack's token that stands in each place of the rows; the empty places behind a
    shorter member hold any. `places` `[tokens]`: where each token of the pack stands in the rows.
    """

    num_rows: int
    longest: int
    slots: torch.Tensor
    places: torch.Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], device: Any) -> Rows:
        longest = max(lengths)
        ends = torch.tensor(lengths).cumsum(0)
        starts = ends - torch.tensor(lengths)
        steps = torch.arange(longest)
        slots = (starts[:, None] + steps).clamp(max=int(ends[-1]) - 1)
        is_token = steps < torch.tensor(lengths)[:, None]
        return cls(
            len(lengths),
            longest,
            slots.reshape(-1).to(device),
            is_token.reshape(-1).nonzero().reshape(-1).to(device),
        )


@dataclass(slots=True, eq=False)
class _Pass:
    """What the attention of the running pass works on. `cache` is a GrowingCache; `num_layers` were computed so far."""

    cache: Any
    rows: Rows | None
    num_layers: int = 0


_running: ContextVar[_Pass | None] = ContextVar("running", default=None)


def can_share(model: Any) -> bool:
    """Whether the model's attention may be this one: found out once, by comparing both ways on a few tokens.

    False on an accelerator and with other attention than `sdpa`. The comparison computes three short passes.
    """
    state = (str(model.device), str(model.dtype), attention_name(model))
    with _probing:
        known = _known.get(model)
        if known is None or known[0] != state:
            known = (state, _is_supported(model) and _agrees(model))
            _known[model] = known
        return known[1]


def shares_past(model: Any, num_past: int, *, num_members: int = 1) -> bool:
    """Whether passes behind a past of so many tokens compute attention over it where it lies.

    One member behind a short past has it gathered: both ways were measured, and that is the faster one there.
    """
    return (num_past > SHORT_PAST_TOKENS or num_members > 1) and can_share(model)


@contextlib.contextmanager
def over_parts(model: Any, cache: Any, rows: Rows | None = None) -> Iterator[None]:
    """For one pass, attention is computed over the parts of `cache` and its own tokens.

    What another thread computes meanwhile finds attention as it was: its pass has no parts, or its own. Raises
    EngineError where a layer was not computed in this way: its result would lack the past.
    """
    running = _Pass(cache, rows)
    token = _running.set(running)
    try:
        with _replaced(_configs(model)):
            yield
    finally:
        _running.reset(token)
    if running.num_layers != len(cache.layers):
        raise EngineError(
            f"{running.num_layers} of {len(cache.layers)} layers attended to the shared past; report this model"
        )


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' interface. `key` and `value` `[rows, key heads, own tokens, dim]` are the request's own alone."""
    running = _running.get()
    parts = () if running is None else running.cache.layers[module.layer_idx].parts
    if running is None or not parts:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, **options
        )
        return output, None
    given = [name for name in UNSUPPORTED if options.get(name) is not None]
    if given:
        raise NotImplementedError(f"attention with {', '.join(given)} is not computed over parts")
    running.num_layers += 1
    output, lse = _own(query, key, value, attention_mask, running.rows, scaling)
    for left, (keys, values) in enumerate(parts, 1 - len(parts)):
        other, other_lse = _shared(query, keys, values, scaling)
        # Softmax over both sets of keys: the parts' own, weighted by the sums of their exponentials.
        output = torch.lerp(output, other, torch.sigmoid(other_lse - lse)[..., None].to(output.dtype))
        if left:
            lse = torch.logaddexp(lse, other_lse)
    return output.transpose(1, 2), None


AttentionInterface.register(PARTS_ATTENTION, attend)
AttentionMaskInterface.register(PARTS_ATTENTION, sdpa_mask)

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_probing = threading.RLock()
_replacing = threading.Lock()
_num_replaced: dict[int, int] = {}
"""How many passes need a configuration (by its id) replaced now. Models may share one, and so may engines a model."""
_known: weakref.WeakKeyDictionary[Any, tuple[tuple[str, ...], bool]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def _replaced(configs: Sequence[Any]) -> Iterator[None]:
    """The first pass that needs it replaces the attention, the last one puts it back."""
    mine: list[Any] = []
    try:
        with _replacing:
            for config in configs:
                if config._attn_implementation_internal in (REPLACED, PARTS_ATTENTION):
                    _num_replaced[id(config)] = _num_replaced.get(id(config), 0) + 1
                    mine.append(config)
                    config._attn_implementation_internal = PARTS_ATTENTION
        yield
    finally:
        with _replacing:
            for config in mine:
                _num_replaced[id(config)] -= 1
                if not _num_replaced[id(config)]:
                    del _num_replaced[id(config)]
                    if config._attn_implementation_internal == PARTS_ATTENTION:  # and not what somebody else set since
                        config._attn_implementation_internal = REPLACED


def _shared(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None) -> Attended:
    """Attention of all rows over one part `[1, key heads, tokens, dim]`: every query sees every key."""
    rows, heads, tokens, dim = query.shape
    key_heads = key.shape[1]
    if rows == 1:
        output, lse = _flash(query.reshape(1, key_heads, -1, dim), key, value, 0.0, False, scale=scaling)
        return output.reshape(query.shape), lse.reshape(1, heads, tokens)
    folded = query.reshape(rows, key_heads, -1, dim).transpose(0, 1).reshape(1, key_heads, -1, dim)
    output, lse = _flash(folded, key, value, 0.0, False, scale=scaling)
    output = output.reshape(key_heads, rows, -1, dim).transpose(0, 1).reshape(rows, heads, tokens, dim)
    return output, lse.reshape(key_heads, rows, -1).transpose(0, 1).reshape(rows, heads, tokens)


def _own(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    rows: Rows | None,
    scaling: float | None,
) -> Attended:
    """Attention over the request's own tokens."""
    num_queries, num_keys, groups = query.shape[2], key.shape[2], query.shape[1] // key.shape[1]
    if num_queries == 1 and mask is None:  # one token sees all: query heads of one key head side by side
        shape = query.shape
        folded = query.reshape(shape[0], key.shape[1], groups, shape[3])
        output, lse = _flash(folded, key, value, 0.0, False, scale=scaling)
        return output.reshape(shape), lse.reshape(shape[:3])
    if rows is not None:
        query, key, value = (_as_rows(t, rows) for t in (query, key, value))
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if rows is not None:
        # What stands behind a shorter member comes after its last token: a causal mask hides it.
        output, lse = _flash(query, key, value, 0.0, True, scale=scaling)
        return _from_rows(output, rows), _from_rows(lse[..., None], rows)[..., 0]
    if mask is None:
        assert num_queries == num_keys, "only a pass over all own tokens goes without a mask"
        output, lse = _flash(query, key, value, 0.0, True, scale=scaling)
    else:
        output, lse = _flash(query, key, value, 0.0, False, attn_mask=_additive(mask, query.dtype), scale=scaling)
    return output, lse


def _as_rows(packed: torch.Tensor, rows: Rows) -> torch.Tensor:
    """`[1, heads, tokens, dim]` to `[rows, heads, longest, dim]`."""
    heads, _, dim = packed.shape[1:]
    return packed[0].index_select(1, rows.slots).view(heads, rows.num_rows, rows.longest, dim).transpose(0, 1)


def _from_rows(tensor: torch.Tensor, rows: Rows) -> torch.Tensor:
    heads, dim = tensor.shape[1], tensor.shape[3]
    return tensor.transpose(0, 1).reshape(heads, -1, dim).index_select(1, rows.places)[None]


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)


def _configs(model: Any) -> list[Any]:
    """The configurations that the model's attention layers read, each once."""
    found = _config_lists.get(model)
    if found is None:
        modules = [m.config for m in model.modules() if hasattr(getattr(m, "config", None), "_attn_implementation")]
        found = _config_lists[model] = list({id(config): config for config in modules}.values())
    return found


_config_lists: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()


def _is_supported(model: Any) -> bool:
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return (
        model.device.type == "cpu"
        and attention_name(model) == REPLACED
        and bool(getattr(inner, "_supports_attention_backend", False))
        and bool(_configs(model))
    )


PROBE_PREFIX, PROBE_SUFFIX = (1, 2, 3, 4, 5), (6, 7, 8)
AGREEMENT = {torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""How far logits may differ between both ways, as a share of the largest logit. Without the prefix in sight they
differ by more than that in any model that looks at it at all."""


def _agrees(model: Any) -> bool:
    """Whether a short pass over a shared prefix gives the logits of the same pass over a gathered one."""
    size = model.config.get_text_config(decoder=True).vocab_size
    prefix, suffix = (torch.tensor([[i % size for i in ids]]) for ids in (PROBE_PREFIX, PROBE_SUFFIX))
    try:
        cache = fork((), model.config)
        forward(model, input_ids=prefix, cache=cache)
        run = run_of(cut(cache, 0, len(PROBE_PREFIX)), 0)
        gathered, shared = (
            forward(model, input_ids=suffix, cache=fork((run,), model.config, shares=shares), keep_logits=0)
            for shares in (False, True)
        )
    except Exception:  # whatever a model of its own kind does not take: then it goes the ordinary way
        return False
    difference = (gathered - shared).abs().max()
    return bool(difference <= AGREEMENT.get(model.dtype, 0.0) * gathered.abs().max())
