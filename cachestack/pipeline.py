"""The order of the layers, written once, as a generator of effects.

::

    policy → semantic (exact, by meaning) → flight → prefix → decode → settle
                 │ hit                        │ same request     │ error → fallback: retry, other engine, stale, raise
                 │                            │ under way: share │
                 └──────────────→ replay ←────┴──────────────────┘

Nothing here does I/O: a driver (driver.py, adriver.py) performs each effect and resumes the generator with its result.
A driver that is done early closes the generator: leases end, nothing is published.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cachestack.asked_again import Read, Reading
from cachestack.attempts import Attempts
from cachestack.claiming import claimed
from cachestack.continuation import Interrupted
from cachestack.decisions import Bypass, Hit, Layer, Miss, Outcome, Reason, Response
from cachestack.effects import (
    AskFences,
    Effect,
    Follow,
    NoteMissed,
    NoteServed,
    Revalidate,
)
from cachestack.engines.base import Engine, is_token_engine
from cachestack.entries import Entry
from cachestack.errors import (
    NotCached,
    RequestError,
    StoreError,
)
from cachestack.flights import FlightKey, Flights, LookAgain
from cachestack.keys import contract_of
from cachestack.leases import Landed, Lease, Seat
from cachestack.policy import Policy
from cachestack.prefix.layer import PrefixLayer
from cachestack.requests import Request
from cachestack.semantic.admission.confirming import SameAnswer, same_text
from cachestack.semantic.admission.judging import Scope
from cachestack.semantic.budget.terms import score_of
from cachestack.semantic.freshness.life import life_of, max_served_age
from cachestack.semantic.language import identify
from cachestack.semantic.layer import Asked, bypass_reason, partition_of, semantic_lookup
from cachestack.semantic.scopes import find_live_exact, has_own_scope, is_alone, lookup_in_scopes, of_user
from cachestack.serving import replay, serve, share
from cachestack.settling import Admissions, Answer, settle
from cachestack.stores.base import Claim
from cachestack.tracing import TraceBuilder

Run = Generator[Effect, Any, Response]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What the order of the layers needs to know besides the request and its policy."""

    engines: Mapping[str, Engine]
    prefix: PrefixLayer
    encoder_languages: frozenset[str]
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: secrets.token_hex(12)
    flights: Flights | None = field(default_factory=Flights)
    """None: every request calls the engine by itself."""
    same_answer: SameAnswer = same_text
    """Whether two users were answered the same, where answers are to be confirmed."""

    def run(
        self,
        request: Request,
        policy: Policy,
        primary: Engine,
        trace: TraceBuilder,
        reading: Reading | None = None,
        *,
        refreshing: bool = False,
    ) -> Run:
        """One request through all layers. Returns the Response; raises what the engine raised.

        `trace` is the caller's, so that it can be read after a failure too. `reading` is the caller's where it asks
        the same Request again. `refreshing`: a stale answer is being served meanwhile, and only a new one will do.
        """
        asked_at_s = self.clock()
        since = 0 if self.flights is None else self.flights.moment
        request, asked, bypass = self._read(request, policy, primary, reading)
        trace.add(Layer.POLICY, Outcome.DONE, Reason.POLICY_RESOLVED, {"model": request.model})
        looked_up: Miss | Bypass
        if asked is None:
            looked_up = Bypass(bypass or Reason.DISABLED)
        elif not request.lookup:
            looked_up = Bypass(Reason.NO_LOOKUP)
        else:
            found: Hit[Entry] | Miss | Bypass
            try:
                lookup = lookup_in_scopes if has_own_scope(request, policy) else semantic_lookup
                found = yield from lookup(asked, policy, self.encoder_languages, asked_at_s, refreshing=refreshing)
            except StoreError as error:
                found = Bypass(Reason.STORE_UNAVAILABLE, {"error": str(error)})
            if isinstance(found, Hit):
                if found.reason is Reason.STALE:
                    yield Revalidate(request, primary, self._flight_key(asked, policy, asked_at_s))
                response = yield from serve(found, trace, policy.retention.sliding_s, asked_at_s)
                if "budget" in found.detail:
                    yield _noted(asked, policy, found, trace.request_id)
                return response
            looked_up = found
        place: Lease | Seat | None = None
        if asked is not None and isinstance(looked_up, Miss) and request.store and not request.only_if_cached:
            got = yield from self._place(asked, policy, trace.request_id, asked_at_s, since)
            if isinstance(got, Hit):
                return (yield from serve(got, trace, policy.retention.sliding_s, asked_at_s))
            place = got
        try:
            return (yield from self._called(request, policy, primary, trace, asked, asked_at_s, looked_up, place))
        finally:
            if place is not None:
                place.end()

    def _place(
        self, asked: Asked, policy: Policy, request_id: str, asked_at_s: float, since: int
    ) -> Generator[Effect, Any, Lease | Seat | Hit[Entry] | None]:
        """This request's place among those that are the same and under way. A Hit: one of them has just ended."""
        if self.flights is None:
            return None
        key = self._flight_key(asked, policy, asked_at_s)
        has_own = has_own_scope(asked.request, policy)
        while True:
            place = self.flights.join(key, request_id, asked_at_s=asked_at_s, since=since)
            if isinstance(place, Seat) and (yield from _is_void(place, asked.partition.tenant)):
                self.flights.detach(asked.partition.tenant)
                continue
            if place is not LookAgain:
                assert not isinstance(place, type)
                return place
            since = self.flights.moment
            try:
                hit = yield from find_live_exact(asked, policy, self.clock(), own_too=has_own)
            except StoreError:
                hit = None
            if hit is not None:
                return hit

    def _flight_key(self, asked: Asked, policy: Policy, asked_at_s: float) -> FlightKey:
        """ "Tomorrow" is not the same question on two days, nor "my order" from two users."""
        request, life = asked.request, life_of(asked.request, policy, asked_at_s)
        max_age_s = max_served_age(request, policy)
        user = request.user if life.own_state else None
        flown = of_user(asked) if has_own_scope(request, policy) and is_alone(request, policy) else asked
        return FlightKey(flown.partition, flown.exact, request.dialect, max_age_s, policy, life.until_s, user)

    def _called(
        self,
        request: Request,
        policy: Policy,
        primary: Engine,
        trace: TraceBuilder,
        asked: Asked | None,
        asked_at_s: float,
        looked_up: Miss | Bypass,
        place: Lease | Seat | None,
    ) -> Run:
        """Nothing cached serves it: the engine is called, or another request's call shared."""
        outcome = Outcome.MISS if isinstance(looked_up, Miss) else Outcome.BYPASS
        trace.add(Layer.SEMANTIC, outcome, looked_up.reason, looked_up.detail)
        if request.only_if_cached:
            trace.add(Layer.DECODE, Outcome.BYPASS, Reason.NOT_CACHED)
            raise NotCached("nothing cached serves this request, and it forbids calling the model")
        lease = place
        if isinstance(place, Seat):
            landed: Landed | Lease = yield Follow(place)
            if isinstance(landed, Landed):
                return share(landed, trace)
            lease = landed
        assert not isinstance(lease, Seat)
        claim: Claim | None = None
        if lease is not None and asked is not None and _may_wait(request, policy, asked_at_s):
            got = yield from claimed(asked, policy, self.clock)
            if isinstance(got, Hit):
                return (yield from serve(got, trace, policy.retention.sliding_s, asked_at_s))
            claim = got
        is_kept = False
        try:
            made = self._made(request, policy, primary, trace, asked, asked_at_s, looked_up, lease, claim)
            response = yield from made
            is_kept = response.trace.served_from == "engine" and _is_kept_for_all(response)
            return response
        finally:
            if claim is not None:
                claim.end(is_kept=is_kept)

    def _made(
        self,
        request: Request,
        policy: Policy,
        primary: Engine,
        trace: TraceBuilder,
        asked: Asked | None,
        asked_at_s: float,
        looked_up: Miss | Bypass,
        lease: Lease | None,
        claim: Claim | None,
    ) -> Run:
        """The engine's answer, settled."""
        has_stale = isinstance(looked_up, Miss) and looked_up.has_stale
        new_id = self.new_id()
        admissions = Admissions(request, policy)
        if lease is not None:
            lease.entry_id = new_id
            is_kept = asked is not None and life_of(request, policy, asked_at_s).is_kept(asked_at_s)
            lease.admits = lambda made: is_kept and admissions.is_for_all(made)
        try:
            attempts = Attempts(self.engines, self.prefix, self.clock)
            answer = yield from attempts.answer(request, policy, primary, trace, asked if has_stale else None, lease)
        except Interrupted:
            raise  # this request's alone: who follows has passed on something else, or nothing
        except Exception as error:
            if lease is not None:
                lease.fail(error)
            raise
        if isinstance(answer, Entry):
            if lease is not None:
                lease.land(answer)
            return replay(answer, trace)
        entry_id = yield from settle(
            new_id,
            asked,
            asked_at_s,
            looked_up,
            policy,
            self.encoder_languages,
            answer,
            trace,
            admissions,
            self.same_answer,
            keep_newer=claim is not None,
        )
        made = answer.generation
        best = looked_up.best if isinstance(looked_up, Miss) else None
        if best is not None and policy.budget.is_on and asked is not None and is_whole(answer):
            yield NoteMissed(
                request,
                asked.partition,
                asked.exact,
                best.entry,
                best.score,
                best.would_serve,
                made.text,
                identify(request.question),
                policy,
            )
        return Response(made.text, trace.trace(), made.usage, made.finish_reason, entry_id, made.body, made.is_text)

    def _read(self, request: Request, policy: Policy, primary: Engine, reading: Reading | None) -> Read:
        """The request completed, and as the semantic layer sees it, or why it does not."""
        if reading is not None and (found := reading.found(request, policy, primary)) is not None:
            return found
        whole = completed(request, policy, primary)
        found = (whole, *self._asked(whole, policy))
        if reading is not None:
            reading.keep(request, policy, primary, found)
        return found

    def _asked(self, request: Request, policy: Policy) -> tuple[Asked | None, Reason | None]:
        reason = bypass_reason(request, policy.semantic)
        if reason is not None:
            return None, reason
        try:
            contract = contract_of(request, request.model)
        except (TypeError, ValueError):
            return None, Reason.UNCACHEABLE_ARGUMENT
        return Asked(request, contract, partition_of(request, policy.semantic)), None


