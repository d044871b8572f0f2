"""CacheStack, the library's front door: the pipeline with a store, an index, an encoder and engines behind it."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from cachestack.afresh import Afresh
from cachestack.answers.comparer import AnswerComparer
from cachestack.answers.sameness import Sameness
from cachestack.asked_again import Reading
from cachestack.asking import Prompt, as_request
from cachestack.attempts import PRIMARY
from cachestack.comparing import Comparison, compare_requests
from cachestack.decisions import Response
from cachestack.driver import Drive, Stream, drive
from cachestack.engines.base import Engine, exhaust
from cachestack.entries import Selector
from cachestack.errors import ConfigError, UsageError
from cachestack.explaining import Explanation, explain_run
from cachestack.flights import Flights
from cachestack.identity import Identities
from cachestack.in_process import InProcess
from cachestack.observers import Observer, Observers
from cachestack.opened import Opened
from cachestack.performer import Performer
from cachestack.pipeline import Pipeline, Run, completed
from cachestack.policy_set import PolicySet
from cachestack.policy_watch import PolicyWatch
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.rows import LogitRows
from cachestack.requests import Request
from cachestack.revalidating import Revalidations
from cachestack.runs import Runs
from cachestack.score import TextScoring
from cachestack.semantic.base import Encoder, Index, StatesPacker
from cachestack.semantic.budget.budgets import Budgets
from cachestack.semantic.encoder_change import EncoderChange
from cachestack.semantic.verifiers.known import shelf_of
from cachestack.semantic.verifiers.packing import languages_served
from cachestack.snapshot import Snapshot
from cachestack.stats import Stats
from cachestack.stores.base import EntryStore
from cachestack.tracing import TraceBuilder
from cachestack.wrap import Wrapper

if TYPE_CHECKING:
    from cachestack.clients.calling import Principal

C = TypeVar("C")
Refreshing = tuple[Run, Mapping[str, Engine]]
MAX_AT_ONCE_CHARS = 64 * 1024


class CacheStack(Opened, InProcess):
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
        policies: PolicySet | PolicyWatch | None = None,
        stats: Stats | None = None,
        needs_encoder: bool = True,
        packer: StatesPacker | None = None,
        change: EncoderChange | None = None,
        budgets: Budgets | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._policies = policies if isinstance(policies, PolicyWatch) else PolicyWatch(policies)
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
            budgets=Budgets(None, clock) if budgets is None else budgets,
        )
        self._observers = Observers()
        self._answers = AnswerComparer(_encoder_of(self.performer))  # which outlives the stack
        self._finalizer = weakref.finalize(self, _close, self._stats, self.performer)  # at the interpreter's end, too
        self._flights = Flights()
        self._pipeline = Pipeline(self._engines, prefix, languages_served(encoder), clock=clock, flights=self._flights)
        assert self.performer.budgets is not None, "a stack keeps budgets"
        self.budgets: Budgets = self.performer.budgets
        self.budgets.ask = Afresh(self._pipeline, self.performer, self._stats)
        self.budgets.compare = self._answers.is_same
        self._runs = Runs(self._pipeline, self._policies, self.performer, self._stats, self._observers, clock)
        self.revalidations = Revalidations(_refreshing(self._runs, self._engines), self.performer, _fates(self._stats))
        self.performer.revalidator = self.revalidations

    @property
    def policies(self) -> PolicySet:
        """The policies of the moment; a request keeps those that it began with."""
        return self._policies.current()

    @policies.setter
    def policies(self, policies: PolicySet) -> None:
        self._policies = self._runs.policies = PolicyWatch(policies)

    # Asking

    def chat(self, prompt: Prompt | Request, *, engine: str | None = None, **options: Any) -> Response:
        """Answer one request: from the cache, or by the engine.

        `prompt`: text, messages, a StructuredPrompt, or a Request. `options` are those of
        `cachestack.asking.build_request`: tenant, user, role, system, temperature, top_p, seed, stop, max_new_tokens,
        tools, response_format, extra, tags, version, ttl_s, stable_messages, store, lookup; none beside a Request,
        which says them itself. Raises RequestError for a bad request, UnknownTenant, and what the engine raised when
        the policy's fallback chain ends.
        """
        return self.respond(as_request(prompt, **options), self.engine(engine))

    def stream(self, prompt: Prompt | Request, *, engine: str | None = None, **options: Any) -> Stream:
        """As `chat`, in chunks as they are made; a hit is streamed too."""
        return Stream(self._start(as_request(prompt, **options), self.engine(engine)))

    def wrap(
        self,
        *,
        tenant: str | Callable[..., str],
        model: str,
        version: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Wrapper:
        """A decorator for any function `prompt → text`: plain, coroutine, generator or async generator.

        Its contract is `model`, `name`, `version`, and all the function's other arguments. Without `name` it is the
        function's own, with a digest of its code and of the plain values that it closes over. Raise `version` when
        something else changes that it depends on. `tenant` may be a function of the call's arguments. `options` as in
        `chat` (system, user, role, tags, ttl_s, …). The wrapped function is of the same kind; generators yield text,
        and what is left before its end is not kept. It has `.respond(...)`, which gives the whole Response, and
        `.stream(...)`, which gives it in chunks.
        """
        return Wrapper(self, tenant=tenant, model=model, version=version, name=name, options=options)

    def wrap_client(
        self,
        client: C,
        *,
        tenant: Principal,
        user: Principal = None,
        role: Principal = None,
        epoch: int = 0,
        version: str | None = None,
        tags: Sequence[str] = (),
        ttl_s: float | None = None,
        store: bool = True,
        lookup: bool = True,
        ignored_headers: Collection[str] = (),
        on_response: Callable[[Response], None] | None = None,
    ) -> C:
        """A copy of an `OpenAI`, `AsyncOpenAI`, `Anthropic` or `AsyncAnthropic` client that asks the cache first.

        `client` itself stays as it is. Chat completions, responses and messages go through the stack, streamed or not;
        a hit gives the client's own objects, and what is sent to the provider is what the client would have sent. All
        that is asked with counts in the contract, headers too, but for the text of the last message; `ignored_headers`
        are further ones that don't (each call's own id, say). `tenant`, `user` and `role`: names, or functions of the
        call's body. One call's wishes: `extra_body={"cachestack": {"tags": [...], "store": False}}`. `on_response` is
        given each Response, with its trace, when the answer is complete. Errors of CacheStack reach the caller as the
        client's own status errors.
        """
        from cachestack.clients.wrapping import wrap_client

        return wrap_client(
            self,
            client,
            tenant=tenant,
            user=user,
            role=role,
            epoch=epoch,
            options={"version": version, "tags": tags, "ttl_s": ttl_s, "store": store, "lookup": lookup},
            ignored_headers=ignored_headers,
            on_response=on_response,
        )

    # Inspecting

    def explain(self, prompt: Prompt | Request, *, engine: str | Engine | None = None, **options: Any) -> Explanation:
        """What would happen, without doing it: no engine call, nothing stored, nothing counted.

        `engine` by its name in the stack, or any other, which is not called.
        """
        request = as_request(prompt, **options)
        chosen = self.engine(engine) if engine is None or isinstance(engine, str) else engine
        self._check_open()
        trace = TraceBuilder("explain", request.tenant)
        run = replace(self._pipeline, flights=None).run(request, self.policies.policy(request.tenant), chosen, trace)
        return explain_run(run, trace, self.performer, {**self._engines, PRIMARY: chosen})

    def compare(self, cached: Prompt | Request, new: Prompt | Request, **options: Any) -> Comparison:
        """Would the answer to `cached` serve `new`, and why. `options` apply to whichever is not a Request."""
        self._check_open()
        pair = [p if isinstance(p, Request) else as_request(p, **options) for p in (cached, new)]
        policies = self.policies
        if self._engines:
            pair = [completed(r, policies.policy(r.tenant), self.engine(None)) for r in pair]
        return compare_requests(pair[0], pair[1], policies.policy, self.performer, self._clock())

    def same_answer(
        self, x: str, y: str, question: str | None = None, *, judge: str | Engine | None = None
    ) -> Sameness:
        """Whether two answers to `question` say the same: `.same` is True, False, or None where it can't be told.

        `judge`: an engine, or the name of one of the stack's, that is asked where the rest does not know; None: nobody
        is. It has 20 s; what goes wrong with it, or with the encoder, makes nothing the same. Nothing is stored or
        counted. See `cachestack.answers.compare`.
        """
        self._check_open()
        if not all(isinstance(text, str) for text in (x, y, question or "")):
            raise UsageError("same_answer compares two texts; give the answers' texts and, if known, the question's")
        return self._answers.compare(x, y, question, self.engine(judge) if isinstance(judge, str) else judge)

    def stats(self) -> Snapshot:
        """Statistics of all tenants, earlier runs on the same home included."""
        change = self.performer.change
        moving = change is not None and change.progress().num_partitions > 0
        progress = change.progress() if change is not None and moving else None
        return replace(
            self._stats.snapshot(),
            reembedding=progress,
            index=self.performer.index_counts(),
            policy=self._policies.state(),
            budgets=self.budgets.reports(self._runs.policies.current().policy),
        )

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Have `observer` called with each request that has ended, however it did; returns what ends that.

        It is called in the request's own thread, so that it should be quick. One that raises is logged once.
        """
        return self._observers.add(observer)

    def report_wrong(self, hit_id: str, *, tenant: str, remove: bool = False) -> bool:
        """Report that an answer was wrong. `hit_id`: the request's id (`Response.trace.request_id`) of a hit by meaning
        under an error budget, or an entry's (`Response.hit_id`).

        By the request's id, that question never gets that entry again; with `remove` the entry goes as well. By the
        entry's id it always goes. Returns whether there was such a hit or entry of this tenant; if not, nothing is
        counted.
        """
        self._check_open()
        hit = self.budgets.report(tenant, hit_id, wrong=True, policy=self.policies.policy(tenant))
        if hit is not None:
            if remove:
                self.invalidate(tenant=tenant, entry=hit.entry_id)
            self._stats.count(tenant, wrong_hit_reports=1)
            return True
        removed = self.invalidate(tenant=tenant, entry=hit_id)
        if removed:
            self._stats.count(tenant, wrong_hit_reports=1)
        return removed > 0

    def report_hit(self, hit_id: str, *, tenant: str, wrong: bool, by: Mapping[str, Any] | None = None) -> bool:
        """As `report_wrong` and `report_right`, by the request's id alone: no entry goes. `by`: the `user`, `role` and
        `epoch` of who reports, where hits behind other walls are not to be reported; None: whoever it is."""
        self._check_open()
        hit = self.budgets.report(tenant, hit_id, wrong=wrong, policy=self.policies.policy(tenant), by=by)
        if hit is not None:
            self._stats.count(tenant, **{"wrong_hit_reports" if wrong else "right_hit_reports": 1})
        return hit is not None

    def report_right(self, hit_id: str, *, tenant: str) -> bool:
        """Report that the hit by meaning `hit_id` (`Response.trace.request_id`) was right: it is counted, and loosens
        nothing. Returns whether there was such a hit of this tenant."""
        return self.report_hit(hit_id, tenant=tenant, wrong=False)

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
        try:
            return self.performer.store.invalidate(conditions)
        finally:  # who asks from now on does not share what was asked before
            self._flights.detach(tenant)

    # Life

    def close(self) -> None:
        """Write what is pending. A closed stack takes no more requests; those that are under way end, uncached."""
        self.revalidations.close()
        try:
            self._finalizer()
        finally:
            self._observers.close()  # not the finalizer's: an observer may hold the stack

    def __enter__(self) -> CacheStack:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For drivers (this module, aio.py, wrap.py)

    def answers_at_once(self, request: Request) -> bool:
        """Whether a hit for it may be found without waiting, in so little time that an event loop may do it itself."""
        return self.performer.answers_at_once and sum(len(m.content) for m in request.messages) <= MAX_AT_ONCE_CHARS

    def respond(self, request: Request, engine: Engine) -> Response:
        """Run one request to its end."""
        run, engines = self.open_run(request, engine)
        return exhaust(drive(run, self.performer, engines, streams=False))

    def open_run(
        self,
        request: Request,
        engine: Engine,
        trace: TraceBuilder | None = None,
        reading: Reading | None = None,
        *,
        counts_not_cached: bool = True,
    ) -> tuple[Run, Mapping[str, Engine]]:
        """A run, counted however it ends, and the engines that its effects name. Raises UnknownTenant.

        `trace`: the caller's own, to be read while the run goes on and after it has failed. `reading`: kept by the
        caller beside a request that it will ask again. Without `counts_not_cached` one that ends with NotCached is not
        counted: the answer will be brought later.
        """
        self._check_open()
        run = self._runs.open(request, engine, trace, reading, counts_not_cached=counts_not_cached)
        return run, {**self._engines, PRIMARY: engine}

    def again(
        self, request: Request, engine: Engine, trace: TraceBuilder, reading: Reading, moment: object = None
    ) -> Response | None:
        """The answer to a request that was read before, where it is an exact hit that needs no waiting; counted.

        None: nothing was done; `open_run` is the way. What it gives is what that would, in a tenth of the time.
        Requests that were there before the first call with one `moment` may have the store's state as of that call.
        """
        self._check_open()
        return self._runs.again(request, engine, trace, reading, moment)

    def _start(self, request: Request, engine: Engine) -> Drive:
        run, engines = self.open_run(request, engine)
        return drive(run, self.performer, engines)

    @property
    def engine_names(self) -> tuple[str, ...]:
        """In order: the first is used unless a request names another."""
        return tuple(self._engines)

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise UsageError("this stack was closed; build another one")

    def engine(self, name: str | None = None) -> Engine:
        """An engine by the name it was given to the stack; the first without one."""
        if not self._engines:
            raise ConfigError("this stack has no engine of its own; wrap your function with stack.wrap(...)")
        if name is None:
            return next(iter(self._engines.values()))
        if name not in self._engines:
            raise UsageError(f"no engine is named {name!r}; there are: {', '.join(self._engines)}")
        return self._engines[name]


def _refreshing(runs: Runs, engines: Mapping[str, Engine]) -> Callable[[Request, Engine], Refreshing]:
    """Without the stack, which may go while one is under way."""
    return lambda request, engine: (runs.refresh(request, engine), {**engines, PRIMARY: engine})


def _fates(stats: Stats) -> Callable[[str, str], None]:
    return lambda tenant, fate: stats.count(tenant, **{f"revalidations__{fate}": 1})


def _encoder_of(performer: Performer) -> Callable[[], Encoder | None]:
    return lambda: performer.encoder


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
