"""A cache layer that starts from kept tensors without copying them and grows in memory of its own.

Imported only by functions that are about to run a model: it needs torch and Transformers at import.

::

    parts   [run 0][run 1]            kept tensors, shared by all requests, never written to
    buffer  [run 0][run 1][new][   ]  memory of this request: made at the first update, with room for single tokens
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

MIN_ROOM_TOKENS = 64


class GrowingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values `[rows, heads, tokens, dim]` of one layer.

    An update by several tokens (a prefill) allocates exactly what it fills; an update by one token leaves room for
    more, so that decoding copies the past once in many tokens instead of at each.
    """

    def __init__(self, parts: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()) -> None:
        self._parts = tuple(parts)
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None
        self._keys: torch.Tensor | None = None
        self._values: torch.Tensor | None = None
        super().__init__()  # type: ignore[no-untyped-call]
        if self._parts:
            self.is_initialized = True
            self.dtype, self.device = self._parts[0][0].dtype, self._parts[0][0].device

    @property
    def keys(self) -> torch.Tensor | None:
        if self._keys is None and self._parts:
            self._keys = _joined([k for k, _ in self._parts])
        return self._keys

    @keys.setter
    def keys(self, value: torch.Tensor | None) -> None:
        self._buffers = None  # rebound by Transformers (crop, reorder): not a view of our buffer any more
        self._keys = value

    @property
    def values(self) -> torch.Tensor | None:
        if self._values is None and self._parts:
            self._values = _joined([v for _, v in self._parts])
        return self._values

    @values.setter
    def values(self, value: torch.Tensor | None) -> None:
        self._buffers = None
        self._values = value

    @property
    def has_room(self) -> bool:
        """Whether a further token would be written into the tensors that `keys` and `values` view."""
        return self._buffers is not None and self._buffers[0].shape[-2] > self.get_seq_length()

    def get_seq_length(self) -> int:
        if self._keys is not None:
            return int(self._keys.shape[-2])
        return sum(int(k.shape[-2]) for k, _ in self._parts)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start, num_new = self.get_seq_length(), int(key_states.shape[-2])
        stop = start + num_new
        if self._buffers is None or self._buffers[0].shape[-2] < stop:
            room = max(MIN_ROOM_TOKENS, start // 4) if num_new == 1 else 0
            old_keys = [k for k, _ in self._parts] if self._keys is None else [self._keys]
            old_values = [v for _, v in self._parts] if self._values is None else [self._values]
            self._buffers = (
                _larger(old_keys, key_states, stop + room),
                _larger(old_values, value_states, stop + room),
            )
            self._parts = ()
            self.dtype, self.device = key_states.dtype, key_states.device
            self.is_initialized = True
        key_buffer, value_buffer = self._buffers
        key_buffer[..., start:stop, :] = key_states
        value_buffer[..., start:stop, :] = value_states
        self._keys, self._values = key_buffer[..., :stop, :], value_buffer[..., :stop, :]
        return self._keys, self._values

    def reset(self) -> None:
        """Drops the tensors. Not left to Transformers: older versions zero them in place, and they may be kept ones."""
        self._parts = ()
        self.keys = self.values = None
        self.is_initialized = False


def growing_cache(layers: Sequence[GrowingLayer]) -> DynamicCache:
    """A cache of these layers, one for each layer of the model."""
    cache = DynamicCache()
    cache.layers = list(layers)
    cache.layer_class_to_replicate = None
    return cache


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)


def _larger(parts: list[torch.Tensor], new: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Memory for `num_tokens` in the shape of `new`, the old parts copied to its beginning (one row serves many)."""
    buffer = new.new_empty((*new.shape[:-2], num_tokens, new.shape[-1]))
    start = 0
    for part in parts:
        buffer[..., start : start + part.shape[-2], :] = part
        start += part.shape[-2]
    return buffer
