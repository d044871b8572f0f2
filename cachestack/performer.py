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
from cachestack.entries import Candidate
from cachestack.errors import (
    CacheStackError,
    ConfigError,
    EncoderError,
    EntryTooLarge,
    MissingExtra,
    ModelError,
    StoreError,
)
from cachestack.semantic.base import Encoder, Index
from cachestack.semantic.vectors import to_bytes, to_vector
from cachestack.stores.base import EntryStore

log = logging.getLogger("cachestack")
_PURGE_EVERY_S = 600.0
_REST_S = 10.0
"""How long nothing is written for a tenant after a write has failed: it may have failed after seconds of waiting for a
lock, and the next request must not wait as long."""


class Performer:
    """Store, index and encoder behind the pipeline's effects.

    Whatever a store raises is a StoreError to the pipeline, which goes on uncached; an index or an encoder that fails
    costs the match by meaning. Each is logged once.
    """

    def __init__(
        self,
        store: EntryStore,
        index: Index | None,
        encoder: Encoder | None,
        clock: Callable[[], float] = time.time,
        *,
        needs_encoder: bool = True,
    ) -> None:
        self._needs_encoder = needs_encoder
        self.store = store
        self.encoder = encoder
        self._index = index
        self._clock = clock
        self._warned: set[str] = set()
        self._purged_s = clock()
        self._failed_s: dict[str, float] = {}  # by tenant: when its last write failed

    def perform(self, effect: Effect, engines: Mapping[str, Engine]) -> Any:
        """The result that the effect's docstring names."""
        writes_for = _writes_for(effect)
        if writes_for is not None and self._rests(writes_for):
            raise StoreError(f"writing failed less than {_REST_S:g} s ago and is not tried again yet")
        try:
            return self._perform(effect, engines)
        except EntryTooLarge:
            raise  # the store is well
        except StoreError as error:
            self._store_failed(error, writes_for)
            raise
        except Exception as error:
            if not isinstance(effect, FindExact | Search | PublishEntry | Touch):
                raise
            self._store_failed(error, writes_for)
            raise StoreError(f"{type(error).__name__}: {error}") from error

    def embed(self, text: str) -> Embedding | Reason:
        """The text's embedding, or why there is none."""
        encoder = self.encoder
        if encoder is None:
            return Reason.NO_ENCODER
        try:
            if not encoder.fits_window(text):
                return Reason.BEYOND_WINDOW
            vector = to_bytes(encoder.encode([text])[0])
            if to_vector(vector, encoder.dimension) is None:
                raise EncoderError(f"not a finite vector of length 1 with {encoder.dimension} dimensions")
            return Embedding(vector, encoder.fingerprint)
        except (ModelError, ConfigError, MissingExtra) as error:
            if self._needs_encoder:
                raise  # it was asked for by name and was never there: that is for whoever set this up
            self._warn("there is no encoder, so that questions are only matched exactly", error)
            return Reason.NO_ENCODER
        except Exception as error:
            self._warn("questions cannot be embedded and are only matched exactly", error)
            return Reason.ENCODER_FAILED

    def close(self) -> None:
        close_index = getattr(self._index, "close", None)
        if close_index is not None:
            close_index()
        self.store.close()

    def _store_failed(self, error: Exception, writes_for: str | None) -> None:
        if writes_for is not None:
            self._failed_s[writes_for] = self._clock()
        self._warn("the cache's store cannot be used; requests go on uncached", error)

    def _rests(self, tenant: str) -> bool:
        since_s = self._failed_s.get(tenant)
        if since_s is not None and 0 <= self._clock() - since_s < _REST_S:
            return True
        self._failed_s.pop(tenant, None)
        return False

    def _warn(self, what: str, error: Exception) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s: %s", what, error if isinstance(error, CacheStackError) else repr(error))

    def _purge_when_due(self) -> None:
        """Of all tenants: one that fails must not make this one's answer look lost."""
        now_s = self._clock()
        if not 0 <= now_s - self._purged_s < _PURGE_EVERY_S:
            self._purged_s = now_s
            try:
                self.store.purge(now_s)
            except Exception as error:
                self._warn("expired entries cannot be removed", error)

    def _search(self, effect: Search) -> list[Candidate] | Reason:
        if self._index is None:
            return []
        try:
            return self._index.search(
                effect.partition, effect.contract.digest, effect.vector, effect.encoder, effect.num_candidates
            )
        except StoreError:
            raise
        except Exception as error:
            self._warn("the index cannot be searched; questions are only matched exactly", error)
            return Reason.INDEX_FAILED

    def _perform(self, effect: Effect, engines: Mapping[str, Engine]) -> Any:
        match effect:
            case FindExact(partition, exact):
                return self.store.find_exact(partition, exact)
            case Embed(text):
                return self.embed(text)
            case Search():
                return self._search(effect)
            case Prepare(engine, request):
                token_engine = engines[engine]
                assert is_token_engine(token_engine), "only token engines prepare prompts"
                return token_engine.prepare(request)
            case PublishEntry(entry, max_bytes):
                kept = self.store.put(entry, max_bytes)
                self._purge_when_due()
                return kept
            case Touch(partition, entry_id):
                return self.store.touch(partition, entry_id, self._clock())
            case Generate():
                raise AssertionError("Generate is performed by the driver")
            case _:
                assert_never(effect)


def _writes_for(effect: Effect) -> str | None:
    """The tenant whose entries the effect would change."""
    match effect:
        case PublishEntry(entry, _):
            return entry.partition.tenant
        case Touch(partition, _):
            return partition.tenant
        case _:
            return None
