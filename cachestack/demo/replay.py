"""Replays the demonstration's trace twice, side by side: through CacheStack, and straight to the same engine."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from cachestack.decisions import Layer, Outcome, Response
from cachestack.demo.trace import Ask, Batch, DemoTrace
from cachestack.engines.base import TokenEngine, exhaust
from cachestack.requests import Generation, Message, Request, Sampling

if TYPE_CHECKING:
    from cachestack.stack import CacheStack


class DemoClock:
    """The time of day, plus what the trace skips."""

    def __init__(self) -> None:
        self._skipped_s = 0.0

    def __call__(self) -> float:
        return time.time() + self._skipped_s

    def advance(self, seconds: float) -> None:
        self._skipped_s += seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One step. `plain` is the run without CacheStack. `num_calls` counts what would each have been a model call.

    `problem` says what went wrong: a wrong hit, a cached text that differs, an expectation that was not met.
    """

    number: int
    tenant: str
    asked: str
    shows: str
    served_from: str
    reason: str
    prompt_tokens: int
    prefilled_tokens: int
    plain_prefilled_tokens: int
    seconds: float
    plain_seconds: float
    num_calls: int
    num_plain_calls: int
    reused_tokens: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class DemoReport:
    """All rows, and what they add up to."""

    rows: tuple[Row, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(f"step {row.number}: {row.problem}" for row in self.rows if row.problem)

    def by_kind(self) -> dict[str, dict[str, Any]]:
        """For each way in which single requests were answered: how many, and median seconds with and without."""
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            if row.num_calls <= 1:
                kind = row.served_from if not row.num_calls else "prefix reused" if row.reused_tokens else "all new"
                groups[kind].append(row)
        return {
            kind: {
                "requests": len(rows),
                "median_seconds": median(row.seconds for row in rows),
                "median_seconds_without": median(row.plain_seconds for row in rows),
            }
            for kind, rows in groups.items()
        }

    def total(self, field: str) -> Any:
        return sum(getattr(row, field) for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """The summary and the rows, for JSON."""
        served = [row.served_from for row in self.rows]
        return {
            "requests": len(self.rows),
            "served": {kind: served.count(kind) for kind in sorted(set(served))},
            "model_calls": self.total("num_calls"),
            "model_calls_without": self.total("num_plain_calls"),
            "tokens_prefilled": self.total("prefilled_tokens"),
            "tokens_prefilled_without": self.total("plain_prefilled_tokens"),
            "tokens_reused": self.total("reused_tokens"),
            "seconds": round(self.total("seconds"), 2),
            "seconds_without": round(self.total("plain_seconds"), 2),
            "speedup": round(self.total("plain_seconds") / self.total("seconds"), 2),
            "by_kind": self.by_kind(),
            "problems": list(self.problems),
            "rows": [{name: getattr(row, name) for name in row.__slots__} for row in self.rows],
        }


def replay(
    stack: CacheStack,
    engine: TokenEngine,
    trace: DemoTrace,
    clock: DemoClock,
    on_row: Callable[[Row], None],
) -> DemoReport:
    """Run every step with and without CacheStack, in turns first, and check each against the trace."""
    run = _Replay(stack, engine, trace, clock)
    rows: list[Row] = []
    for number, step in enumerate(trace.steps, start=1):
        row = run.ask(number, step) if isinstance(step, Ask) else run.batch(number, step)
        rows.append(row)
        on_row(row)
    return DemoReport(tuple(rows))


class _Replay:
    def __init__(self, stack: CacheStack, engine: TokenEngine, trace: DemoTrace, clock: DemoClock) -> None:
        self._stack = stack
        self._engine = engine
        self._trace = trace
        self._clock = clock
        self._answer_of_entry: dict[str, str] = {}
        self._told: dict[str, list[Message]] = defaultdict(list)

    def ask(self, number: int, step: Ask) -> Row:
        self._clock.advance(step.advance_s)
        told = self._told[step.conversation] if step.conversation else []
        messages = (Message("system", self._trace.systems[step.system]), *told, Message("user", step.ask))
        policy = self._stack.policies.policy(step.tenant)
        sampling = Sampling(
            step.temperature, seed=step.seed, stop=self._trace.stop, max_new_tokens=policy.decode.max_new_tokens
        )
        request = Request(messages, step.tenant, sampling=sampling)
        if number % 2:
            plain, plain_s = _timed(lambda: self._plain(request))
            response, seconds = _timed(lambda: self._stack.chat(request))
        else:
            response, seconds = _timed(lambda: self._stack.chat(request))
            plain, plain_s = _timed(lambda: self._plain(request))
        told += [messages[-1], Message("assistant", response.text)]
        called = response.trace.served_from == "engine"
        usage = response.usage
        row = Row(
            number,
            step.tenant,
            step.ask,
            step.shows,
            response.trace.served_from,
            _reasons(response),
            usage.prompt_tokens,
            usage.prompt_tokens - usage.cached_tokens if called else 0,
            plain.usage.prompt_tokens,
            seconds,
            plain_s,
            int(called),
            1,
            usage.cached_tokens if called else 0,
        )
        return replace(row, problem=self._problem(step, response, plain, row))

    def batch(self, number: int, step: Batch) -> Row:
        report = self._stack.classify(
            step.items,
            labels=step.labels,
            prompt=step.prompt,
            template=step.template,
            tenant=step.tenant,
            baseline=True,
        )
        summary, num_items = report.summary, len(step.items)
        whole, reused = summary.prompt_tokens, summary.reused_tokens
        problem = None
        if summary.label_mismatches or summary.num_errors:
            problem = f"{summary.label_mismatches} labels differ, {summary.num_errors} items failed"
        return Row(
            number,
            step.tenant,
            f"{num_items} tickets, {len(step.labels)} labels",
            step.shows,
            "engine",
            f"packed on a prefix of {summary.prefix_tokens} tokens",
            whole,
            whole - reused,
            whole,
            summary.seconds,
            summary.baseline_s or 0.0,
            num_items,
            num_items,
            reused,
            problem,
        )

    def _plain(self, request: Request) -> Generation:
        """The same engine without any layer before it: the whole prompt in one pass."""
        stream = self._engine.stream_tokens(request, self._engine.prepare(request), (), ())
        return exhaust(stream).generation

    def _problem(self, step: Ask, response: Response, plain: Generation, row: Row) -> str | None:
        hit, entry_id = row.served_from != "engine", response.hit_id
        if hit:
            about = self._answer_of_entry.get(entry_id or "", "an unknown entry")
            if about != step.answer:
                return f"wrong hit: served the answer about {about!r} for {step.answer!r}"
        elif entry_id is not None:
            self._answer_of_entry[entry_id] = step.answer
        if step.expect is not None and row.served_from != step.expect:
            return f"expected to be served from {step.expect}, was {row.served_from}"
        if step.prefix == "reused" and not row.reused_tokens and not hit:
            return "expected to reuse a prefix"
        if step.prefix == "cold" and row.reused_tokens:
            return "reused a prefix that it must not see"
        greedy = not step.temperature
        if greedy and row.served_from != "semantic" and response.text != plain.text:
            return f"text differs: {response.text!r} with, {plain.text!r} without CacheStack"
        return None


def _reasons(response: Response) -> str:
    reasons = []
    for layer in (Layer.SEMANTIC, Layer.PREFIX):
        step = response.trace.step(layer)
        if step is not None:
            reasons.append(step.reason.value)
            if step.outcome is Outcome.HIT and layer is Layer.SEMANTIC:
                break
    return ", ".join(reasons)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = call()
    return result, time.perf_counter() - begin
