"""Statistics add up: over threads, restarts and processes."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.decisions import Layer, Outcome, Reason, Response, Step, Trace
from cachestack.errors import StoreError
from cachestack.policy import PricePolicy
from cachestack.requests import Generation, Request, Usage
from cachestack.stats import Stats
from cachestack.stores.sums import SumsFile
from cachestack.tally import kind_of_hit, sums_of_answer, sums_of_hits

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from cachestack.stack import CacheStack
    from tests.core.conftest import Clock, MakeStack

PRICED = "default: {prices: {input_per_million: 2.0, output_per_million: 10.0}}"


class Fixed:
    """Answers with fixed usage and times."""

    name = model = "fixed"

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield "Paris"
        return Generation("Paris", "stop", Usage(100, 40, 11), ttft_s=0.2, decode_s=1.0)


def ask(stack: CacheStack, question: str, **options: object) -> Response:
    return stack.chat(question, tenant="t", **options)  # type: ignore[arg-type]


def test_what_one_of_each_counts(make_stack: MakeStack, clock: Clock) -> None:
    stack = make_stack(PRICED, engines={"e": Fixed()})
    ask(stack, "How do I reset my password?")
    ask(stack, "How do I reset my password?")
    ask(stack, "How can I reset my password?")
    ask(stack, "Hot", temperature=1.0)
    stats = stack.stats().by_tenant["t"]
    assert stats.requests == 4
    assert stats.semantic.hits.get("exact") == 1
    assert stats.semantic.num_hits == 2
    assert stats.semantic.misses == {"no_entry": 1}
    assert stats.semantic.bypasses == {"temperature": 1}
    assert stats.semantic.hit_rate == pytest.approx(2 / 3)
    assert stats.prefix.bypasses == {"not_in_process": 2}
    assert stats.engine_calls == 2
    assert (stats.tokens_prefilled, stats.tokens_reused, stats.tokens_generated) == (120, 80, 22)
    assert stats.cost == pytest.approx(2 * (100 * 2 + 11 * 10) / 1e6)
    assert stats.cost_saved == pytest.approx(2 * (100 * 2 + 11 * 10) / 1e6)
    assert stats.cost_per_request == pytest.approx(stats.cost / 4), "a hit is a request that cost nothing"
    assert stats.seconds_saved == pytest.approx(2 * 1.2)
    assert stats.ttft_s.p50 == pytest.approx(0.2, rel=0.06)
    assert stats.per_token_s.p50 == pytest.approx(0.1, rel=0.06)
    assert stats.prompt_tokens.p95 == pytest.approx(100, rel=0.06)


def test_every_request_is_in_exactly_one_semantic_outcome(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"e": Fixed()})
    for i in range(12):
        ask(stack, f"Question {i % 5}", temperature=(None, 1.0)[i % 3 == 0])
    stats = stack.stats().by_tenant["t"]
    semantic = stats.semantic
    assert stats.requests == 12 == semantic.lookups + sum(semantic.bypasses.values())
    assert stats.engine_calls == 12 - semantic.num_hits


def test_without_prices_there_is_no_cost(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"e": Fixed()})
    ask(stack, "Hello there")
    stats = stack.stats().by_tenant["t"]
    assert (stats.cost, stats.cost_saved, stats.cost_per_request) == (None, None, None)


def test_they_outlive_the_process_and_are_shared(make_stack: MakeStack) -> None:
    first, second = make_stack(engines={"e": Fixed()}), make_stack(engines={"e": Fixed()})
    ask(first, "Hello there")
    ask(second, "Hello there")
    first.close()
    assert second.stats().by_tenant["t"].requests == 2
    second.close()
    assert make_stack().stats().by_tenant["t"].requests == 2


def test_a_report_of_a_wrong_hit_counts_and_removes(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"e": Fixed()})
    entry = ask(stack, "Hello there").hit_id
    assert entry is not None
    assert not stack.report_wrong(entry, tenant="other"), "another tenant cannot remove it"
    assert ask(stack, "Hello there").trace.served_from == "exact"
    assert stack.report_wrong(entry, tenant="t")
    assert not stack.report_wrong(entry, tenant="t")
    assert ask(stack, "Hello there").trace.served_from == "engine"
    assert stack.stats().by_tenant["t"].wrong_hit_reports == 1


HITS = st.tuples(
    st.integers(0, 9), st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.2]), st.sampled_from(["m", "other"]),
    st.lists(st.floats(0, 5), min_size=1, max_size=9),
)  # fmt: skip


@given(HITS, st.booleans())
def test_hits_that_are_added_up_together_are_counted_as_one_by_one(
    hit: tuple[int, int, float, str, list[float]], priced: bool
) -> None:
    prompt, completion, saved_s, model, seconds = hit
    prices = PricePolicy(input_per_million=2.0, output_per_million=10.0) if priced else PricePolicy()
    usage = Usage(prompt, prompt, completion)
    steps = (
        Step(Layer.POLICY, Outcome.DONE, Reason.POLICY_RESOLVED, 0.0, {"model": model}),
        Step(Layer.SEMANTIC, Outcome.HIT, Reason.EXACT, 0.0, {"entry_id": "e", "age_s": 1.0}),
        Step(Layer.DECODE, Outcome.DONE, Reason.REPLAYED, 0.0, {"chars": 3, "saved_s": saved_s}),
    )
    traces = [Trace("r", "t", steps, one) for one in seconds]
    kind = kind_of_hit(traces[0], usage, prices)
    assert kind is not None
    one_by_one: Counter[str] = Counter()
    for trace in traces:
        one_by_one.update(sums_of_answer(trace, usage, prices))
    together = sums_of_hits(kind, seconds)
    assert set(together) == set(one_by_one)
    assert dict(together) == pytest.approx(dict(one_by_one))


def test_hits_are_added_up_before_they_are_many() -> None:
    stats = Stats()
    trace = Trace("r", "t", (
        Step(Layer.POLICY, Outcome.DONE, Reason.POLICY_RESOLVED),
        Step(Layer.SEMANTIC, Outcome.HIT, Reason.EXACT),
        Step(Layer.DECODE, Outcome.DONE, Reason.REPLAYED),
    ))  # fmt: skip
    for _ in range(10_000):
        stats.count_answer("t", Response("", trace), PricePolicy())
    assert len(stats._hits) < 5000
    assert stats.snapshot().by_tenant["t"].semantic.hits == {"exact": 10_000}


def test_threads_lose_nothing(tmp_path: Path) -> None:
    stats = Stats(SumsFile(tmp_path / "s"), flush_every_s=0.0)
    barrier = threading.Barrier(8)

    def count() -> None:
        barrier.wait()
        for _ in range(50):
            stats.count("t", requests=1, tokens__reused=2)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = stats.snapshot().by_tenant["t"]
    assert (seen.requests, seen.tokens_reused) == (400, 800)
    stats.close()
    assert Stats(SumsFile(tmp_path / "s")).snapshot().by_tenant["t"].requests == 400


class Broken:
    """A record that fails as long as it is told to."""

    def __init__(self) -> None:
        self.fails = True
        self.sums: dict[str, Mapping[str, float]] = {}

    def add(self, sums: Mapping[str, Mapping[str, float]]) -> None:
        if self.fails:
            raise StoreError("disk is full")
        self.sums.update(sums)

    def read(self) -> Mapping[str, Mapping[str, float]]:
        return self.sums

    def close(self) -> None: ...


def test_a_record_that_fails_warns_once_and_keeps_the_sums(caplog: pytest.LogCaptureFixture) -> None:
    record = Broken()
    stats = Stats(record)
    for _ in range(3):
        stats.count("t", requests=1)
        stats.flush()
    assert [r.message for r in caplog.records] == ["statistics cannot be kept on disk and stay in memory: disk is full"]
    assert stats.snapshot().by_tenant["t"].requests == 3
    record.fails = False
    stats.flush()
    assert record.sums["t"]["requests"] == 3
    assert stats.snapshot().by_tenant["t"].requests == 3


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="statistics in"):
        SumsFile(tmp_path / "file" / "s").add({"t": {"requests": 1}})


NAMES = st.text(st.characters(categories=["L", "M", "N", "P", "S"]), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(NAMES, NAMES, st.integers(0, 1000)), max_size=20))
def test_sums_on_disk_add_up(tmp_path_factory: pytest.TempPathFactory, adds: list[tuple[str, str, int]]) -> None:
    folder = tmp_path_factory.mktemp("sums")
    expected: dict[str, dict[str, float]] = {}
    file = SumsFile(folder)
    for tenant, name, number in adds:
        file.add({tenant: {name: number}})
        of_tenant = expected.setdefault(tenant, {})
        of_tenant[name] = of_tenant.get(name, 0) + number
    file.close()
    assert SumsFile(folder).read() == expected
