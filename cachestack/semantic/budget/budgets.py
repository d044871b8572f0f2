"""All tenants' budgets at run time: what a look-up may do, what is noted of it, audits, reports.

Nothing here is waited for by a request: notes are taken in memory, and comparing, auditing and writing is done by two
threads in the background.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cachestack.decisions import Detail
from cachestack.effects import Consult, NoteMissed, NoteServed
from cachestack.engines.base import Engine
from cachestack.errors import CacheStackError
from cachestack.keys import Partition, digest
from cachestack.policy import Policy
from cachestack.requests import Generation, Request
from cachestack.semantic.background import Background
from cachestack.semantic.budget import machine
from cachestack.semantic.budget.auditing import probability
from cachestack.semantic.budget.curve import GRID
from cachestack.semantic.budget.keeper import Keeper, ServedHit
from cachestack.semantic.budget.pairs import Pair
from cachestack.semantic.budget.report import ClassReport, report_of
from cachestack.semantic.budget.state import ClassState, Mode, Why
from cachestack.semantic.budget.tenant import TenantBudget
from cachestack.semantic.budget.terms import Terms

log = logging.getLogger("cachestack")
OTHER = "other"
CLASSES = ("en", "fr", OTHER)
"""The partition classes of a tenant: the guarded languages, and the rest together."""
MAX_WAITING = 256
"""So many answers wait to be compared at most; more are not."""
_HOUR_S, _DAY_S = 3600.0, 86_400.0

Compare = Callable[[str, str, str], bool | None]
"""Two answers and their question: whether they say the same; None where that can't be told."""
Ask = Callable[[Request, Policy, Mapping[str, Engine]], tuple[Generation, float] | None]
"""A request asked afresh of its engine, nothing read from the cache nor kept, and what it cost."""


class Worker(Protocol):
    """What works in the background: see Background."""

    def submit(self, key: Hashable, job: Callable[[Callable[[], bool]], None]) -> bool: ...

    def wait(self, timeout_s: float | None = None) -> bool: ...

    def close(self) -> None: ...


