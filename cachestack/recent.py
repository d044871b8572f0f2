"""Values made once and kept while they are used: a bounded least-recently-used map."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Slot(Generic[V]):
    __slots__ = ("lock", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.value: V | None = None


class Recent(Generic[K, V]):
    """Thread-safe. Of threads that ask for the same new key, one makes the value and the others wait for it. A failure
    is not remembered. A value that is dropped while it is used goes on working for those who have it."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._lock = threading.Lock()
        self._slots: OrderedDict[K, _Slot[V]] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            while len(self._slots) > self._max_values:
                self._slots.popitem(last=False)
        if slot.value is None:
            with slot.lock:
                if slot.value is None:
                    slot.value = make()
        return slot.value

    def drop(self, which: Callable[[K], bool]) -> None:
        with self._lock:
            for key in [key for key in self._slots if which(key)]:
                del self._slots[key]

    def __len__(self) -> int:
        return len(self._slots)
