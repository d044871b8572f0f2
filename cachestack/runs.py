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
from cachestack.semantic.layer import max_served_age
from cachestack.stats import Stats
from cachestack.tracing import TraceBuilder


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

    def again(self, request: Request, engine: Engine, trace: TraceBuilder, reading: Reading) -> Response | None:
        """As `CacheStack.again`."""
        policy = self.policies.current().policy(request.tenant)
        known = reading.may_hit(request, policy, engine)
        if known is None or self._stats.is_due:
            return None
        request, asked = known
        now_s = self._clock()
        entry = self._performer.find_exact_at_once(asked.partition, asked.exact)
        if not isinstance(entry, Entry) or not entry.is_live(now_s, max_served_age(request, policy)):
            return None
        if not self._performer.touch_at_once(asked.partition, entry.entry_id):
            return None
        response = reading.served(entry, request.model, trace, now_s)
        self._stats.count_answer(request.tenant, response, policy.prices)
        self._tell(request, response.trace, response, None)
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
