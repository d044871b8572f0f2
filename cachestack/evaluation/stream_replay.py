"""A stream asked in order, under an error budget and at fixed thresholds. The engine's answer is the request's label.

The budget is the one that a stack keeps (`Budgets`), over a store in memory: it sees the labels of audited hits, and
those of questions that were not served, and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cachestack.decisions import Best, Hit, Miss, Reason
from cachestack.effects import Consult, NoteMissed, NoteServed
from cachestack.engines.base import Engine
from cachestack.entries import Entry
from cachestack.evaluation.stream_material import Material
from cachestack.keys import Partition
from cachestack.policy import Policy
from cachestack.requests import Generation, Message, Request
from cachestack.semantic.budget.budgets import AtOnce, Budgets, Change, Worker
from cachestack.semantic.budget.curve import GRID
from cachestack.semantic.budget.report import ClassReport
from cachestack.semantic.budget.terms import Terms

EVERY = 200
"""Requests from one point of the plot to the next."""
_PARTITION = Partition("stream")


@dataclass(frozen=True, slots=True)
class Order:
    """Which question is asked when, and which answer would be right."""

    numbers: Sequence[int]
    labels: Sequence[str]


@dataclass(slots=True)
class Point:
    """After so many requests. `hits` are all served ones, exact and by meaning."""

    requests: int
    hits: int
    wrong_hits: int
    meaning_hits: int
    wrong_meaning_hits: int
    audits: int
    threshold: float | None
    state: str


@dataclass(slots=True)
class Served:
    """Hits, exact and by meaning. An exact one is wrong where a later request of the same text has another label."""

    exact_hits: int = 0
    wrong_exact_hits: int = 0
    meaning_hits: int = 0
    wrong_meaning_hits: int = 0

    @property
    def hits(self) -> int:
        return self.exact_hits + self.meaning_hits

    @property
    def wrong_hits(self) -> int:
        return self.wrong_exact_hits + self.wrong_meaning_hits

    def count_exact(self, wrong: bool) -> None:
        self.exact_hits += 1
        self.wrong_exact_hits += wrong

    def count_by_meaning(self, wrong: bool) -> None:
        self.meaning_hits += 1
        self.wrong_meaning_hits += wrong


@dataclass(slots=True)
class StreamRun(Served):
    requests: int = 0
    audits: int = 0
    audits_wrong: int = 0
    points: list[Point] = field(default_factory=list)
    changes: list[tuple[int, str, str, float | None]] = field(default_factory=list)
    reports: Mapping[str, ClassReport] = field(default_factory=dict)


@dataclass(slots=True)
class Fixed(Served):
    """`threshold`: None serves nothing by meaning."""

    threshold: float | None = None


def replay(
    material: Material, order: Order, policy: Policy, seed: int, on_requests: Callable[[int], None] = lambda _: None
) -> StreamRun:
    """Under the policy's budget. `seed` draws the audits; `on_requests` is told now and then how many were asked."""
    run = StreamRun()
    asked_label = ""

    def answer(request: Request, policy: Policy, engines: Mapping[str, Engine]) -> tuple[Generation, float]:
        return Generation(asked_label), 0.0

    def compare(x: str, y: str, question: str) -> bool:
        return x == y

    def told(change: Change) -> None:
        run.changes.append((run.requests, change.after.mode.value, change.after.why.value, change.after.threshold))

    def worker(on_error: object) -> Worker:
        def fail(error: Exception) -> None:
            raise error

        return AtOnce(fail)

    draw = random.Random(seed).random
    budgets = Budgets(
        None,
        lambda: float(run.requests),
        draw=draw,
        compare=compare,
        ask=answer,
        background=worker,
        is_logged=False,
    )
    budgets.observe(told)
    limited = policy.model_copy(update={"budget": policy.budget.model_copy(update={"max_audits_per_hour": 10**9})})
    stored: dict[int, str] = {}
    entries: dict[int, Entry] = {}
    for number, label in zip(order.numbers, order.labels, strict=True):
        run.requests += 1
        asked_label = label
        if number in stored:
            run.count_exact(stored[number] != label)
        else:
            question = material.questions[number]
            request = Request((Message("user", question.text),), tenant="stream")
            consult = Consult(_PARTITION, str(number), question.language, "", limited)
            found = chosen(material, number, stored, budgets.consult(consult)) if question.vector else None
            best = found if isinstance(found, Hit) else found.best if found is not None else None
            entry: Entry | None = None
            if best is not None:
                kept = best.value if isinstance(best, Hit) else best.entry
                entry = entries.setdefault(kept, replace(material.entry(kept), answer=stored[kept]))
            if isinstance(found, Hit):
                assert entry is not None, "a hit has an entry"
                run.count_by_meaning(entry.answer != label)
                served = NoteServed(
                    str(run.requests), request, _PARTITION, str(number), entry, found.detail["score"],
                    question.language, limited,
                )  # fmt: skip
                budgets.served(served, {})
            else:
                stored[number] = label
                if isinstance(best, Best) and entry is not None:
                    missed = NoteMissed(
                        request, _PARTITION, str(number), entry, best.score, best.would_serve, label,
                        question.language, limited,
                    )  # fmt: skip
                    budgets.missed(missed)
        if run.requests % EVERY == 0 or run.requests == len(order.numbers):
            _note(run, budgets, limited)
            on_requests(run.requests)
    return run


