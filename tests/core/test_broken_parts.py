"""Whatever part breaks, at whatever step: the caller gets an answer, it is counted, and one warning says so."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cachestack.decisions import Layer, Reason
from cachestack.errors import EngineError, ModelNotFound, StoreError
from cachestack.requests import Generation, Request, Usage
from cachestack.semantic.base import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from cachestack.snapshot import TenantStats
    from cachestack.stack import CacheStack
    from tests.core.conftest import Clock, MakeStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"
FAILURES: list[Exception] = [StoreError("gone"), RuntimeError("bug"), MemoryError(), KeyError("x"), StopIteration()]
METHODS = ("find_exact", "get", "entries", "put", "touch", "latest", "changes", "purge")


class Echo:
    name = model = "echo"

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        yield "an answer"
        return Generation("an answer")


class Faulty:
    """Stands before a part of the stack; the methods in `broken` raise."""

    def __init__(self, inner: Any, broken: dict[str, Exception]) -> None:
        self.inner, self.broken = inner, broken

    def __getattr__(self, name: str) -> Any:
        if name in self.broken:

            def fail(*_: object, **__: object) -> None:
                raise self.broken[name]

            return fail
        return getattr(self.inner, name)


def adds_up(stats: TenantStats) -> bool:
    layer = stats.semantic
    return stats.requests == layer.num_hits + sum(layer.misses.values()) + sum(layer.bypasses.values())


def break_store(stack: CacheStack, **broken: Exception) -> None:
    faulty = Faulty(stack.performer.store, broken)
    stack.performer.store = faulty
    stack.performer._index._store = faulty  # type: ignore[union-attr]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("method", METHODS)
def test_a_store_that_fails_in_one_method(
    make_stack: MakeStack, clock: Clock, caplog: pytest.LogCaptureFixture, method: str, failure: Exception
) -> None:
    stack = make_stack(engines={"echo": Echo()})
    stack.chat(QUESTION)
    break_store(stack, **{method: failure})
    clock.now_s += 700  # a purge is due
    with caplog.at_level(logging.WARNING, "cachestack"):
        texts = [stack.chat(q).text for q in (QUESTION, REWORDED, "What is new?", "What is new?", QUESTION)]
    assert texts == ["an answer"] * 5
    assert len([r for r in caplog.records if "uncached" in r.message]) <= 1
    assert len(caplog.records) <= 2, [r.message for r in caplog.records]
    stats = stack.stats().by_tenant["default"]
    assert (stats.requests, adds_up(stats)) == (6, True)


def test_a_use_that_cannot_be_noted_is_no_reason_to_keep_the_answer_back(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"echo": Echo()})
    stack.chat(QUESTION)
    break_store(stack, touch=StoreError("read-only"))
    response = stack.chat(QUESTION)
    assert response.trace.served_from == "exact"
    assert stack.stats().by_tenant["default"].store_failures == 1


def test_a_purge_that_fails_elsewhere_does_not_lose_this_answer(make_stack: MakeStack, clock: Clock) -> None:
    stack = make_stack(engines={"echo": Echo()})
    break_store(stack, purge=StoreError("another tenant's file is locked"))
    clock.now_s += 700
    assert stack.chat(QUESTION).trace.step(Layer.SETTLE).reason is Reason.STORED  # type: ignore[union-attr]


@pytest.mark.parametrize("failure", FAILURES[1:], ids=lambda e: type(e).__name__)
def test_an_index_that_fails_costs_the_match_by_meaning_only(
    make_stack: MakeStack, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    stack = make_stack(engines={"echo": Echo()})
    stack.chat(QUESTION)
    stack.performer._index = Faulty(stack.performer._index, {"search": failure})
    assert stack.chat(QUESTION).trace.served_from == "exact"
    for question in (REWORDED, "What is new?"):
        step = stack.chat(question).trace.step(Layer.SEMANTIC)
        assert step is not None
        assert (step.outcome.value, step.reason) == ("miss", Reason.INDEX_FAILED)
    assert stack.chat("What is new?").trace.served_from == "exact"
    assert len(caplog.records) == 1


@pytest.mark.parametrize("method", ["fits_window", "encode_with_tokens"])
@pytest.mark.parametrize("failure", FAILURES[1:], ids=lambda e: type(e).__name__)
def test_an_encoder_that_fails_costs_the_match_by_meaning_only(
    make_stack: MakeStack, caplog: pytest.LogCaptureFixture, failure: Exception, method: str
) -> None:
    stack = make_stack(engines={"echo": Echo()})
    stack.performer.encoder = Faulty(stack.performer.encoder, {method: failure})
    for question in (QUESTION, REWORDED):
        assert stack.chat(question).trace.step(Layer.SEMANTIC).reason is Reason.ENCODER_FAILED  # type: ignore[union-attr]
    assert stack.chat(QUESTION).trace.served_from == "exact"
    assert len(caplog.records) == 1
    assert not stack.compare(QUESTION, REWORDED).serves


@pytest.mark.parametrize("values", [[math.nan] * 384, [0.0] * 384, [1.0], [2.0] * 384, []])
def test_vectors_that_are_none_are_found_out_before_they_are_kept(make_stack: MakeStack, values: list[float]) -> None:
    class Wrong(Faulty):
        def encode_with_tokens(self, texts: list[str]) -> Any:
            return [Encoded(np.array(values, dtype=np.float32)) for _ in texts]

    stack = make_stack(engines={"echo": Echo()})
    stack.performer.encoder = Wrong(stack.performer.encoder, {})
    response = stack.chat(QUESTION)
    assert response.trace.step(Layer.SEMANTIC).reason is Reason.ENCODER_FAILED  # type: ignore[union-attr]
    assert response.trace.step(Layer.SETTLE).detail["by_meaning"] is False  # type: ignore[union-attr]


def test_an_encoder_that_was_never_there_is_for_whoever_set_it_up(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"echo": Echo()})
    stack.performer.encoder = Faulty(stack.performer.encoder, {"fits_window": ModelNotFound("pull it")})
    with pytest.raises(ModelNotFound, match="pull it"):
        stack.chat(QUESTION)
    assert adds_up(stack.stats().by_tenant["default"])


def _generator(*pieces: Any, result: Any = None) -> Callable[[Request], Any]:
    def stream(_: Request) -> Generator[Any, None, Any]:
        yield from pieces
        return result

    return stream


def _raising(error: BaseException) -> Callable[[Request], Any]:
    def stream(_: Request) -> Any:
        raise error
        yield

    return stream


def _at_once(error: BaseException) -> Callable[[Request], Any]:
    def stream(_: Request) -> Any:
        raise error

    return stream


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (_generator("x"), "returned a NoneType, not a Generation"),
        (_generator("x", result="x"), "returned a str"),
        (_generator(b"x", result=Generation("x")), "yielded a bytes, not text"),
        (_generator(None, result=Generation("x")), "yielded a NoneType"),
        (_generator("x", result=Generation(None)), "of type NoneType"),  # type: ignore[arg-type]
        (_generator("x", result=Generation("x", "done")), "ended with 'done'"),  # type: ignore[arg-type]
        (_generator("one", result=Generation("two")), "not how its answer begins"),
        (lambda request: ["x"], "stream is a list, not a generator"),
        (lambda request: None, "stream is a NoneType"),
    ],
)
def test_an_engine_that_breaks_its_protocol_is_an_engine_error(
    make_stack: MakeStack, stream: Callable[[Request], Any], says: str
) -> None:
    engine = Echo()
    engine.stream = stream  # type: ignore[method-assign]
    stack = make_stack(engines={"echo": engine}, meaning=False)
    with pytest.raises(EngineError, match=says):
        stack.chat(QUESTION)
    stats = stack.stats().by_tenant["default"]
    assert (stats.failed, adds_up(stats), stack.performer.store.size().num_entries) == (1, True, 0)


@pytest.mark.parametrize("make", [_raising, _at_once])
@pytest.mark.parametrize(
    ("error", "comes_out", "cancelled"),
    [
        (StopIteration("x"), RuntimeError, False),
        (ValueError("x"), ValueError, False),
        (KeyboardInterrupt(), KeyboardInterrupt, True),
        (SystemExit(3), SystemExit, True),
        (GeneratorExit(), GeneratorExit, True),
    ],
)
def test_whatever_an_engine_raises_is_counted(
    make_stack: MakeStack,
    make: Callable[[BaseException], Any],
    error: BaseException,
    comes_out: type[BaseException],
    cancelled: bool,
) -> None:
    engine = Echo()
    engine.stream = make(error)  # type: ignore[method-assign]
    stack = make_stack(engines={"echo": engine}, meaning=False)
    with pytest.raises(comes_out):
        stack.chat(QUESTION)
    stats = stack.stats().by_tenant["default"]
    assert (stats.requests, stats.cancelled, stats.failed, adds_up(stats)) == (1, cancelled, not cancelled, True)
    assert stack.performer.store.size().num_entries == 0


@pytest.mark.parametrize(
    "made",
    [
        Generation("fine", ttft_s=math.nan, decode_s=math.inf),
        Generation("fine", ttft_s=-1.0),
        Generation("fine", ttft_s="soon"),  # type: ignore[arg-type]
        Generation("fine", usage=Usage(-1, 0, 2)),
        Generation("fine", usage=None),  # type: ignore[arg-type]
        Generation("fine", usage=Usage(1.5, 0, 2)),  # type: ignore[arg-type]
    ],
)
def test_figures_that_make_no_sense_cost_figures_not_answers(make_stack: MakeStack, made: Generation) -> None:
    engine = Echo()
    engine.stream = _generator("fine", result=made)  # type: ignore[method-assign]
    stack = make_stack(engines={"echo": engine}, meaning=False)
    assert [stack.chat(QUESTION).text for _ in range(2)] == ["fine", "fine"]
    stats = stack.stats().by_tenant["default"]
    assert (stats.requests, stats.semantic.hits, adds_up(stats)) == (2, {"exact": 1}, True)
    assert stats.seconds_saved == 0.0


@pytest.mark.parametrize(("own", "others"), [("large", "small"), ("large", ""), ("", "")])
def test_an_answer_of_another_engine_is_not_kept_as_this_ones(make_stack: MakeStack, own: str, others: str) -> None:
    """When the engine is back, its own answer is what is asked for. Two that do not name their model may differ."""
    policy = "default: {fallback: {engine_error: [other_engine], other_engine: spare}}"
    main, spare = Echo(), Echo()
    main.model, spare.model = own, others  # type: ignore[misc]
    spare.stream = _generator("a worse answer", result=Generation("a worse answer"))  # type: ignore[method-assign]
    main.stream = _raising(OSError("down"))  # type: ignore[method-assign]
    stack = make_stack(policy, engines={"main": main, "spare": spare}, meaning=False)
    fallen = stack.chat(QUESTION)
    assert (fallen.text, fallen.hit_id) == ("a worse answer", None)
    assert fallen.trace.step(Layer.SETTLE).reason is Reason.OTHER_ENGINE  # type: ignore[union-attr]
    del main.stream
    assert [stack.chat(QUESTION).text for _ in range(2)] == ["an answer", "an answer"]


def test_a_bad_request_is_counted_somewhere(make_stack: MakeStack) -> None:
    class Tokens(Echo):
        def stream_tokens(self) -> None: ...

    stack = make_stack(engines={"tokens": Tokens()}, meaning=False)
    with pytest.raises(ValueError, match="n > 1"):
        stack.chat(QUESTION, n=2)
    stats = stack.stats().by_tenant["default"]
    assert stats.semantic.bypasses == {"not_reached": 1}
    assert adds_up(stats)


@pytest.mark.parametrize("nobody", ["", None])
@pytest.mark.parametrize("wall", ["user", "role"])
def test_nobody_is_no_principal_to_share_answers_with(make_stack: MakeStack, wall: str, nobody: str | None) -> None:
    stack = make_stack(f"default: {{semantic: {{walls: [{wall}]}}}}", engines={"echo": Echo()}, meaning=False)
    for _ in range(2):
        step = stack.chat("Where is my parcel?", **{wall: nobody}).trace.step(Layer.SEMANTIC)
        assert step is not None
        assert step.reason is Reason.NO_PRINCIPAL


@pytest.mark.parametrize("text", ["\ud800 what?", "nul \0 inside?", "x" * 1_000_000, "é" * 300_000, "\u202e?"])
def test_odd_texts_are_answered_and_served_exactly(make_stack: MakeStack, text: str) -> None:
    stack = make_stack(engines={"echo": Echo()})
    assert [stack.chat(text).trace.served_from for _ in range(2)] == ["engine", "exact"]
    assert stack.chat(text, tenant=text[:9]).trace.served_from == "engine"
    assert adds_up(stack.stats().by_tenant[text[:9]])


def test_a_text_that_the_guards_would_refuse_is_not_even_tokenised(make_stack: MakeStack) -> None:
    stack = make_stack(engines={"echo": Echo()})
    stack.performer.encoder = Faulty(stack.performer.encoder, {"fits_window": AssertionError("it was read")})
    step = stack.chat("word " * 401).trace.step(Layer.SEMANTIC)
    assert step is not None
    assert (step.reason, step.detail["by_meaning"]) == (Reason.BEYOND_WINDOW, "beyond_window")


@pytest.mark.parametrize("method", ["put", "touch"])
def test_a_store_that_cannot_be_written_is_not_waited_for_at_every_request(
    make_stack: MakeStack, clock: Clock, method: str
) -> None:
    """A file that is locked fails after two seconds; the next requests must not wait as long."""
    tries = []

    class Locked(Faulty):
        def __getattr__(self, name: str) -> Any:
            if name == method:
                tries.append(clock.now_s)
            return super().__getattr__(name)

    stack = make_stack(engines={"echo": Echo()}, meaning=False)
    stack.chat(QUESTION)
    stack.performer.store = Locked(stack.performer.store, {method: StoreError("locked")})
    questions = [QUESTION if method == "touch" else f"Question {i}?" for i in range(12)]
    for question in questions:
        assert stack.chat(question).text == "an answer"
        clock.now_s += 1
    assert [moment - tries[0] for moment in tries] == [0, 10]
    assert stack.stats().by_tenant["default"].store_failures == 12
    stack.performer.store = stack.performer.store.inner
    clock.now_s += 10
    stack.chat("Another question?")
    assert stack.chat("Another question?").trace.served_from == "exact", "it is tried again"


def test_one_tenants_file_that_cannot_be_written_is_no_matter_to_another(make_stack: MakeStack) -> None:
    class OneLocked(Faulty):
        def put(self, entry: Any, max_bytes: int | None, *, keep_newer: bool = False) -> Any:
            if entry.partition.tenant == "a":
                raise StoreError("locked")
            return self.inner.put(entry, max_bytes, keep_newer=keep_newer)

    stack = make_stack(engines={"echo": Echo()}, meaning=False)
    stack.performer.store = OneLocked(stack.performer.store, {})
    kept = {tenant: stack.chat(QUESTION, tenant=tenant).hit_id is not None for tenant in ("a", "b", "a", "b")}
    assert kept == {"a": False, "b": True}
