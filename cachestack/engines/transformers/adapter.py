"""The one place that knows how Transformers' causal models are called (checked with 5.15 to 5.24)."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cachestack.errors import EngineError

if TYPE_CHECKING:
    import torch

    from cachestack.engines.transformers.attention import Rows

MASK_4D_ATTENTION = ("sdpa", "eager")
PARTS_ATTENTION = "cachestack_parts"
"""What takes the place of `sdpa` for the time of a pass over shared parts, see attention.py."""


def forward(
    model: Any,
    *,
    input_ids: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    attention_mask: torch.Tensor | None = None,
    cache: Any = None,
    keep_logits: int | torch.Tensor = 1,
    rows: Rows | None = None,
) -> torch.Tensor:
    """Logits `[rows, kept positions, vocabulary]` of one pass over `input_ids` `[rows, tokens]`.

    `keep_logits`: how many last positions, or an index tensor of positions in the row; 0 keeps all. `cache` grows by
    the tokens of the pass; without one nothing is kept. `attention_mask` is 2-D over past and new tokens, or boolean
    `[rows or 1, 1, new tokens, past + new tokens]`, True where a token may look; where the cache shares its past
    (`GrowingCache.num_shared`), a 4-D mask has no columns for that. `rows` instead of a mask: members of a pack that
    see the shared past and themselves. Without `position_ids` the positions continue after the cache. Tensors are made
    under `no_grad`, not `inference_mode`: those of the latter can be neither cropped nor reassigned later. Raises
    EngineError where the model cannot take such a mask.
    """
    import torch

    accepted = _accepted(model)
    arguments: dict[str, Any] = {"input_ids": input_ids}
    if cache is None:
        arguments["use_cache"] = False
    else:
        arguments[cache_argument(model)] = cache
        arguments["use_cache"] = True
    if position_ids is not None and "position_ids" in accepted:
        arguments["position_ids"] = position_ids
    if attention_mask is not None:
        if attention_mask.ndim == 2 and getattr(cache, "shares", False):
            cache.gather()  # a padding mask covers the past too
        arguments["attention_mask"] = _as_taken(model, attention_mask, adds=getattr(cache, "shares", False))
    trims = "logits_to_keep" in accepted
    if trims:
        arguments["logits_to_keep"] = keep_logits
    with torch.no_grad(), _attention(model, cache, rows):
        logits: torch.Tensor = model(**arguments).logits
    return logits if trims else _trimmed(logits, keep_logits)


def _attention(model: Any, cache: Any, rows: Rows | None) -> AbstractContextManager[None]:
    if not getattr(cache, "shares", False):
        assert rows is None, "rows need a past that is shared"
        return nullcontext()
    from cachestack.engines.transformers.attention import over_parts

    return over_parts(model, cache, rows)


def takes_cache(model: Any) -> bool:
    """Whether the model's forward pass accepts a KV cache at all."""
    return not _accepted(model).isdisjoint(("cache", "past_key_values"))


def cache_argument(model: Any) -> str:
    """5.24 renamed `past_key_values` to `cache`."""
    return "cache" if "cache" in _accepted(model) else "past_key_values"


def takes_mask_4d(model: Any) -> bool:
    """Whether `attention_mask` may be a 4-D mask of our own, with positions to match."""
    return attention_name(model) in MASK_4D_ATTENTION and "position_ids" in _accepted(model)


def takes_packs(model: Any) -> bool:
    """Whether members of a pack can be told apart: by masks of our own, and by positions that count as the model
    counts them itself. Models of RoBERTa's kind begin elsewhere when they are not told. Found out once a model, by two
    short passes."""
    if not takes_mask_4d(model):
        return False
    with _trying:
        if model not in _plain_positions:
            _plain_positions[model] = _counts_from_zero(model)
        return _plain_positions[model]


_trying = threading.Lock()
_plain_positions: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def _counts_from_zero(model: Any) -> bool:
    import torch

    size = model.config.get_text_config(decoder=True).vocab_size
    ids = torch.tensor([[i % size for i in range(1, 7)]], device=model.device)
    try:
        told = forward(model, input_ids=ids, position_ids=torch.arange(6, device=model.device)[None])
        untold = forward(model, input_ids=ids)
    except Exception:  # whatever a model of its own kind does not take: then it goes one by one
        return False
    return bool(torch.allclose(told, untold, rtol=1e-3, atol=1e-3 * float(untold.abs().max())))


def attention_name(model: Any) -> str:
    """The model's attention, whatever a pass of another thread has put in its place for the moment."""
    name = str(getattr(model.config, "_attn_implementation", None) or "eager")
    return "sdpa" if name == PARTS_ATTENTION else name


def context_tokens(model: Any, tokenizer: Any = None) -> int | None:
    """The longest sequence the model can take, in tokens, or None where nothing says so."""
    config = model.config.get_text_config(decoder=True)
    stated = getattr(config, "max_position_embeddings", None)
    if isinstance(stated, int) and stated > 0:
        return stated
    window = getattr(tokenizer, "model_max_length", None)
    return window if isinstance(window, int) and 0 < window < 10**9 else None


def _accepted(model: Any) -> frozenset[str]:
    """Names that the model's forward pass takes. PEFT's wrapper hands all of them on to the model within."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return _parameters(type(inner).forward)


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _as_taken(model: Any, mask: torch.Tensor, *, adds: bool) -> torch.Tensor:
    """Eager attention adds a 4-D mask to the scores as it is: True would count as 1, so it becomes 0 and -max. So does
    attention over parts, which is given it so once a pass instead of once a layer."""
    import torch

    if mask.ndim != 4:
        return mask
    name = attention_name(model)
    if name not in MASK_4D_ATTENTION:
        raise EngineError(
            f"attention {name!r} takes no 4-D mask; load the model with one of: {', '.join(MASK_4D_ATTENTION)}"
        )
    if not (adds or name == "eager") or mask.dtype != torch.bool:
        return mask
    dtype = model.dtype
    blocked = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=mask.device)
    return torch.where(mask, torch.zeros((), dtype=dtype, device=mask.device), blocked)


def _trimmed(logits: torch.Tensor, keep: int | torch.Tensor) -> torch.Tensor:
    """What `logits_to_keep` gives, for models that do not have it."""
    return logits[:, -keep:, :] if isinstance(keep, int) else logits[:, keep, :]
