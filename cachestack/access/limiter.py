"""The policy's limits: who may begin now, and what it cost those who did.

Counts are this process's own and go with it. Several processes behind one address each give the whole limit.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from cachestack.access.principal import Principal
from cachestack.access.sliding import SlidingSum
from cachestack.errors import LimitExceeded
from cachestack.policy import Policy
from cachestack.requests import Usage

MINUTE_S, DAY_S = 60.0, 86_400.0
_NANO = 1_000_000_000  # money is counted in whole billionths: sums of floats drift
_BUSY_RETRY_S = 1.0
Account = tuple[str, bool, str | None]
"""Tenant, whether it is one user's, and which; requests without a user are one user's."""


@dataclass(frozen=True, slots=True)
class _Limits:
    requests: int | None
    tokens: int | None
    spend: int | None
    concurrent: int | None
    prefix: str = ""

    @property
    def is_none(self) -> bool:
        return (self.requests, self.tokens, self.spend, self.concurrent) == (None, None, None, None)


@dataclass(slots=True)
class _Meter:
    requests: SlidingSum = field(default_factory=lambda: SlidingSum(MINUTE_S, 60))
    tokens: SlidingSum = field(default_factory=lambda: SlidingSum(MINUTE_S, 60))
    spend: SlidingSum = field(default_factory=lambda: SlidingSum(DAY_S, 96))
    num_active: int = 0
    held_tokens: int = 0
    held_spend: int = 0

    def is_idle(self, now_s: float) -> bool:
        return not self.num_active and not any(s.total(now_s) for s in (self.requests, self.tokens, self.spend))


class Lease:
    """Leave to work on one request. Give it back with `release` (twice is no harm) or use it in a `with` statement."""

    __slots__ = ("_limiter", "accounts", "held_spend", "held_tokens", "is_open")

    def __init__(self, limiter: Limiter, accounts: tuple[Account, ...], held_tokens: int, held_spend: int) -> None:
        self._limiter = limiter
        self.accounts = accounts
        self.held_tokens = held_tokens
        self.held_spend = held_spend
        self.is_open = True

    def release(self) -> None:
        self._limiter.release(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Limiter:
    """Counts for all tenants of this process. Safe under threads; `clock` only moves forward."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._meters: OrderedDict[Account, _Meter] = OrderedDict()
        self._now_s = -math.inf
        self._unlimited: Policy | None = None  # the last one met that limits nobody

    def admit(
        self, principal: Principal, policy: Policy, *, reserve_tokens: int = 0, reserve_cost: float = 0.0
    ) -> Lease:
        """Leave for one request, which counts from now on. Raises LimitExceeded, and then nothing is counted.

        What it will use is not known yet. With what it can use at most as `reserve_tokens` and `reserve_cost`, that
        much is held back until the lease ends, and the limit holds in every window. Without, a request may begin as
        long as the limit is not reached, and those under way then may go beyond it by what they use.
        """
        if policy is self._unlimited:
            return Lease(self, (), 0, 0)
        asked = _asked(principal, policy)
        if not asked:
            self._unlimited = policy
            return Lease(self, (), 0, 0)
        tokens, spend = max(0, reserve_tokens), _nano(reserve_cost)
        with self._lock:
            now_s = self._time()
            self._forget_idle(now_s)
            meters = [(self._meters.get(account) or _Meter(), limits) for account, limits in asked]
            reached = [r for meter, limits in meters for r in _reached(meter, limits, tokens, spend, now_s)]
            if reached:
                wait_s, key, limit = max(reached)
                raise LimitExceeded(
                    f"the limit {key} of tenant {principal.tenant!r} ({limit}) is reached; try again in {wait_s:.0f} s",
                    retry_after_s=wait_s,
                    limit=key,
                )
            for (account, _), (meter, _) in zip(asked, meters, strict=True):
                self._meters[account] = meter
                self._meters.move_to_end(account)
                meter.requests.add(1, now_s)
                meter.num_active += 1
                meter.held_tokens += tokens
                meter.held_spend += spend
        return Lease(self, tuple(account for account, _ in asked), tokens, spend)

    def charge(self, lease: Lease, usage: Usage | None, cost: float | None = None) -> None:
        """Count what an engine used for this request, each time that one was called; also after the lease's end.

        None, or not calling it at all, for what came from the cache: it counts as a request only. `cost` in the
        currency of the policy's prices.
        """
        tokens, spend = (usage.total_tokens if usage is not None else 0), _nano(cost or 0.0)
        with self._lock:
            now_s = self._time()
            freed_tokens, freed_spend = min(lease.held_tokens, tokens), min(lease.held_spend, spend)
            lease.held_tokens -= freed_tokens
            lease.held_spend -= freed_spend
            for account in lease.accounts:
                meter = self._meters.setdefault(account, _Meter())
                meter.held_tokens -= freed_tokens
                meter.held_spend -= freed_spend
                if tokens:
                    meter.tokens.add(tokens, now_s)
                if spend:
                    meter.spend.add(spend, now_s)

    def release(self, lease: Lease) -> None:
        """The request has ended, however it did."""
        if not lease.accounts:
            return
        with self._lock:
            if not lease.is_open:
                return
            lease.is_open = False
            for account in lease.accounts:
                meter = self._meters[account]
                meter.num_active -= 1
                meter.held_tokens -= lease.held_tokens
                meter.held_spend -= lease.held_spend
            lease.held_tokens = lease.held_spend = 0

    def _time(self) -> float:
        self._now_s = max(self._now_s, self._clock())
        return self._now_s

    def _forget_idle(self, now_s: float) -> None:
        """Each request looks at the two accounts that were unused longest, so that they do not pile up."""
        for _ in range(min(2, len(self._meters))):
            account, meter = next(iter(self._meters.items()))
            if meter.is_idle(now_s):
                del self._meters[account]
            else:
                self._meters.move_to_end(account)


