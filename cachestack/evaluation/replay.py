"""A request log asked again, in order: what a semantic cache would have answered.

Each request goes through the pipeline that `chat` runs, over a store in memory; only the engine is none: it answers at
once. Texts are embedded ahead in batches. The clock is the log's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from cachestack.attempts import PRIMARY
from cachestack.decisions import Layer, Outcome, Reason, Response, Step
from cachestack.driver import drive
from cachestack.effects import Embedding
from cachestack.engines.base import exhaust
from cachestack.errors import CacheStackError, ConfigError
from cachestack.evaluation.deciding import word_for
from cachestack.evaluation.doubt import Doubt, Doubts, doubt_of, is_compared
from cachestack.evaluation.judging import Embeddings, Report, embed_all, languages_of
from cachestack.evaluation.log_file import BadLines
from cachestack.evaluation.log_rows import LoggedRequest
from cachestack.keys import contract_of, exact_key
from cachestack.performer import Performer
from cachestack.pipeline import Pipeline
from cachestack.policy import Policy, PricePolicy
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.requests import Generation, Request, Usage
from cachestack.semantic.layer import embed_question, partition_of
from cachestack.semantic.single import run_with_one_entry
from cachestack.tracing import TraceBuilder

AT_ONCE = 256
MAX_DISTINCT = 1_000_000
"""Of how many distinct questions is remembered that they were asked; repeats of later ones are not counted."""


@dataclass(slots=True)
class LogClock:
    """Stands at the time of the request that is replayed."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


class PreparedPerformer(Performer):
    """A Performer that finds embeddings which were made ahead; others it makes itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.prepared: Embeddings = {}

    def embed(self, text: str, wait_s: float | None = None) -> Embedding | Reason:
        found = self.prepared.get(text)
        return super().embed(text, wait_s) if found is None else found


_ANSWER = "The office is on the second floor, and the form takes about ten minutes."
"""What is kept of any question: no refusal, no error, nobody's data."""


class NoEngine:
    """Answers every request at once with a sentence of its own."""

    name = "log"
    model = "log"

    def __init__(self) -> None:
        self.usage = Usage()

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield from ()
        return Generation(_ANSWER, usage=self.usage)


@dataclass(slots=True)
class Cost:
    """In one currency: of all requests without a cache, and of those that would have been served."""

    all: float = 0.0
    saved: float = 0.0


@dataclass(slots=True)
class LogReport:
    """What was found so far. `decided` counts `decided_by` words; `num_estimated` requests had no token counts."""

    num_requests: int = 0
    num_exact: int = 0
    num_by_meaning: int = 0
    num_repeats: int = 0
    num_estimated: int = 0
    num_without_time: int = 0
    num_backwards: int = 0
    decided: Counter[str] = field(default_factory=Counter)
    tenants: set[str] = field(default_factory=set)
    costs: dict[str, Cost] = field(default_factory=dict)
    first_s: float | None = None
    last_s: float | None = None
    is_interrupted: bool = False
    pairs: tuple[Doubt, ...] = ()

    @property
    def num_hits(self) -> int:
        return self.num_exact + self.num_by_meaning

    @property
    def hit_rate(self) -> float:
        return self.num_hits / self.num_requests if self.num_requests else 0.0


