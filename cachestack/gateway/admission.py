"""Who may begin, and what is charged for what an engine did."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cachestack.access import Lease, Limiter, Principal
from cachestack.decisions import Reason, Response
from cachestack.requests import Request, Usage
from cachestack.stack import CacheStack
from cachestack.tally import model_of
from cachestack.tracing import TraceBuilder

log = logging.getLogger("cachestack.gateway")
_MAX_WARNINGS = 1000
_CHARS_PER_TOKEN = 4


class Admission:
    """The limits of each tenant's policy, for requests through this gateway."""

    def __init__(self, stack: CacheStack, limiter: Limiter | None = None) -> None:
        self._stack = stack
        self._limiter = limiter or Limiter()
        self._without_price: set[tuple[str, str]] = set()

    def admit(self, principal: Principal) -> Lease:
        """Ends with its `with` block. Raises LimitExceeded and UnknownTenant; nothing has been done then."""
        return self._limiter.admit(principal, self._stack.policies.policy(principal.tenant))

    @contextmanager
    def refresh(self, request: Request) -> Iterator[Callable[[Response], None]]:
        """As `admit`, for an answer that is made in the background. What it takes is charged to whoever was served the
        old one."""
        principal = Principal(request.tenant, request.user, request.role, request.epoch)
        with self.admit(principal) as lease:
            yield lambda response: self.charge(lease, principal, response)

    def charge(self, lease: Lease, principal: Principal, response: Response) -> None:
        """What comes from the cache, or from a call that another request pays for, costs nothing."""
        trace = response.trace
        if trace.served_from != "engine" or any(step.reason is Reason.SHARED for step in trace.steps):
            return
        self.charge_usage(lease, principal, model_of(trace), response.usage)

    def charge_usage(self, lease: Lease, principal: Principal, model: str, usage: Usage) -> None:
        policy = self._stack.policies.policy(principal.tenant)
        found = policy.prices.price_of(model)
        if found is None and policy.limits.has_spend_limit:
            self._warn(principal.tenant, model)
        self._limiter.charge(lease, usage, None if found is None else found[0].cost(usage))

    def _warn(self, tenant: str, model: str) -> None:
        if (tenant, model) not in self._without_price and len(self._without_price) < _MAX_WARNINGS:
            self._without_price.add((tenant, model))
            log.warning("tenant %s has a limit of spend, and there is no price of %s: it is not counted", tenant, model)


@dataclass(slots=True)
class Bill:
    """What one request is charged. `num_chars`: of the text that was passed on and is not charged yet."""

    admission: Admission
    lease: Lease
    principal: Principal
    request: Request
    trace: TraceBuilder
    num_chars: int = 0

    def charge(self, response: Response) -> None:
        self.num_chars = 0
        self.admission.charge(self.lease, self.principal, response)

    def close(self) -> None:
        """A stream that was left or broke before it said what it used: it is charged by the length of its texts."""
        if not self.num_chars:
            return
        trace = self.trace.trace()
        if trace.served_from == "engine":
            asked = sum(len(message.content) for message in self.request.messages)
            prompt, answer = (math.ceil(count / _CHARS_PER_TOKEN) for count in (asked, self.num_chars))
            self.admission.charge_usage(self.lease, self.principal, model_of(trace), Usage(prompt, 0, answer))
