"""Performs every effect of the pipeline except `Generate`, which each driver performs in its own way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from cachestack.decisions import Reason
from cachestack.effects import (
    Effect,
    Embed,
    Embedding,
    FindExact,
    Generate,
    Prepare,
    PublishEntry,
    Search,
    Touch,
)
from cachestack.engines.base import Engine, is_token_engine
from cachestack.errors import EncoderError, EntryTooLarge, StoreError
from cachestack.semantic.base import Encoder, Index
from cachestack.semantic.vectors import to_bytes
from cachestack.stores.base import EntryStore

log = logging.getLogger("cachestack")
_PURGE_EVERY_S = 600.0


class Performer:
    """Store, index and encoder behind the pipeline's effects.

    A store that fails raises StoreError into the pipeline, which goes on uncached; here it is logged, once.
    """

    def __init__(
        self,
        store: EntryStore,
        index: Index | None,
        encoder: Encoder | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.encoder = encoder
        self._index = index
        self._clock = clock
        self._warned = False
        self._purged_s = clock()

    def perform(self, effect: Effect, engines: Mapping[str, Engine]) -> Any:
        """The result that the effect's docstring names."""
        try:
            return self._perform(effect, engines)
        except EntryTooLarge:
            raise  # the store is well
        except StoreError as error:
            if not self._warned:
                self._warned = True
                log.warning("the cache's store cannot be used; requests go on uncached: %s", error)
            raise

    def embed(self, text: str) -> Embedding | Reason:
        """The text's embedding, or why there is none."""
        encoder = self.encoder
        if encoder is None:
            return Reason.NO_ENCODER
        try:
            if not encoder.fits_window(text):
                return Reason.BEYOND_WINDOW
            return Embedding(to_bytes(encoder.encode([text])[0]), encoder.fingerprint)
        except EncoderError as error:
            log.warning("the question could not be embedded and is only matched exactly: %s", error)
            return Reason.ENCODER_FAILED

    def close(self) -> None:
        close_index = getattr(self._index, "close", None)
        if close_index is not None:
            close_index()
        self.store.close()

    def _purge_when_due(self) -> None:
        now_s = self._clock()
        if not 0 <= now_s - self._purged_s < _PURGE_EVERY_S:
            self._purged_s = now_s
            self.store.purge(now_s)

    def _perform(self, effect: Effect, engines: Mapping[str, Engine]) -> Any:
        match effect:
            case FindExact(partition, exact):
                return self.store.find_exact(partition, exact)
            case Embed(text):
                return self.embed(text)
            case Search(partition, contract, vector, encoder, num_candidates):
                if self._index is None:
                    return []
                return self._index.search(partition, contract.digest, vector, encoder, num_candidates)
            case Prepare(engine, request):
                token_engine = engines[engine]
                assert is_token_engine(token_engine), "only token engines prepare prompts"
                return token_engine.prepare(request)
            case PublishEntry(entry, max_bytes):
                self.store.put(entry, max_bytes)
                return self._purge_when_due()
            case Touch(partition, entry_id):
                return self.store.touch(partition, entry_id, self._clock())
            case Generate():
                raise AssertionError("Generate is performed by the driver")
            case _:
                assert_never(effect)