def _may_wait(request: Request, policy: Policy, asked_at_s: float) -> bool:
    """Whether what another process is making may serve this request; else both would wait for nothing."""
    is_own = is_alone(request, policy) or life_of(request, policy, asked_at_s).own_state
    return not is_own and max_served_age(request, policy) > 0


def _is_kept_for_all(response: Response) -> bool:
    step = response.trace.step(Layer.SETTLE)
    return response.hit_id is not None and step is not None and step.detail.get("scope") != Scope.USER.value


def _noted(asked: Asked, policy: Policy, found: Hit[Entry], request_id: str) -> NoteServed:
    request, score = asked.request, score_of(found.detail)
    language = identify(request.question)
    return NoteServed(request_id, request, asked.partition, asked.exact, found.value, score, language, policy)


def is_whole(answer: Answer) -> bool:
    """Whether another answer may be compared with it."""
    made = answer.generation
    return answer.is_own and made.is_text and made.finish_reason == "stop" and bool(made.text.strip())


def _is_void(seat: Seat, tenant: str) -> Generator[Effect, Any, bool]:
    """Whether another process has invalidated what is being made; then the seat is given up."""
    is_void: bool = True
    try:
        is_void = yield AskFences(tenant, seat.begun_at_s)
        return is_void
    finally:
        if is_void:
            seat.end()


def completed(request: Request, policy: Policy, engine: Engine) -> Request:
    """The request with what it left open filled in. Raises RequestError for what the in-process engine cannot do."""
    if not request.model:
        request = replace(request, model=engine.model)
    if not is_token_engine(engine):
        return request
    sampling = request.sampling
    for name, given in (
        ("n > 1", sampling.n > 1),
        ("tools", request.tools),
        ("response_format", request.response_format),
    ):
        if given:
            raise RequestError(f"the in-process engine does not support {name}; leave it out, or use another engine")
    if sampling.max_new_tokens is None:
        sampling = replace(sampling, max_new_tokens=policy.decode.max_new_tokens)
    return replace(request, sampling=sampling)
