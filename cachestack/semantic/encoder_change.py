"""From one encoder to another: entries are encoded anew in the background, while they are still found the old way.

Each entry has the vector of one encoder, and which one is written beside it in the same transaction. So there is no
moment between the two: as long as a partition has entries of the encoder before, a question that finds nothing with
the new one is embedded with the old one as well, and every entry is found by the one that made its vector. New answers
get the new encoder's vector only. A partition is moved when it is first asked for; what is done is in the store, so
that a process that is killed goes on where it was.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from cachestack.entries import Entry
from cachestack.errors import EncoderError
from cachestack.keys import Partition
from cachestack.semantic.background import Background, ShouldStop
from cachestack.semantic.base import Encoder, StatesPacker
from cachestack.semantic.known_encoders import KnownEncoders, Met
from cachestack.semantic.reembed import Reembedding, VectorStore, encode_anew, is_foreign, reembed
from cachestack.stores.base import EntryStore

log = logging.getLogger("cachestack")
BATCH = 16
_STEP_S = 0.05


class MovedStore(EntryStore, VectorStore, Protocol):
    """What entries are moved in."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Since the process began. `num_left`: looked at and left as they are, for the exact same question only: too long
    for the new encoder, or in a language that it lacks."""

    num_partitions: int = 0
    num_partitions_done: int = 0
    num_done: int = 0
    num_left: int = 0


class EncoderChange:
    """Thread-safe. `open_encoder` opens what `Met.ref` names; whatever it raises means that it can't be had any more.

    At most half of one core is used: after each batch the thread rests as long as the batch took.
    """

    def __init__(
        self,
        store: MovedStore,
        known: KnownEncoders,
        encoder: Encoder,
        open_encoder: Callable[[str], Encoder],
        packer: StatesPacker | None = None,
        *,
        batch: int = BATCH,
    ) -> None:
        self._store = store
        self._known = known
        self._encoder = encoder
        self._open_encoder = open_encoder
        self._packer = packer
        self._batch = batch
        self._background = Background(self._failed)
        self._lock = threading.Lock()  # guards all below
        self._before: tuple[Met, ...] | None = None
        self._former: Encoder | None = None
        self._is_opened = False
        self._done: set[Partition] = set()
        self._begun: set[Partition] = set()
        self._progress = Progress()

    @property
    def has_former(self) -> bool:
        """Whether the state folder has met another encoder. Asked after the first embedding."""
        return bool(self._met_before())

    def former(self, partition: Partition) -> Encoder | None:
        """The encoder before, where entries of the partition may still be its; None where it can't be had."""
        if self.is_done(partition):
            return None
        with self._lock:
            if not self._is_opened:
                self._is_opened = True
                self._former = self._opened()
            return self._former

    def is_done(self, partition: Partition) -> bool:
        """Whether no entry can be another encoder's. Reads a file the first time."""
        if not self._met_before() or partition in self._done:
            return True
        if not self._known.has_moved(self._encoder.fingerprint, partition):
            return False
        with self._lock:
            self._done.add(partition)
        return True

    def may_move(self, partition: Partition) -> bool:
        """Whether `move` would have to find something out, or to begin. No file is read for it."""
        before = self._before
        return before is None or (bool(before) and partition not in self._done)

    def move(self, partition: Partition) -> None:
        """Begin in the background, unless it is done or has begun. Returns at once."""
        if self.is_done(partition):
            return
        with self._lock:
            if partition in self._begun:
                return
            self._begun.add(partition)
            self._progress = replace(self._progress, num_partitions=self._progress.num_partitions + 1)
        self._background.submit(partition, lambda should_stop: self._move(partition, should_stop))

    def progress(self) -> Progress:
        with self._lock:
            return self._progress

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until what has begun is done; False where that took longer."""
        return self._background.wait(timeout_s)

    def close(self) -> None:
        """Stop after the batch that runs. What is not done is done in the next process."""
        self._background.close()

    def _met_before(self) -> tuple[Met, ...]:
        met = self._before
        if met is None:
            with self._lock:
                if self._before is None:
                    try:
                        self._before = self._known.use(self._encoder.fingerprint)
                    except OSError as error:
                        log.warning("encoders before are not known: %s cannot be read: %s", self._known.folder, error)
                        self._before = ()
                met = self._before
        return met

    def _move(self, partition: Partition, should_stop: ShouldStop) -> None:
        fingerprint = self._encoder.fingerprint
        foreign = (e for e in self._store.entries(partition) if is_foreign(e, fingerprint))
        while batch := list(islice(foreign, self._batch)):
            if should_stop():
                return
            began_s = time.monotonic()
            self._encode(batch)
            _rest(time.monotonic() - began_s, should_stop)
        self._known.note_moved(fingerprint, partition)
        with self._lock:
            self._done.add(partition)
            self._progress = replace(self._progress, num_partitions_done=self._progress.num_partitions_done + 1)

    def _encode(self, batch: Sequence[Entry]) -> None:
        made = self._encoded(batch)
        with self._lock:
            before = self._progress
            self._progress = replace(
                before, num_done=before.num_done + made.num_done, num_left=before.num_left + made.num_left
            )

    def _encoded(self, batch: Sequence[Entry]) -> Reembedding:
        """In one pass; where that fails, one by one. Raises EncoderError where all fail: then it is the encoder."""
        try:
            return encode_anew(self._store, self._encoder, batch, self._packer)
        except EncoderError:
            made = [reembed(self._store, self._encoder, [entry], self._packer) for entry in batch]
            num_done = sum(one.num_done for one in made)
            if not num_done:
                raise
            return Reembedding(num_done, len(batch) - num_done)

    def _opened(self) -> Encoder | None:
        for met in self._before or ():
            with suppress(Exception):
                encoder = self._open_encoder(met.ref)
                if self._known.recognise(encoder, met.ref) == met.fingerprint:
                    return encoder
            log.warning("the encoder before, %s, is not there any more: its entries match exactly only", met.ref)
            return None
        return None

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._begun.clear()  # tried again at the next write
        log.warning("entries of the encoder before could not be encoded anew yet: %r", error)


def _rest(seconds: float, should_stop: ShouldStop) -> None:
    until_s = time.monotonic() + min(seconds, 5.0)
    while not should_stop() and (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(left_s, _STEP_S))
