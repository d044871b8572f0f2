"""Bytes that are copied out of kept KV while something runs, counted from outside the code that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cachestack.engines.base import KVRun

T = TypeVar("T")
# Operators that write what they read into other memory. Attention reads keys and values too, and is no copy.
COPYING = frozenset(
    {"cat", "stack", "clone", "copy_", "_to_copy", "repeat", "index_select", "gather", "constant_pad_nd"}
)


def copied_bytes(runs: Sequence[KVRun], action: Callable[[], T]) -> tuple[int, T]:
    """The bytes of `runs` that torch's operators copied while `action` ran, and what it returned.

    Copies that an attention kernel makes inside itself, block by block, are not seen.
    """
    counter = _Counter(tensor for run in runs for pair in run.payload.layers for tensor in pair)
    with counter:
        result = action()
    return counter.num_bytes, result


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, kept: Iterator[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept = {tensor.untyped_storage().data_ptr() for tensor in kept}
        self.num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in COPYING:
            read = args[1:] if name == "copy_" else args
            self.num_bytes += sum(
                tensor.numel() * tensor.element_size()
                for tensor in _tensors(read)
                if tensor.untyped_storage().data_ptr() in self._kept
            )
        return func(*args, **(kwargs or {}))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
