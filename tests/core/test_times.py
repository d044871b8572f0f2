"""Age: what a moved clock, another policy and an invalidation in between do to answers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from cachestack.decisions import Layer, Reason
from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from tests.core.conftest import Clock, MakeStack

QUESTION, REWORDED = "How do I reset my password?", "How can I reset my password?"


class Slow:
    """Does something while it answers; can be made to fail."""

    name = model = "slow"

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.meanwhile, self.fails, self.calls = meanwhile, False, 0

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        self.calls += 1
        self.meanwhile()
        if self.fails:
            raise OSError("down")
        yield f"answer {self.calls}"
        return Generation(f"answer {self.calls}")


@pytest.mark.parametrize("asked", [QUESTION, REWORDED])
@pytest.mark.parametrize(("moved_s", "served"), [(0, True), (99.9, True), (100, False), (-60, True), (-61, False)])
def test_an_entry_lives_between_its_making_and_its_end(
    make_stack: MakeStack, clock: Clock, moved_s: float, served: bool, asked: str
) -> None:
    """A clock that was set back must not prolong a life without a bound."""
    stack = make_stack("default: {retention: {ttl_s: 100}}", engines={"slow": Slow()})
    stack.chat(QUESTION)
    clock.now_s += moved_s
    assert (stack.chat(asked).trace.served_from != "engine") == served


@pytest.mark.parametrize("asked", [QUESTION, REWORDED])
def test_a_shorter_life_in_todays_policy_holds_for_what_is_kept_already(
    make_stack: MakeStack, clock: Clock, asked: str
) -> None:
    make_stack(engines={"slow": Slow()}).chat(QUESTION)
    strict = make_stack("default: {retention: {ttl_s: 60}}", engines={"slow": Slow()})
    clock.now_s += 59
    assert strict.chat(asked).trace.served_from != "engine"
    clock.now_s += 1
    assert strict.explain(asked).would == "engine"


@pytest.mark.parametrize("asked", [QUESTION, REWORDED])
def test_a_request_is_not_served_what_is_older_than_it_takes(make_stack: MakeStack, clock: Clock, asked: str) -> None:
    stack = make_stack(engines={"slow": Slow()})
    stack.chat(QUESTION)
    clock.now_s += 30
    assert stack.chat(asked, ttl_s=31).trace.served_from != "engine"
    assert stack.explain(asked, ttl_s=30).would == "engine"
    assert stack.explain(asked).would != "engine"


def test_the_life_of_an_answer_begins_when_it_was_asked_for(make_stack: MakeStack, clock: Clock) -> None:
    def take_a_while() -> None:
        clock.now_s += 70

    stack = make_stack("default: {retention: {ttl_s: 100}}", engines={"slow": Slow(take_a_while)})
    stack.chat(QUESTION)
    clock.now_s += 29
    assert stack.explain(QUESTION).would == "exact"
    clock.now_s += 1
    assert stack.explain(QUESTION).would == "engine"


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        ({"tenant": "t"}, False),
        ({"tag": "handbook"}, False),
        ({"user": "u"}, False),
        ({"version": "1"}, False),
        ({"tenant": "t", "older_than": 0}, False),
        ({"tenant": "other"}, True),
        ({"tag": "menu"}, True),
        ({"version": "2"}, True),
        ({"tenant": "t", "older_than": 3600}, True),
        ({"entry": "another"}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("process", ["own", "another"])
def test_an_answer_that_was_on_its_way_does_not_bring_back_what_was_invalidated(
    make_stack: MakeStack, clock: Clock, conditions: dict[str, object], kept: bool, process: str
) -> None:
    engine = Slow()
    stack = make_stack(engines={"slow": engine}, meaning=False)
    other = make_stack(meaning=False)
    about = {"tenant": "t", "tags": ["handbook"], "user": "u", "version": "1"}
    stack.chat("Another question", **about)  # so that the tenant has a file

    def invalidate() -> None:
        clock.now_s += 1
        (stack if process == "own" else other).invalidate(**conditions)  # type: ignore[arg-type]
        clock.now_s += 1

    engine.meanwhile = invalidate
    answer = stack.chat(QUESTION, **about)
    settled = answer.trace.step(Layer.SETTLE)
    assert (answer.text, answer.hit_id is not None) == ("answer 2", kept)
    assert settled is not None
    assert settled.reason is (Reason.STORED if kept else Reason.INVALIDATED)
    engine.meanwhile = lambda: None
    assert stack.chat(QUESTION, **about).trace.served_from == ("exact" if kept else "engine")
    assert stack.chat(QUESTION, **about).trace.served_from == "exact", "what is asked afterwards is kept again"


def test_an_invalidation_before_the_first_entry_holds_in_its_process(make_stack: MakeStack, clock: Clock) -> None:
    engine = Slow()
    stack = make_stack(engines={"slow": engine}, meaning=False)

    def invalidate() -> None:
        clock.now_s += 1
        stack.invalidate(tag="handbook")

    engine.meanwhile = invalidate
    assert stack.chat(QUESTION, tags=["handbook"]).hit_id is None


def test_an_invalidation_of_a_time_to_come_holds_nothing_back_for_ever(make_stack: MakeStack, clock: Clock) -> None:
    stack = make_stack(engines={"slow": Slow()}, meaning=False)
    stack.chat("Another question")
    clock.now_s += 86_400
    stack.invalidate(tenant="default")
    clock.now_s -= 86_400  # it had been a wrong clock
    stack.chat(QUESTION)
    assert stack.chat(QUESTION).trace.served_from == "exact"


def test_a_stale_answer_that_was_invalidated_meanwhile_is_not_served(make_stack: MakeStack, clock: Clock) -> None:
    policy = "default: {retention: {ttl_s: 10}, fallback: {engine_error: [stale, raise], stale_within_s: 100}}"
    engine = Slow()
    stack = make_stack(policy, engines={"slow": engine}, meaning=False)
    stack.chat(QUESTION)
    clock.now_s += 20
    engine.fails = True
    assert stack.chat(QUESTION).trace.served_from == "stale"
    engine.meanwhile = lambda: stack.invalidate(tenant="default")
    with pytest.raises(OSError, match="down"):
        stack.chat(QUESTION)


def test_a_stale_answer_whose_time_ran_out_meanwhile_is_not_served(make_stack: MakeStack, clock: Clock) -> None:
    policy = "default: {retention: {ttl_s: 10}, fallback: {engine_error: [stale, raise], stale_within_s: 100}}"

    def take_a_while() -> None:
        clock.now_s += 20

    engine = Slow()
    stack = make_stack(policy, engines={"slow": engine}, meaning=False)
    stack.chat(QUESTION)
    clock.now_s += 95
    engine.fails, engine.meanwhile = True, take_a_while
    with pytest.raises(OSError, match="down"):
        stack.chat(QUESTION)


def test_many_threads_that_ask_and_invalidate_never_see_an_answer_from_before(
    make_stack: MakeStack, clock: Clock, tmp_path: Path
) -> None:
    """Each round raises the truth, then invalidates; whoever asks after that must get the truth of then or later."""
    truth, lock = [0], threading.Lock()

    class Truthful:
        name = model = "truthful"

        def stream(self, request: Request) -> Generator[str, None, Generation]:
            seen = str(truth[0])
            yield seen
            return Generation(seen)

    stack = make_stack(engines={"truthful": Truthful()}, meaning=False)
    barrier, wrong = threading.Barrier(4), []

    def tick() -> None:
        with lock:
            clock.now_s += 0.001

    def ask() -> None:
        for _ in range(60):
            barrier.wait()
            for _ in range(3):
                known = invalidated[0]
                answer = int(stack.chat(QUESTION, tenant="t").text)
                tick()
                if answer < known:
                    wrong.append((answer, known))

    def invalidate() -> None:
        for number in range(1, 61):
            barrier.wait()
            truth[0] = number
            tick()
            stack.invalidate(tenant="t")
            invalidated[0] = number
            tick()

    invalidated = [0]
    threads = [threading.Thread(target=ask) for _ in range(3)] + [threading.Thread(target=invalidate)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
