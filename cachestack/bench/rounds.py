"""One prefix being measured: each repetition runs every column once, and compares what they found."""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from cachestack.bench.columns import Column, Ways
from cachestack.bench.report import Agreement
from cachestack.errors import EngineError

COMPARED = ("recipe", "single", "packed")


class Rounds:
    """`times_ms`: for each column an item's time in each repetition, in the same order."""

    def __init__(self, ways: Ways, columns: tuple[Column, ...], timer: Callable[[], float] = time.perf_counter) -> None:
        self.ways = ways
        self.columns = columns
        self.times_ms: defaultdict[str, list[float]] = defaultdict(list)
        self._timer = timer
        self._differences = dict.fromkeys(COMPARED, 0.0)
        self._same_argmax = True
        self._cold_equals_warm = False
        self._num_compared = 0
        self._peer_same: list[bool] = []

    @property
    def agreement(self) -> Agreement:
        return Agreement(
            differences=dict(self._differences),
            same_argmax=self._same_argmax,
            cold_equals_warm=self._cold_equals_warm,
            num_compared=self._num_compared,
            peer_same_argmax=sum(self._peer_same) / len(self._peer_same) if self._peer_same else None,
        )

    def warm_up(self) -> None:
        """Every column once; each member of a pack against itself alone; a first run's logits against a hit's."""
        rows = {column.name: column.run(0) for column in self.columns}
        self._compare(rows)
        pack = rows.get("packed")
        if pack is None:
            return
        for i in range(1, self.ways.pack_items):
            self._compare({"whole": self.ways.single(i), "packed": pack[i:]})
        self._cold_equals_warm = torch.equal(self.ways.cold_row(0), _first(self.ways.single(0)))

    def repeat(self, rep: int) -> None:
        """For the ticket `rep`. Another column begins each time."""
        rows: dict[str, torch.Tensor | None] = {}
        turn = rep % len(self.columns)
        with _no_collection():
            for column in (*self.columns[turn:], *self.columns[:turn]):
                began = self._timer()
                rows[column.name] = column.run(rep)
                self.times_ms[column.name].append(1000 * (self._timer() - began) / column.num_items)
        self._compare(rows)

    def _compare(self, rows: Mapping[str, torch.Tensor | None]) -> None:
        """The first row of each way against the whole prompt's. Raises EngineError for what is no number."""
        reference = rows["whole"]
        assert reference is not None, "the whole prompt gives its logits"
        whole = _first(reference)
        self._num_compared += 1
        for name in COMPARED:
            if (found := rows.get(name)) is None:
                continue
            row = _first(found)
            if not bool(torch.isfinite(row).all()):
                raise EngineError(f"logits of the column {name!r} are not finite; check the model and its dtype")
            self._differences[name] = max(self._differences[name], float((row - whole).abs().max()))
            self._same_argmax &= bool(row.argmax() == whole.argmax())
        if (peer := rows.get("peer")) is not None:
            self._peer_same.append(bool(peer[0].argmax() == whole.argmax()))


def _first(rows: torch.Tensor) -> torch.Tensor:
    return rows[0].float().cpu()


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection within a repetition: it would fall on whichever column comes by."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
