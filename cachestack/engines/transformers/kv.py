"""Keys and values as kept payloads, and caches forked from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cachestack.engines.base import KVRun

if TYPE_CHECKING:
    import torch

LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True, eq=False)
class KVTensors:
    """For each layer keys and values `[1, heads, tokens, dim]`. Nobody ever writes to them: forks read them."""

    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @property
    def num_tokens(self) -> int:
        return int(self.layers[0][0].shape[-2])

    @property
    def num_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for pair in self.layers for t in pair)

    @property
    def dtype(self) -> str:
        return str(self.layers[0][0].dtype).removeprefix("torch.")

    def as_dtype(self, name: str | None) -> KVTensors:
        """In another precision (a torch dtype's name), or as it is."""
        import torch

        if name is None or name == self.dtype:
            return self
        dtype = getattr(torch, name)
        return KVTensors(tuple((keys.to(dtype), values.to(dtype)) for keys, values in self.layers))

    def is_finite(self) -> bool:
        """Whether every value is finite. Reads all of it once."""
        import torch

        tensors = [t for pair in self.layers for t in pair]
        if tensors[0].device.type == "mps":  # has no float64
            return all(bool(torch.isfinite(t).all()) for t in tensors)
        # A sum in float64 of finite float32 values cannot overflow, and is not finite if one of them is not.
        sums = torch.stack([t.sum(dtype=torch.float64) for t in tensors])
        return bool(torch.isfinite(sums).all())


def fork(runs: Sequence[KVRun], config: Any, *, shares: bool = False) -> Any:
    """A cache (GrowingCache) that continues after `runs`; with no runs, an empty one. Copies nothing.

    `runs` follow each other from token 0, and stand before every row of a pass. The cache never writes to their
    tensors, and two forks of the same runs know nothing of each other. With `shares` (for models that `can_share`)
    passes compute attention over the runs where they lie; otherwise the first update of each layer gathers them into
    memory of the fork's own. For models whose `unsupported_reason` is None.
    """
    from cachestack.engines.transformers.growing import GrowingCache, GrowingLayer

    expected = 0
    for run in runs:
        assert run.start == expected, f"run starts at {run.start}, but the runs before it end at {expected}"
        expected += run.num_tokens
    num_layers = len(runs[0].payload.layers) if runs else num_cache_layers(config)
    layers = [GrowingLayer(_parts(runs, i), shares=shares) for i in range(num_layers)]
    return GrowingCache(layers, shares=shares)


def cut(cache: Any, start: int, stop: int) -> KVTensors:
    """Tokens `[start, stop)` of a one-row cache, see `GrowingLayer.cut`."""
    length = cache.get_seq_length()
    assert 0 <= start < stop <= length, f"cannot cut [{start}, {stop}) out of {length} tokens"
    layers = tuple(layer.cut(start, stop) for layer in cache.layers)
    assert layers[0][0].shape[0] == 1, "only a cache of one row can be kept"
    return KVTensors(layers)


def run_of(payload: KVTensors, start: int) -> KVRun:
    """The whole payload as a run that begins at prompt token `start`."""
    return KVRun(payload=payload, start=start, num_tokens=payload.num_tokens, num_bytes=payload.num_bytes)


def new_cache(config: Any) -> Any:
    """An empty cache as Transformers makes it for this model, whatever kinds of layers it has."""
    from transformers import DynamicCache

    return DynamicCache(config=config)


def num_cache_layers(config: Any) -> int:
    return len(new_cache(config).layers)


def unsupported_reason(model: Any) -> str | None:
    """Why this model's cache cannot be kept and forked, or None."""
    from transformers.cache_utils import DynamicLayer

    from cachestack.engines.transformers.adapter import takes_cache

    if getattr(model.config, "is_encoder_decoder", False):
        return "encoder-decoder models keep two caches"
    if not takes_cache(model):
        return f"{type(model).__name__} takes no KV cache"
    if any(vars(module).get("is_decoder") is False for module in model.modules()):
        return f"{type(model).__name__} is not set up as a decoder: its tokens see those that follow"
    try:
        layers = new_cache(model.config).layers
    except Exception as error:  # a model that brings its own kind of cache fails here in its own way
        return f"its cache cannot be made from its configuration ({type(error).__name__})"
    others = sorted({type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer})
    if others or not layers:
        return f"not all layers keep full attention: {', '.join(others) or 'none known'}"
    config = model.config.get_text_config(decoder=True)
    rope = next((kind for kind in LENGTH_DEPENDENT_ROPE if kind in _rope_types(config)), None)
    if rope is not None:
        return f"rotary scaling {rope!r} depends on the length of the whole prompt"
    return None


def _parts(runs: Sequence[KVRun], layer: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [
        (_first(keys, run.num_tokens), _first(values, run.num_tokens))
        for run in runs
        for keys, values in (run.payload.layers[layer],)
    ]


def _first(tensor: torch.Tensor, num_tokens: int) -> torch.Tensor:
    return tensor.narrow(-2, 0, num_tokens) if num_tokens < tensor.shape[-2] else tensor


def _rope_types(config: Any) -> set[str]:
    found: set[str] = set()
    pending = [getattr(config, "rope_parameters", None), getattr(config, "rope_scaling", None)]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            kind = value.get("rope_type", value.get("type"))
            if isinstance(kind, str):
                found.add(kind)
            pending.extend(value.values())
    return found