def chosen(material: Material, asked: int, stored: Mapping[int, str], terms: Terms) -> Hit[int] | Miss:
    """What the look-up serves, by number: pairs that were compared first, then the first whose score is enough."""
    candidates = [(n, s) for n, s in material.candidates(asked, stored) if str(n) not in terms.denied]
    if terms.mode.value == "serving" and terms.right:
        for number, _ in candidates:
            if str(number) in terms.right:
                return Hit(Reason.VALIDATED, number, {"score": 1.0})
    best: tuple[float, int] | None = None
    for number, similarity in candidates:
        score = material.score(asked, number, similarity)
        if terms.threshold is not None and score >= terms.threshold:
            if terms.mode.value == "serving" and str(number) not in terms.due:
                return Hit(Reason.VALIDATED, number, {"score": score})
            return Miss(Reason.SHADOW, best=Best(number, score, True))
        if score >= GRID[0] and (best is None or score > best[0]):
            best = (score, number)
    return Miss(Reason.NOT_VALIDATED, best=None if best is None else Best(best[1], best[0]))


def at_fixed(material: Material, order: Order, threshold: float | None) -> Fixed:
    """Without a budget: one threshold throughout, nothing learnt."""
    stored: dict[int, str] = {}
    found, least = Fixed(threshold=threshold), 1.0 if threshold is None else threshold
    for number, label in zip(order.numbers, order.labels, strict=True):
        if number in stored:
            found.count_exact(stored[number] != label)
            continue
        for other, similarity in material.candidates(number, stored) if threshold is not None else ():
            if material.score(number, other, similarity) >= least:
                found.count_by_meaning(stored[other] != label)
                break
        else:
            stored[number] = label
    return found


def at_all_fixed(material: Material, order: Order) -> list[Fixed]:
    """Nothing by meaning first, then the thresholds of the grid from the strictest on."""
    return [at_fixed(material, order, threshold) for threshold in (None, *reversed(GRID))]


def best_of_all(tried: Sequence[Fixed], budget: float) -> Fixed:
    """The most hits, exact and by meaning, of those that hold the budget over them all; where none does, the first."""
    held = [fixed for fixed in tried if fixed.wrong_hits <= budget * fixed.hits]
    return max(held or tried[:1], key=lambda fixed: fixed.hits)


def best_by_meaning(tried: Sequence[Fixed], budget: float) -> Fixed:
    """The most hits by meaning of those that hold the budget over these alone."""
    held = [fixed for fixed in tried if fixed.wrong_meaning_hits <= budget * fixed.meaning_hits]
    return max(held or tried[:1], key=lambda fixed: fixed.meaning_hits)


def _note(run: StreamRun, budgets: Budgets, policy: Policy) -> None:
    run.reports = budgets.reports(lambda _: policy).get("stream", {})
    run.audits = sum(report.audits for report in run.reports.values())
    run.audits_wrong = sum(report.audits_wrong for report in run.reports.values())
    busiest = max(run.reports.values(), key=lambda report: report.hits + report.compared, default=None)
    threshold, state = (None, "off") if busiest is None else (busiest.threshold, busiest.state)
    point = Point(
        run.requests, run.hits, run.wrong_hits, run.meaning_hits, run.wrong_meaning_hits, run.audits, threshold, state
    )
    run.points.append(point)
