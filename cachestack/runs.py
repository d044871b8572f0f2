"""Runs of one stack's pipeline: each under the policy of the moment, counted and told of however it ends."""

from __future__ import annotations

import functools
from collections.abc import Callable

from cachestack.asked_again import Reading
from cachestack.decisions import Response, Trace
from cachestack.effects import WriteStats
from cachestack.engines.base import Engine
from cachestack.entries import Entry
from cachestack.errors import NotCached
from cachestack.observers import Ended, Observers
from cachestack.performer import Performer
from cachestack.pipeline import Pipeline, Run
from cachestack.policy import Policy
from cachestack.policy_watch import PolicyWatch
from cachestack.requests import Request
from cachestack.semantic.freshness.life import max_served_age, serves
from cachestack.stats import Stats
from cachestack.tally import sums_of_answer, sums_of_trace, sums_of_work
from cachestack.tracing import TraceBuilder

_TOUCH_EVERY_S = 0.25
"""Of uses that come faster than this, one is noted: only the order of eviction depends on them."""


class Runs:
    """`policies` may be replaced; a run keeps the policy that it began with."""

    def __init__(
        self,
        pipeline: Pipeline,
        policies: PolicyWatch,
        performer: Performer,
        stats: Stats,
        observers: Observers,
        clock: Callable[[], float],
    ) -> None:
        self.policies = policies
        self._pipeline = pipeline
        self._performer = performer
        self._stats = stats
        self._observers = observers
        self._clock = clock

    def open(
        self,
        request: Request,
        engine: Engine,
        trace: TraceBuilder | None = None,
        reading: Reading | None = None,
        *,
        counts_not_cached: bool = True,
    ) -> Run:
        """As `CacheStack.open_run`."""
        policy = self.policies.current().policy(request.tenant)
        trace = trace or TraceBuilder(self._pipeline.new_id(), request.tenant)
        return self._counted(request, policy, engine, trace, reading, counts_not_cached)

    def again(
        self, request: Request, engine: Engine, trace: TraceBuilder, reading: Reading, moment: object = None
    ) -> Response | None:
        """As `CacheStack.again`."""
        policy = self.policies.current().policy(request.tenant)
        known = reading.may_hit(request, policy, engine)
        if known is None or self._stats.is_due:
            return None
        whole, asked = known
        now_s = self._clock()
        entry = self._performer.find_exact_at_once(asked.partition, asked.exact, moment)
        if not isinstance(entry, Entry) or policy.retention.sliding_s is not None:
            return None
        if not serves(entry, whole, policy, now_s, max_served_age(whole, policy)):
            return None
        served = reading.served(entry, whole.model)
        if not 0 <= now_s - served.touched_s < _TOUCH_EVERY_S:
            if not self._performer.touch_at_once(asked.partition, entry.entry_id):
                return None
            served.touched_s = now_s
        response = served.response(trace, now_s)
        self._stats.count_hit(request.tenant, served.kind(policy.prices), response.trace.seconds)
        self._tell(request, response.trace, response, None)
        return response

    def refresh(self, request: Request, engine: Engine) -> Run:
        """A run that makes a new answer while a stale one is served. What it takes is counted; a request it is not."""
        policy = self.policies.current().policy(request.tenant)
        trace = TraceBuilder(self._pipeline.new_id(), request.tenant)
        try:
            response = yield from self._pipeline.run(request, policy, engine, trace, refreshing=True)
        except BaseException:
            self._stats.count_work(request.tenant, sums_of_work(sums_of_trace(trace.trace())))
            raise
        sums = sums_of_answer(response.trace, response.usage, policy.prices)
        self._stats.count_work(request.tenant, sums_of_work(sums))
        return response

    def _counted(
        self,
        request: Request,
        policy: Policy,
        engine: Engine,
        trace: TraceBuilder,
        reading: Reading | None,
        counts_not_cached: bool,
    ) -> Run:
        try:
            response = yield from self._pipeline.run(request, policy, engine, trace, reading)
        except BaseException as error:
            ended = trace.trace()
            if counts_not_cached or not isinstance(error, NotCached):
                self._stats.count_failure(request.tenant, ended, cancelled=not isinstance(error, Exception))
                self._tell(request, ended, None, error)
            raise
        is_due = self._stats.count_answer(request.tenant, response, policy.prices)
        self._tell(request, response.trace, response, None)
        if is_due:
            yield WriteStats(functools.partial(self._stats.flush, wait=False))
        return response

    def _tell(self, request: Request, trace: Trace, response: Response | None, error: BaseException | None) -> None:
        if self._observers:
            self._observers.tell(Ended(request, trace, response, error, self._clock()))