def _asked(principal: Principal, policy: Policy) -> list[tuple[Account, _Limits]]:
    """The accounts that a request counts for, where they have a limit at all."""
    p = policy.limits
    whole = _Limits(p.requests_per_minute, p.tokens_per_minute, _money(p.spend_per_day), p.max_concurrent)
    user = _Limits(
        p.user_requests_per_minute,
        p.user_tokens_per_minute,
        _money(p.user_spend_per_day),
        p.user_max_concurrent,
        "user_",
    )
    both: list[tuple[Account, _Limits]] = [
        ((principal.tenant, False, None), whole),
        ((principal.tenant, True, principal.user), user),
    ]
    return [(account, limits) for account, limits in both if not limits.is_none]


def _reached(meter: _Meter, limits: _Limits, tokens: int, spend: int, now_s: float) -> list[tuple[float, str, str]]:
    """The limits that forbid this request: how long each will, its key, and its value."""
    found: list[tuple[float, str, str]] = []
    if limits.concurrent is not None and meter.num_active >= limits.concurrent:
        found.append((_BUSY_RETRY_S, f"{limits.prefix}max_concurrent", str(limits.concurrent)))
    windows = (
        (meter.requests, limits.requests, 1, 0, MINUTE_S, "requests_per_minute", 1),
        (meter.tokens, limits.tokens, tokens, meter.held_tokens, MINUTE_S, "tokens_per_minute", 1),
        (meter.spend, limits.spend, spend, meter.held_spend, DAY_S, "spend_per_day", _NANO),
    )
    for used, limit, wanted, held, window_s, key, unit in windows:
        if limit is None:
            continue
        need = min(max(1, wanted), max(1, limit))  # what could never fit waits until nothing else is there
        if used.total(now_s) + held + need > limit:
            wait_s = used.seconds_until(limit - held - need, now_s)
            if wait_s is None:
                wait_s = window_s if limit == 0 else _BUSY_RETRY_S
            found.append((max(wait_s, 0.001), f"{limits.prefix}{key}", f"{limit / unit:g}"))
    return found


def _money(limit: float | None) -> int | None:
    return None if limit is None else math.floor(limit * _NANO)


def _nano(cost: float) -> int:
    if not (math.isfinite(cost) and cost >= 0):
        raise ValueError(f"a cost must be a finite number of 0 or more, not {cost}")
    return math.ceil(cost * _NANO)
