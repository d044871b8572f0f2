"""A cache layer that starts from kept tensors without copying them and grows in memory of its own.

Imported only by functions that are about to run a model: it needs torch and Transformers at import. ::

    parts   [run 0][run 1]            kept tensors, shared by all requests, never written to
    own     [new tokens][   ]         memory of this request, with room for single tokens

Where attention is computed over the parts as they lie (see attention.py), they stay where they are. Otherwise the first
update gathers them into the request's own memory, in front of its new tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

MIN_ROOM_TOKENS = 64
MAX_PARTS = 4
"""Each part is a call of the kernel and a merge. With more, the shorter ones are joined, once a request."""
Pair = tuple[torch.Tensor, torch.Tensor]


class GrowingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """Keys and values `[rows, heads, tokens, dim]` of one layer.

    The first tokens of a prefill are kept as they come, with nothing allocated; later ones get exactly what they fill,
    or what was reserved. An update by one token leaves room for more, so that decoding copies the past once in many
    tokens instead of at each. `copied_bytes` counts what was copied of tokens that were there before.
    """

    def __init__(self, parts: Sequence[Pair] = (), *, shares: bool = False) -> None:
        self._buffers: Pair | None = None
        self._own: Pair | None = None
        self._joined: Pair | None = None
        super().__init__()  # type: ignore[no-untyped-call]
        self.parts: tuple[Pair, ...] = tuple(parts)
        self.num_forked = self.num_shared
        self.copied_bytes = 0
        self.reserved_tokens = 0
        self._shares = shares
        self._is_ordered = True
        if self.parts:
            self.is_initialized = True
            self.dtype, self.device = self.parts[0][0].dtype, self.parts[0][0].device

    @property
    def keys(self) -> torch.Tensor | None:
        """All keys in one tensor. Where there are several places, this copies them, as Transformers' own cropping does;
        no pass of ours asks for it."""
        pair = self._all()
        return None if pair is None else pair[0]

    @keys.setter
    def keys(self, value: torch.Tensor | None) -> None:
        self._rebind(0, value)

    @property
    def values(self) -> torch.Tensor | None:
        pair = self._all()
        return None if pair is None else pair[1]

    @values.setter
    def values(self, value: torch.Tensor | None) -> None:
        self._rebind(1, value)

    @property
    def num_shared(self) -> int:
        return sum(int(keys.shape[-2]) for keys, _ in self.parts)

    @property
    def num_own(self) -> int:
        return 0 if self._own is None else int(self._own[0].shape[-2])

    @property
    def has_room(self) -> bool:
        """Whether a further token would be written into the tensors that hold this layer's own."""
        return self._buffers is not None and self._buffers[0].shape[-2] > self.num_own

    def get_seq_length(self) -> int:
        return self.num_shared + self.num_own

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Of the keys that `update` will return: how many, and the position of the first."""
        if self.parts and self._shares:
            return self.num_own + query_length, self.num_shared
        return self.get_seq_length() + query_length, 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends; returns all keys and values, but for those in `parts` where attention is computed over them."""
        num_new = int(key_states.shape[-2])
        self._joined = None
        old: list[Pair] = [] if self._own is None else [self._own]
        if self.parts:
            self._prepare_parts(key_states.dtype)
            if not self._shares:
                old, self.parts, self._buffers = [*self.parts, *old], (), None
        if not old and num_new > 1 and num_new >= self.reserved_tokens:
            self._own, self._buffers = (key_states, value_states), None  # as they are: nothing is there to join them to
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            return self._own
        start = sum(int(keys.shape[-2]) for keys, _ in old)
        stop = start + num_new
        if self._buffers is None or self._buffers[0].shape[-2] < stop:
            room = max(MIN_ROOM_TOKENS, start // 4) if num_new == 1 else 0
            size = max(stop + room, self.reserved_tokens)
            self._buffers = (
                _larger([keys for keys, _ in old], key_states, size),
                _larger([values for _, values in old], value_states, size),
            )
            self.copied_bytes += _num_bytes((self._buffers[0][..., :start, :], self._buffers[1][..., :start, :]))
            self.dtype, self.device = key_states.dtype, key_states.device
            self.is_initialized = True
        key_buffer, value_buffer = self._buffers
        key_buffer[..., start:stop, :] = key_states
        value_buffer[..., start:stop, :] = value_states
        self._own = key_buffer[..., :stop, :], value_buffer[..., :stop, :]
        return self._own

    def cut(self, start: int, stop: int) -> Pair:
        """Tokens `[start, stop)`, as they are where they are all of this layer's own without room to write behind
        them; else a copy, so that the larger memory can be freed."""
        before = self.num_shared
        if self._own is not None and start == before and stop == self.get_seq_length() and not self.has_room:
            self._buffers = None  # not ours alone any more: nothing is written there again
            self._own = _contiguous(self._own)
            return self._own
        if self._own is not None and start >= before:
            return _copied(self._own, start - before, stop - before)
        assert start >= self.num_forked or self._is_ordered, "the parts were put together in another order"
        pair = self._all()
        assert pair is not None, "an empty layer has no tokens"
        return _copied(pair, start, stop)

    def truncate(self, num_new: int) -> None:
        """Back to the first `num_new` tokens after those it was forked from; the next update writes over the others."""
        num_own = self.num_forked - self.num_shared + num_new
        assert self._own is not None, "nothing was computed yet"
        assert num_own <= self.num_own, "cannot go back to more tokens than there are"
        self._joined = None
        self._own = self._own[0][..., :num_own, :], self._own[1][..., :num_own, :]

    def gather(self) -> None:
        """From now on all keys are in the request's own memory: for passes that cannot compute over parts."""
        self._shares = False

    def reset(self) -> None:
        """Drops the tensors. Not left to Transformers: older versions zero them in place, and they may be kept ones."""
        self.parts = ()
        self._own = self._buffers = self._joined = None
        self.is_initialized = False

    def _all(self) -> Pair | None:
        pairs = [*self.parts, *([] if self._own is None else [self._own])]
        if len(pairs) <= 1:
            return pairs[0] if pairs else None
        if self._joined is None:
            self._joined = _joined(pairs)
        return self._joined

    def _rebind(self, side: int, value: torch.Tensor | None) -> None:
        """Set by Transformers (crop, reorder), first keys, then values: not views of our memory any more."""
        if value is None:
            return self.reset()
        pair = self._all() if self._own is None or self.parts else self._own
        other = value if pair is None else pair[1 - side]
        self.parts, self._buffers, self._joined = (), None, None
        self._own = (value, other) if side == 0 else (other, value)

    def _prepare_parts(self, dtype: torch.dtype) -> None:
        """In the model's dtype, and not too many. Kept tensors are left alone: what changes is copied."""
        if self._shares and any(keys.dtype != dtype for keys, _ in self.parts):  # gathering converts as it copies
            self.parts = tuple((keys.to(dtype), values.to(dtype)) for keys, values in self.parts)
            self.copied_bytes += sum(_num_bytes(pair) for pair in self.parts)
        if self._shares and len(self.parts) > MAX_PARTS:
            longest = sorted(self.parts, key=lambda pair: -int(pair[0].shape[-2]))
            joined = _joined(longest[MAX_PARTS - 1 :])  # positions are in the keys: the order of parts means nothing
            self.copied_bytes += _num_bytes(joined)
            self.parts = (*longest[: MAX_PARTS - 1], joined)
            self._is_ordered = False


class GrowingCache(DynamicCache):
    """A cache of GrowingLayers, one for each layer of the model."""

    layers: list[GrowingLayer]  # type: ignore[assignment]

    def __init__(self, layers: Sequence[GrowingLayer], *, shares: bool = False) -> None:
        super().__init__()
        self.layers = list(layers)
        self.layer_class_to_replicate = None
        self._shares = shares

    @property
    def shares(self) -> bool:
        """Whether a pass over this cache has to compute attention over parts."""
        return self._shares and any(layer.parts for layer in self.layers)

    @property
    def copied_bytes(self) -> int:
        """What was copied so far of tokens that were there before: gathered, converted, moved to grow."""
        return sum(layer.copied_bytes for layer in self.layers)

    @property
    def num_shared(self) -> int:
        """Tokens over which the next pass computes attention where they lie: a 4-D mask has no columns for them."""
        return self.layers[0].num_shared if self.shares else 0

    def reserve(self, num_new: int) -> None:
        """Makes room at the first update for so many tokens after the parts, so that later ones copy nothing."""
        for layer in self.layers:
            layer.reserved_tokens = num_new if self._shares else layer.num_shared + num_new

    def truncate(self, num_new: int) -> None:
        """Back to the first `num_new` tokens after the runs that the cache was forked from."""
        for layer in self.layers:
            layer.truncate(num_new)

    def gather(self) -> None:
        """The next update brings all keys into the request's own memory: for passes that cannot compute over parts,
        and for decoding."""
        self._shares = False
        for layer in self.layers:
            layer.gather()


def _joined(pairs: Sequence[Pair]) -> Pair:
    if len(pairs) == 1:
        return pairs[0]
    rows = max(int(keys.shape[0]) for keys, _ in pairs)  # parts have one row, whatever the number of the pass's
    wide = [tuple(t.expand(rows, *t.shape[1:]) for t in pair) for pair in pairs]
    return torch.cat([pair[0] for pair in wide], dim=-2), torch.cat([pair[1] for pair in wide], dim=-2)


def _contiguous(pair: Pair) -> Pair:
    return pair[0].contiguous(), pair[1].contiguous()


def _copied(pair: Pair, start: int, stop: int) -> Pair:
    keys, values = (t[..., start:stop, :].clone(memory_format=torch.contiguous_format) for t in pair)
    return keys, values


def _num_bytes(pair: Pair) -> int:
    return sum(t.numel() * t.element_size() for t in pair)


def _larger(parts: list[torch.Tensor], new: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Memory for `num_tokens` in the shape of `new`, the old parts copied to its beginning (one row serves many)."""
    buffer = new.new_empty((*new.shape[:-2], num_tokens, new.shape[-1]))
    start = 0
    for part in parts:
        buffer[..., start : start + part.shape[-2], :] = part
        start += part.shape[-2]
    return buffer
