"""CacheStack, the library's front door: the pipeline with a store, an index, an encoder and engines behind it."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cachestack.asking import Prompt, as_request
from cachestack.comparing import Comparison, compare_requests
from cachestack.decisions import Response
from cachestack.driver import Drive, Stream, drive
from cachestack.engines.base import Engine, exhaust
from cachestack.entries import Selector
from cachestack.errors import ConfigError, UsageError
from cachestack.explaining import Explanation, explain_run
from cachestack.identity import Identities
from cachestack.in_process import InProcess
from cachestack.performer import Performer
from cachestack.pipeline import PRIMARY, Pipeline, Run, completed
from cachestack.policy import Policy
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.rows import LogitRows
from cachestack.requests import Request
from cachestack.score import TextScoring
from cachestack.semantic.base import Encoder, Index, StatesPacker
from cachestack.semantic.encoder_change import EncoderChange
from cachestack.semantic.verifiers.known import shelf_of
from cachestack.semantic.verifiers.packing import languages_served
from cachestack.snapshot import Snapshot
from cachestack.stats import Stats
from cachestack.stores.base import EntryStore
from cachestack.tracing import TraceBuilder
from cachestack.wrap import Wrapper


class CacheStack(InProcess):
    """One stack serves all tenants, from any number of threads. Close it, or use it as a context manager.

    `engines` by name; the first is used unless a request names another. Where the encoder can't be had,
    `needs_encoder` raises that at the first question; else questions are matched exactly only, with one warning.
    `CacheStack.local()` builds a stack with the embedded default models.
    """

    def __init__(
        self,
        *,
        engines: Mapping[str, Engine],
        store: EntryStore,
        index: Index | None,
        encoder: Encoder | None,
        prefix: PrefixLayer,
        rows: LogitRows | None = None,
        policies: PolicySet | None = None,
        stats: Stats | None = None,
        needs_encoder: bool = True,
        packer: StatesPacker | None = None,
        change: EncoderChange | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policies = policies or PolicySet.load()
        self._engines = dict(engines)
        self._clock = clock
        self._prefix = prefix
        self._scoring = TextScoring(prefix, rows)
        self._stats = stats or Stats()
        self.identities = Identities()
        self.performer = Performer(
            store,
            index,
            encoder,
            clock,
            needs_encoder=needs_encoder,
            packer=packer,
            change=change,
            verifiers=shelf_of(self._engines),
        )
        self._finalizer = weakref.finalize(self, _close, self._stats, self.performer)  # at the interpreter's end, too
        self._pipeline = Pipeline(self._engines, prefix, languages_served(encoder), clock=clock)

    @classmethod
    def local(
        cls,
        *,
        model: str | None = None,
        encoder: str | None = None,
        policies: str | Path | PolicySet | None = None,
        home: str | Path | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> CacheStack:
        """A stack with the in-process engine.

        `model` and `encoder`: a catalogue name, a Hugging Face id or a local folder; the defaults are the embedded
        models. `encoder="none"` matches exactly only. `home` holds entries and statistics (default: CACHESTACK_HOME).
        Models are loaded at the first request that needs them.
        """
        from cachestack.build import build_local

        return build_local(cls, model=model, encoder=encoder, policies=policies, home=home, device=device, dtype=dtype)

    @classmethod
    def without_engine(
        cls,
        *,
        encoder: str | None = None,
        policies: str | Path | PolicySet | None = None,
        home: str | Path | None = None,
    ) -> CacheStack:
        """A stack for wrapping your own calls: no language model of its own."""
        from cachestack.build import build_without_engine

        return build_without_engine(cls, encoder=encoder, policies=policies, home=home)

    # Asking

    def chat(self, prompt: Prompt | Request, *, engine: str | None = None, **options: Any) -> Response:
        """Answer one request: from the cache, or by the engine.

        `prompt`: text, messages, a StructuredPrompt, or a Request. `options` are those of
        `cachestack.asking.build_request`: tenant, user, role, system, temperature, top_p, seed, stop, max_new_tokens,
        tools, response_format, extra, tags, version, ttl_s, stable_messages, store, lookup; none beside a Request,
        which says them itself. Raises RequestError for a bad request, UnknownTenant, and what the engine raised when
        the policy's fallback chain ends.
        """
        return self.respond(as_request(prompt, **options), self._engine(engine))

    def stream(self, prompt: Prompt | Request, *, engine: str | None = None, **options: Any) -> Stream:
        """As `chat`, in chunks as they are made; a hit is streamed too."""
        return Stream(self._start(as_request(prompt, **options), self._engine(engine)))

    def wrap(
        self,
        *,
        tenant: str | Callable[..., str],
        model: str,
        version: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Wrapper:
        """A decorator for any function `prompt → text`, sync or async.

        Its contract is `model`, `name`, `version`, and all the function's other arguments. Without `name` it is the
        function's own, with a digest of its code and of the plain values that it closes over. Raise `version` when
        something else changes that it depends on. `tenant` may be a function of the call's arguments. `options` as in
        `chat` (system, user, role, tags, ttl_s, …). The wrapped function has `.respond(...)`, which gives the whole
        Response.
        """
        return Wrapper(self, tenant=tenant, model=model, version=version, name=name, options=options)

    # Inspecting

    def explain(self, prompt: Prompt | Request, *, engine: str | None = None, **options: Any) -> Explanation:
        """What would happen, without doing it: no engine call, nothing stored, nothing counted."""
        request, chosen = as_request(prompt, **options), self._engine(engine)
        self._check_open()
        trace = TraceBuilder("explain", request.tenant)
        run = self._pipeline.run(request, self.policies.policy(request.tenant), chosen, trace)
        return explain_run(run, trace, self.performer, {**self._engines, PRIMARY: chosen})

    def compare(self, cached: Prompt | Request, new: Prompt | Request, **options: Any) -> Comparison:
        """Would the answer to `cached` serve `new`, and why. `options` apply to whichever is not a Request."""
        self._check_open()
        pair = [p if isinstance(p, Request) else as_request(p, **options) for p in (cached, new)]
        if self._engines:
            pair = [completed(r, self.policies.policy(r.tenant), self._engine(None)) for r in pair]
        return compare_requests(pair[0], pair[1], self.policies.policy, self.performer, self._clock())

    def stats(self) -> Snapshot:
        """Statistics of all tenants, earlier runs on the same home included."""
        change = self.performer.change
        moving = change is not None and change.progress().num_partitions > 0
        progress = change.progress() if change is not None and moving else None
        return replace(self._stats.snapshot(), reembedding=progress, index=self.performer.index_counts())

    def report_wrong(self, hit_id: str, *, tenant: str) -> bool:
        """Report that the answer `hit_id` (`Response.hit_id`) was wrong: its entry is removed and the report counted.

        Returns whether there was such an entry of this tenant; if not, nothing is counted.
        """
        removed = self.invalidate(tenant=tenant, entry=hit_id)
        if removed:
            self._stats.count(tenant, wrong_hit_reports=1)
        return removed > 0

    def invalidate(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        tag: str | None = None,
        version: str | None = None,
        older_than: float | timedelta | datetime | None = None,
        entry: str | None = None,
    ) -> int:
        """Remove entries for which all given conditions hold, in all processes; returns how many went.

        `older_than`: an age in seconds, a timedelta, or a moment. With `tenant` alone its KV prefixes go as well; with
        `user`, beside a tenant or alone, the KV that only this user's requests had. KV goes in this process only.
        """
        self._check_open()
        if all(given is None for given in (tenant, user, tag, version, older_than, entry)):
            raise UsageError("invalidate needs a condition: tenant, user, tag, version, older_than or entry")
        conditions = Selector(tenant, user, tag, version, _before(older_than, self._clock()), entry)
        if conditions == Selector(tenant=tenant, user=user):
            self._prefix.invalidate(tenant, user=user)
            self._scoring.invalidate(tenant, user)
        return self.performer.store.invalidate(conditions)

    # Life

    def close(self) -> None:
        """Write what is pending. A closed stack takes no more requests; those that are under way end, uncached."""
        self._finalizer()

    def __enter__(self) -> CacheStack:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For drivers (this module, aio.py, wrap.py)

    def respond(self, request: Request, engine: Engine) -> Response:
        """Run one request to its end."""
        run, engines = self.open_run(request, engine)
        return exhaust(drive(run, self.performer, engines, streams=False))

    def open_run(self, request: Request, engine: Engine) -> tuple[Run, Mapping[str, Engine]]:
        """A run, counted however it ends, and the engines that its effects name. Raises UnknownTenant."""
        self._check_open()
        policy = self.policies.policy(request.tenant)
        return self._counted(request, policy, engine), {**self._engines, PRIMARY: engine}

    def _start(self, request: Request, engine: Engine) -> Drive:
        run, engines = self.open_run(request, engine)
        return drive(run, self.performer, engines)

    def _counted(self, request: Request, policy: Policy, engine: Engine) -> Run:
        trace = TraceBuilder(self._pipeline.new_id(), request.tenant)
        try:
            response = yield from self._pipeline.run(request, policy, engine, trace)
        except BaseException as error:
            self._stats.count_failure(request.tenant, trace.trace(), cancelled=not isinstance(error, Exception))
            raise
        self._stats.count_answer(request.tenant, response, policy.prices)
        return response

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise UsageError("this stack was closed; build another one")

    def _engine(self, name: str | None) -> Engine:
        if not self._engines:
            raise ConfigError("this stack has no engine of its own; wrap your function with stack.wrap(...)")
        if name is None:
            return next(iter(self._engines.values()))
        if name not in self._engines:
            raise UsageError(f"no engine is named {name!r}; there are: {', '.join(self._engines)}")
        return self._engines[name]


def _close(stats: Stats, performer: Performer) -> None:
    try:
        stats.close()
    finally:
        performer.close()


def _before(older_than: float | timedelta | datetime | None, now_s: float) -> float | None:
    match older_than:
        case None:
            return None
        case datetime():
            return older_than.timestamp()
        case timedelta():
            age_s = older_than.total_seconds()
        case _:
            age_s = older_than
    if not (math.isfinite(age_s) and age_s >= 0):
        raise UsageError(f"older_than must be an age of 0 or more, not {older_than}")
    return now_s - age_s