class AtOnce:
    """Does the work in the caller's thread, for replays."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error

    def submit(self, key: Hashable, job: Callable[[Callable[[], bool]], None]) -> bool:
        job(lambda: False)
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        return True

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Change:
    """A state or a threshold that changed, for the log and for who observes."""

    tenant: str
    of_class: str
    before: ClassState
    after: ClassState

    @property
    def detail(self) -> Detail:
        told = {name: [getattr(self.before, name), getattr(self.after, name)] for name in ("mode", "threshold")}
        return {"tenant": self.tenant, "class": self.of_class, "why": self.after.why.value} | told


def class_of(language: str | None) -> str:
    return language if language in CLASSES else OTHER


def same_when_normalised(x: str, y: str, question: str) -> bool | None:
    """Equal but for letter case and white space; whether other words say the same can't be told. For budgets outside a
    stack: a stack sets `compare` to what its `same_answer` says without a judge."""
    return True if " ".join(x.casefold().split()) == " ".join(y.casefold().split()) else None


class Budgets:
    """`folder`: where they are kept; None keeps them in memory. `ask` and `compare` may be set before the first
    request; without `ask` nothing is audited."""

    def __init__(
        self,
        folder: Path | None,
        clock: Callable[[], float],
        *,
        draw: Callable[[], float] | None = None,
        compare: Compare = same_when_normalised,
        ask: Ask | None = None,
        background: Callable[[Callable[[Exception], None]], Worker] = Background,
        is_logged: bool = True,
    ) -> None:
        self.compare, self.ask = compare, ask
        self._is_logged = is_logged
        self._folder, self._clock = folder, clock
        self._draw = draw or random.SystemRandom().random
        self._lock = threading.Lock()  # guards the three below
        self._tenants: dict[str, TenantBudget] = {}
        self._audits: dict[str, deque[tuple[float, int, float]]] = {}  # by tenant: when, whether begun, what it cost
        self._underway: dict[tuple[str, str], list[float]] = {}  # by pair: chances of the hits that share an audit
        self._number = 0
        self._writer = background(self._failed)
        self._worker = background(self._failed)
        self._waiting = 0
        self._observers: list[Callable[[Change], None]] = []

    # What the performer asks

    def consult(self, effect: Consult) -> Terms:
        """Fails closed: where the budget cannot be read, nothing is served by meaning."""
        try:
            budget = self._of(effect.partition.tenant)
            budget.refresh()
            state = self._followed(budget, class_of(effect.language), effect.policy, effect.encoder)
            denied, right = budget.pairs.found(effect.exact)
            serves = state.mode is not Mode.SUSPENDED
            due = budget.due(effect.exact) - right
            return Terms(state.mode, state.threshold if serves else None, denied, right, due, budget.trusted_from_s)
        except Exception as error:
            self._failed(error)
            return Terms(Mode.SUSPENDED, None)

    def served(self, effect: NoteServed, engines: Mapping[str, Engine]) -> None:
        try:
            self._note_served(effect, engines)
        except Exception as error:
            self._failed(error)

    def missed(self, effect: NoteMissed) -> None:
        try:
            with self._lock:
                if self._waiting >= MAX_WAITING:
                    return
                self._waiting += 1
                self._number += 1
                key = self._number
            self._worker.submit(key, lambda _: self._compare_missed(effect))
        except Exception as error:
            self._failed(error)

    # What people ask

    def report(
        self, tenant: str, hit_id: str, *, wrong: bool, policy: Policy, by: Mapping[str, Any] | None = None
    ) -> ServedHit | None:
        """What was served as `hit_id`, the request's id; None where that is not known, or is behind a wall that `by`
        (user, role, epoch; None: whoever) is not behind. A pair that was reported wrong is denied from now on, on disk
        too."""
        budget = self._of(tenant)
        budget.refresh()
        hit = budget.served(hit_id)
        if hit is None or (by is not None and not _is_behind(hit.partition, by)):
            return None
        if wrong:
            budget.add_pair(Pair(hit.exact, hit.entry_id, True, hit.until_s))
        self._count_report(budget, hit.of_class, wrong, policy)
        budget.flush()
        return hit

    def report_entry(self, tenant: str, *, language: str | None, wrong: bool, policy: Policy) -> None:
        """A report that names an entry only."""
        if policy.budget.is_on:
            budget = self._of(tenant)
            budget.refresh()
            self._count_report(budget, class_of(language), wrong, policy)
            budget.flush()

    def reports(self, policy_of: Callable[[str], Policy]) -> dict[str, dict[str, ClassReport]]:
        """By tenant and class, of the tenants that this process has met."""
        with self._lock:
            tenants = list(self._tenants.values())
        found: dict[str, dict[str, ClassReport]] = {}
        for budget in tenants:
            budget.refresh()
            try:
                policy = policy_of(budget.tenant).budget
            except CacheStackError:
                continue  # no tenant of these policies any more
            states = {name: s for name, s in budget.states().items() if s.mode is not Mode.OFF}
            if states and policy.is_on:
                found[budget.tenant] = {name: report_of(state, policy) for name, state in sorted(states.items())}
        return found

    def observe(self, observer: Callable[[Change], None]) -> None:
        self._observers.append(observer)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until nothing is left to compare, audit or write; False where that took too long."""
        return self._worker.wait(timeout_s) and self._writer.wait(timeout_s)

    def close(self) -> None:
        """What waits to be audited or compared is dropped; what was learnt is written."""
        self._worker.close()
        self._writer.close()
        with self._lock:
            tenants = list(self._tenants.values())
        for budget in tenants:
            budget.close()

    # Inside

    def _of(self, tenant: str) -> TenantBudget:
        with self._lock:
            found = self._tenants.get(tenant)
            if found is None:
                keeper = None if self._folder is None else Keeper(self._folder, tenant, self._clock)
                found = self._tenants[tenant] = TenantBudget(tenant, keeper, self._clock, self._changed)
            return found

    def _followed(self, budget: TenantBudget, of_class: str, policy: Policy, encoder: str) -> ClassState:
        """The class's state under the policy of the moment."""
        basis, lowest = basis_of(policy, encoder), lowest_level(policy)
        state = budget.state(of_class)
        why = Why.DAMAGED if budget.is_damaged else Why.BEGUN
        if machine.followed(state, policy.budget, basis, 0.0, lowest) is not state:
            now_s = self._clock()
            state = budget.step(of_class, lambda s: machine.followed(s, policy.budget, basis, now_s, lowest, why))
            self._write(budget)
        return state

    def _note_served(self, effect: NoteServed, engines: Mapping[str, Engine]) -> None:
        budget, of_class, policy = self._of(effect.partition.tenant), class_of(effect.language), effect.policy.budget
        entry = effect.entry
        until_s = max(entry.expires_at_s, entry.stale_until_s)
        budget.note_served(
            ServedHit(effect.request_id, effect.exact, entry.entry_id, of_class, until_s, _named(effect.partition))
        )
        verified = budget.pairs.verdict(effect.exact, entry.entry_id) is False
        times = budget.count_served(effect.exact, entry.entry_id)
        state = budget.state(of_class)
        chance = 0.0
        may_ask = self.ask is not None and not effect.request.only_if_cached  # there, nobody may be asked
        if not verified and may_ask and self._may_audit(effect.partition.tenant, effect.policy):
            chance = probability(times, state.hits + 1, state.audits, policy)
        watched = verified or chance > 0
        drawn = chance > 0 and self._draw() < chance
        budget.step(of_class, lambda s: machine.served(s, verified=verified, watched=watched))
        if drawn:
            self._begin_audit(effect, chance, engines)
        elif watched:
            budget.step(of_class, lambda s: machine.valued(s, 0.0))
        self._write(budget)

    def _begin_audit(self, effect: NoteServed, chance: float, engines: Mapping[str, Engine]) -> None:
        """Where this pair is being audited already, that audit speaks for this hit too."""
        key = (effect.exact, effect.entry.entry_id)
        with self._lock:
            if key in self._underway:
                self._underway[key].append(chance)
                return
            self._underway[key] = []
            self._audits.setdefault(effect.partition.tenant, deque()).append((self._clock(), 1, 0.0))
        self._worker.submit(("audit", key), lambda _: self._audit(effect, chance, engines))

    def _audit(self, effect: NoteServed, chance: float, engines: Mapping[str, Engine]) -> None:
        key, tenant = (effect.exact, effect.entry.entry_id), effect.partition.tenant
        wrong: bool | None = None
        try:
            assert self.ask is not None, "an audit asks"
            fresh = self.ask(effect.request, effect.policy, engines)
            if fresh is not None:
                with self._lock:
                    self._audits.setdefault(tenant, deque()).append((self._clock(), 0, fresh[1]))
                wrong = self._differ(effect.entry.answer, fresh[0].text, effect.request.question)
        except Exception as error:
            self._failed(error)
        finally:
            with self._lock:
                shared = self._underway.pop(key, [])
        budget, now_s, policy = self._of(tenant), self._clock(), effect.policy.budget
        if wrong is not None:
            self._add_pair(budget, effect.exact, effect.entry, wrong)
        step = partial(machine.audited, score=effect.score, wrong=wrong, probability=chance, policy=policy, now_s=now_s)
        budget.step(class_of(effect.language), step)
        for other in shared:
            budget.step(class_of(effect.language), partial(machine.valued, value=1 / other if wrong else 0.0))
        self._write(budget)

    def _compare_missed(self, effect: NoteMissed) -> None:
        with self._lock:
            self._waiting -= 1
        wrong = self._differ(effect.entry.answer, effect.answer, effect.request.question)
        budget, now_s = self._of(effect.partition.tenant), self._clock()
        if wrong and effect.would_serve:
            self._add_pair(budget, effect.exact, effect.entry, True)
        step = partial(
            machine.compared,
            score=effect.score,
            wrong=wrong,
            policy=effect.policy.budget,
            now_s=now_s,
            would_serve=effect.would_serve,
        )
        budget.step(class_of(effect.language), step)
        self._write(budget)

    def _differ(self, kept: str, fresh: str, question: str) -> bool | None:
        """A comparison that fails can't tell."""
        try:
            same = self.compare(kept, fresh, question)
        except Exception as error:
            self._failed(error)
            return None
        return None if same is None else not same

    def _add_pair(self, budget: TenantBudget, exact: str, entry: Any, wrong: bool) -> None:
        budget.add_pair(Pair(exact, entry.entry_id, wrong, max(entry.expires_at_s, entry.stale_until_s)))

    def _count_report(self, budget: TenantBudget, of_class: str, wrong: bool, policy: Policy) -> None:
        now_s = self._clock()
        budget.step(of_class, lambda s: machine.reported(s, wrong, policy.budget, now_s))

    def _may_audit(self, tenant: str, policy: Policy) -> bool:
        """Whether the tenant's limits leave room."""
        with self._lock:
            done = self._audits.setdefault(tenant, deque())
            now_s = self._clock()
            while done and now_s - done[0][0] > _DAY_S:
                done.popleft()
            in_hour = sum(begun for at_s, begun, _ in done if now_s - at_s <= _HOUR_S)
            limit = policy.budget.audit_spend_per_day
            spent = sum(cost for _, _, cost in done)
        return in_hour < policy.budget.max_audits_per_hour and (limit is None or spent < limit)

    def _write(self, budget: TenantBudget) -> None:
        if self._folder is not None:
            self._writer.submit(budget.tenant, lambda _: budget.flush())

    def _changed(self, tenant: str, of_class: str, before: ClassState, after: ClassState) -> None:
        change = Change(tenant, of_class, before, after)
        loud = after.mode is Mode.SUSPENDED or after.level > before.level
        log.log(
            (logging.WARNING if loud else logging.INFO) if self._is_logged else logging.DEBUG,
            "error budget of tenant %r, class %s: %s, threshold %s, was %s, threshold %s (%s)",
            tenant,
            of_class,
            after.mode.value,
            after.threshold,
            before.mode.value,
            before.threshold,
            after.why.value,
            extra={"cachestack_budget": dict(change.detail)},
        )
        for observer in self._observers:
            try:
                observer(change)
            except Exception as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        log.warning("the error budget met %r", error)


def basis_of(policy: Policy, encoder: str) -> str:
    """What labels depend on: they say nothing of another encoder, verifier or engine's policy."""
    semantic, budget = policy.semantic, policy.budget
    parts = (encoder, semantic.verifiers[:1], semantic.reject_below, semantic.sensitive, semantic.cross_language)
    return digest(b"budget", repr((*parts, budget.max_wrong_hit_rate, budget.audit_share)).encode())[:16]


def lowest_level(policy: Policy) -> int:
    """The loosest level at or above the policy's `doubt_score`."""
    return sum(threshold < policy.semantic.doubt_score for threshold in GRID)


def _is_behind(partition: Mapping[str, Any], by: Mapping[str, Any]) -> bool:
    return all(value is None or value == by.get(name) for name, value in partition.items())


def _named(partition: Partition) -> dict[str, Any]:
    return {"user": partition.user, "role": partition.role, "epoch": partition.epoch}