class LogReplay:
    """Replays one log. `performer` has a store of its own, whose clock is `clock`."""

    def __init__(
        self, performer: PreparedPerformer, policies: PolicySet, clock: LogClock, *, max_pairs: int = 200
    ) -> None:
        self._performer = performer
        self._policies = policies
        self._clock = clock
        self._place = ""
        self._languages = languages_of(performer.encoder)
        self._engine = NoEngine()
        prefix = PrefixLayer(BlockPool(max_bytes=0), secret=b"a replay keeps no prefixes")
        self._pipeline = Pipeline({}, prefix, self._languages, clock=clock, new_id=lambda: self._place)
        self._doubts = Doubts(max_pairs)
        self._asked: set[int] = set()
        self.report = LogReport()

    def run(self, requests: Iterable[LoggedRequest], bad: BadLines, progress: Report = lambda *_: None) -> LogReport:
        """All requests, in order; what cannot be asked goes to `bad`. Ctrl-C ends it early: the report says so."""
        report, waiting = self.report, iter(requests)
        try:
            while batch := list(islice(waiting, AT_ONCE)):
                usable = [(logged, policy) for logged in batch if (policy := self._policy(logged, bad)) is not None]
                self._performer.prepared = self._embedded(usable)
                for logged, policy in usable:
                    self._one(logged, policy)
                progress("replay", report.num_requests, 0)
        except KeyboardInterrupt:
            report.is_interrupted = True
        report.pairs = self._doubts.nearest()
        return report

    def _policy(self, logged: LoggedRequest, bad: BadLines) -> Policy | None:
        try:
            return self._policies.policy(logged.request.tenant)
        except ConfigError as error:
            bad.add(f"{logged.place}: {error}")
            return None

    def _embedded(self, batch: Iterable[tuple[LoggedRequest, Policy]]) -> Embeddings:
        """Of the texts that the pipeline may ask for."""
        wanted: list[str] = []

        def note(text: str) -> Reason:
            wanted.append(text)
            return Reason.NO_ENCODER

        for logged, policy in batch:
            question = embed_question(logged.request, policy, self._languages)
            run_with_one_entry(question, None, note, _never)
        return embed_all(wanted, self._performer.encoder, lambda *_: None, self._performer.packer)

    def _one(self, logged: LoggedRequest, policy: Policy) -> None:
        self._move_clock(logged)
        self._place, self._engine.usage = logged.place, logged.usage
        trace = TraceBuilder(logged.place, logged.request.tenant)
        run = self._pipeline.run(logged.request, policy, self._engine, trace)
        response: Response = exhaust(drive(run, self._performer, {PRIMARY: self._engine}, streams=False))
        step = response.trace.step(Layer.SEMANTIC)
        assert step is not None, "the semantic layer decides about every request"
        self._count(logged, policy, step)
        if is_compared(step.reason):
            self._review(logged, policy, step)

    def _count(self, logged: LoggedRequest, policy: Policy, step: Step) -> None:
        report, served = self.report, step.outcome is Outcome.HIT
        report.num_requests += 1
        report.tenants.add(logged.request.tenant)
        report.decided[word_for(step.reason, step.detail, served=served)] += 1
        report.num_repeats += self._is_repeat(logged.request, policy)
        if served and step.reason is Reason.EXACT:
            report.num_exact += 1
        elif served:
            report.num_by_meaning += 1
        if (price := _price(policy.prices, logged.usage)) is not None:
            report.num_estimated += logged.is_estimate
            cost = report.costs.setdefault(policy.prices.currency, Cost())
            cost.all += price
            cost.saved += price if served else 0.0

    def _review(self, logged: LoggedRequest, policy: Policy, step: Step) -> None:
        request = logged.request
        entry_id = str(step.detail.get("entry_id", ""))
        entry = self._performer.store.get(partition_of(request, policy.semantic), entry_id)
        if entry is None:
            return  # evicted since
        doubt = doubt_of(
            step.reason,
            step.detail,
            policy.semantic,
            served=step.outcome is Outcome.HIT,
            kept=entry.question,
            asked=request.messages,
            place=logged.place,
            tenant=request.tenant,
        )
        if doubt is not None:
            self._doubts.add(doubt)

    def _is_repeat(self, request: Request, policy: Policy) -> bool:
        """Whether the same question was asked before under the same contract, however long ago."""
        try:
            contract = contract_of(request, request.model)
        except (TypeError, ValueError):
            return False
        key = int(exact_key(partition_of(request, policy.semantic), contract, request.question)[:15], 16)
        if key in self._asked:
            return True
        if len(self._asked) < MAX_DISTINCT:
            self._asked.add(key)
        return False

    def _move_clock(self, logged: LoggedRequest) -> None:
        """Never back: a line out of order is taken as of the line before it."""
        report = self.report
        if logged.time_s is None:
            report.num_without_time += 1
            return
        report.first_s = logged.time_s if report.first_s is None else report.first_s
        if report.last_s is not None and logged.time_s < report.last_s:
            report.num_backwards += 1
            return
        report.last_s = self._clock.now_s = logged.time_s


def _never(effect: Any) -> Any:
    raise CacheStackError("nothing is verified while embeddings are prepared")


def _price(prices: PricePolicy, usage: Usage) -> float | None:
    if prices.input_per_million is None and prices.output_per_million is None:
        return None
    prompt = usage.prompt_tokens * (prices.input_per_million or 0.0)
    return (prompt + usage.completion_tokens * (prices.output_per_million or 0.0)) / 1e6
