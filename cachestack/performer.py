"""Performs the pipeline's effects, except `Generate` and `Follow`, which each driver performs in its own way."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, assert_never, cast

from cachestack.decisions import Reason
from cachestack.effects import (
    AskFences,
    ClaimQuestion,
    Consult,
    Effect,
    Embed,
    Embedding,
    EmbedFormer,
    FindExact,
    Follow,
    Generate,
    NoteMissed,
    NoteServed,
    Pause,
    Prepare,
    Prolong,
    PublishEntry,
    Revalidate,
    Search,
    Touch,
    Verify,
    WriteStats,
)
from cachestack.engines.base import Engine, is_token_engine
from cachestack.entries import Candidate, Entry
from cachestack.errors import (
    CacheStackError,
    ConfigError,
    EntryTooLarge,
    MissingExtra,
    ModelError,
    StoreError,
)
from cachestack.keys import Partition
from cachestack.semantic.base import Encoder, Index, StatesPacker
from cachestack.semantic.budget.budgets import Budgets
from cachestack.semantic.encoder_change import EncoderChange
from cachestack.semantic.index_counts import IndexCounts
from cachestack.semantic.question_encoder import QuestionEncoder
from cachestack.semantic.verifiers.base import Agreement
from cachestack.semantic.verifiers.known import shelf_of
from cachestack.semantic.verifiers.packing import StatesOf
from cachestack.semantic.verifiers.shelf import VerifierShelf
from cachestack.stores.base import NOT_NOW, AtOnce, Claiming, EntryStore, NotNow

log = logging.getLogger("cachestack")
_PURGE_EVERY_S = 600.0
_REST_S = 10.0
"""How long nothing is written for a tenant after a write has failed: it may have failed after seconds of waiting for a
lock, and the next request must not wait as long."""


class Revalidator(Protocol):
    """Makes new answers in the background: in a thread, or in a task of the running loop. Neither waits or raises."""

    def in_thread(self, effect: Revalidate) -> None: ...

    def in_task(self, effect: Revalidate) -> None: ...


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
        packer: StatesPacker | None = None,
        change: EncoderChange | None = None,
        verifiers: VerifierShelf | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        self.budgets = budgets
        self._needs_encoder = needs_encoder
        self.packer = StatesOf(encoder) if packer is None and encoder is not None else packer
        self._verifiers = shelf_of() if verifiers is None else verifiers
        self.change = change
        self._revalidator: Callable[[], Revalidator | None] = lambda: None
        self._former: QuestionEncoder | None = None
        self._has_embedded = False
        self.store = store
        self._at_once = cast(AtOnce, store) if hasattr(store, "find_exact_at_once") else None
        self._claiming = cast(Claiming, store) if hasattr(store, "claim") else None
        self.encoder = encoder  # sets `_questions`
        self._index = index
        self._clock = clock
        self._warned: set[str] = set()
        self._purged_s = clock()
        self._failed_s: dict[str, float] = {}  # by tenant: when its last write failed

    @property
    def encoder(self) -> Encoder | None:
        return self._encoder

    @encoder.setter
    def encoder(self, encoder: Encoder | None) -> None:
        self._encoder = encoder
        self._questions = None if encoder is None else QuestionEncoder(encoder, self.packer)

    @property
    def revalidator(self) -> Revalidator | None:
        """Without one, stale answers are served and no new ones made. It is not kept alive: it belongs to the stack."""
        return self._revalidator()

    @revalidator.setter
    def revalidator(self, revalidator: Revalidator) -> None:
        self._revalidator = weakref.ref(revalidator)

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
            if not isinstance(effect, FindExact | Search | ClaimQuestion | PublishEntry | Touch | Prolong):
                raise
            self._store_failed(error, writes_for)
            raise StoreError(f"{type(error).__name__}: {error}") from error

    def at_once(self, effect: Effect) -> Any:
        """As `perform`, or NOT_NOW where that might wait for a file, a lock or a model: then nothing was done."""
        if isinstance(effect, FindExact):
            return self.find_exact_at_once(effect.partition, effect.exact)
        if isinstance(effect, Touch) and self.touch_at_once(effect.partition, effect.entry_id):
            return None
        return NOT_NOW

    def find_exact_at_once(self, partition: Partition, exact: str, moment: object = None) -> Entry | NotNow | None:
        if self._at_once is None:
            return NOT_NOW
        try:
            return self._at_once.find_exact_at_once(partition, exact, moment)
        except Exception:  # `perform` tries it, and tells
            return NOT_NOW

    def touch_at_once(self, partition: Partition, entry_id: str) -> bool:
        """False: nothing was noted."""
        may_move = self._has_embedded and self.change is not None and self.change.may_move(partition)
        if self._at_once is None or may_move or self._rests(partition.tenant):
            return False
        try:
            return self._at_once.touch_at_once(partition, entry_id, self._clock())
        except Exception:
            return False

    @property
    def answers_at_once(self) -> bool:
        """Whether it can do anything without waiting."""
        return self._at_once is not None

    def embed(self, text: str, wait_s: float | None = None) -> Embedding | Reason:
        """The text's embedding, or why there is none. Without `wait_s` it takes as long as it takes."""
        if self._questions is None:
            return Reason.NO_ENCODER
        try:
            made = self._questions.embed(text, wait_s)
            if isinstance(made, Embedding):
                self._has_embedded = True
                if self.change is not None and self.change.has_former:
                    made = replace(made, has_former=True)
            elif made is Reason.ENCODER_TIMEOUT:
                self._warn("the encoder takes longer than a request may wait; such questions are only matched exactly")
            return made
        except (ModelError, ConfigError, MissingExtra) as error:
            if self._needs_encoder:
                raise  # it was asked for by name and was never there: that is for whoever set this up
            self._warn("there is no encoder, so that questions are only matched exactly", error)
            return Reason.NO_ENCODER
        except Exception as error:
            self._warn("questions cannot be embedded and are only matched exactly", error)
            return Reason.ENCODER_FAILED

    def verify(self, effect: Verify) -> Agreement:
        """What a verifier that takes time says of a pair."""
        return self._verifiers.perform(effect)

    def index_counts(self) -> IndexCounts | None:
        """None where there is no index, or one that does not count."""
        counts = getattr(self._index, "counts", None)
        return None if counts is None else counts()

    def close(self) -> None:
        if self.budgets is not None:
            self.budgets.close()
        for questions in (self._questions, self._former):
            if questions is not None:
                questions.close()
        if self.change is not None:
            self.change.close()
        close_index = getattr(self._index, "close", None)
        if close_index is not None:
            close_index()
        self.store.close()

    def _embed_as_before(self, text: str, partition: Partition, wait_s: float | None) -> Embedding | None:
        """By the encoder before the one in use. It is a help for a while: that it fails costs hits only."""
        try:
            encoder = None if self.change is None else self.change.former(partition)
            if encoder is None:
                return None
            if self._former is None:
                self._former = QuestionEncoder(encoder, self.packer)
            made = self._former.embed(text, wait_s)
            return made if isinstance(made, Embedding) else None
        except Exception as error:
            self._warn("the encoder before cannot be used; its entries are only matched exactly for now", error)
            return None

    def _move(self, partition: Partition) -> None:
        """Have the entries of an encoder before encoded anew. Only where the encoder is in use anyhow: an exact hit
        loads no model."""
        if self.change is not None and self._has_embedded:
            self.change.move(partition)

    def _store_failed(self, error: Exception, writes_for: str | None) -> None:
        if writes_for is not None:
            self._failed_s[writes_for] = self._clock()
        self._warn("the cache's store cannot be used; requests go on uncached", error)

    def _rests(self, tenant: str) -> bool:
        if not self._failed_s:
            return False
        since_s = self._failed_s.get(tenant)
        if since_s is not None and 0 <= self._clock() - since_s < _REST_S:
            return True
        self._failed_s.pop(tenant, None)
        return False

    def _warn(self, what: str, error: Exception | None = None) -> None:
        if what not in self._warned:
            self._warned.add(what)
            why = "" if error is None else f": {error if isinstance(error, CacheStackError) else repr(error)}"
            log.warning("%s%s", what, why)

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
        if effect.partition.user is not None and self._was_never_written(effect.partition):
            return []  # most users have nothing of their own: the index makes no group for each
        try:
            return self._index.search(
                effect.partition, effect.contract.group, effect.vector, effect.encoder, effect.num_candidates
            )
        except StoreError:
            raise
        except Exception as error:
            self._warn("the index cannot be searched; questions are only matched exactly", error)
            return Reason.INDEX_FAILED

    def _was_never_written(self, partition: Partition) -> bool:
        """It counts from where a partition counts that nobody writes to."""
        return self.store.latest(partition) == self.store.latest(replace(partition, area="nothing"))

    def _is_fenced(self, tenant: str, since_s: float) -> bool:
        """A store that cannot tell is like one where nothing was invalidated: its entries could not be found either."""
        has_fence = getattr(self.store, "has_fence_since", None)
        try:
            return has_fence is not None and bool(has_fence(tenant, since_s))
        except Exception as error:
            self._warn("invalidations by other processes cannot be read", error)
            return False

    def _perform(self, effect: Effect, engines: Mapping[str, Engine]) -> Any:
        match effect:
            case FindExact(partition, exact):
                return self.store.find_exact(partition, exact)
            case Embed(text, wait_s):
                return self.embed(text, wait_s)
            case EmbedFormer(text, partition, wait_s):
                return self._embed_as_before(text, partition, wait_s)
            case Search():
                return self._search(effect)
            case Verify():
                return self.verify(effect)
            case Consult():
                return None if self.budgets is None else self.budgets.consult(effect)
            case NoteServed():
                return None if self.budgets is None else self.budgets.served(effect, engines)
            case NoteMissed():
                return None if self.budgets is None else self.budgets.missed(effect)
            case Prepare(engine, request):
                token_engine = engines[engine]
                assert is_token_engine(token_engine), "only token engines prepare prompts"
                return token_engine.prepare(request)
            case AskFences(tenant, since_s):
                return self._is_fenced(tenant, since_s)
            case ClaimQuestion(partition, exact):
                return None if self._claiming is None else self._claiming.claim(partition, exact)
            case Pause(seconds):
                time.sleep(seconds)
                return None
            case PublishEntry(entry, max_bytes, keep_newer):
                self._move(entry.partition)
                kept = self.store.put(entry, max_bytes, keep_newer=keep_newer)
                self._purge_when_due()
                return kept
            case Touch(partition, entry_id):
                self._move(partition)
                return self.store.touch(partition, entry_id, self._clock())
            case WriteStats(write):
                return write()
            case Prolong(entry, sliding_s):
                return self.store.prolong(entry.partition, entry.entry_id, self._clock(), sliding_s)
            case Revalidate():
                revalidator = self.revalidator
                return None if revalidator is None else revalidator.in_thread(effect)
            case Generate() | Follow():
                raise AssertionError("the driver performs what waits for an engine")
            case _:
                assert_never(effect)


def _writes_for(effect: Effect) -> str | None:
    """The tenant whose entries the effect would change."""
    match effect:
        case PublishEntry(entry):
            return entry.partition.tenant
        case Touch(partition, _):
            return partition.tenant
        case Prolong(entry, _):
            return entry.partition.tenant
        case _:
            return None
