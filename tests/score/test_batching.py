"""The micro-batcher with a pass of our own: who shares a pass, who waits, and what ends reach whom. No sleeps."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachestack.batching import MicroBatcher
from cachestack.errors import EngineError
from tests.score.conftest import until

LONG_S = 60.0  # a wait that only an event ends
TIMEOUT_S = 30.0


class Passes:
    """A pass that can be stopped inside, and remembers who was in it. A member's result is its double."""

    def __init__(self) -> None:
        self.packs: list[tuple[int, ...]] = []
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.fails: dict[int, BaseException] = {}
        self.is_held = True

    def __call__(self, members: Sequence[int]) -> list[int]:
        self.packs.append(tuple(members))
        self.began.release()
        if self.is_held:
            assert self.may_end.acquire(timeout=TIMEOUT_S)
        for member in members:
            if member in self.fails:
                raise self.fails.pop(member)
        return [2 * member for member in members]


@pytest.fixture
def passes():
    return Passes()


@pytest.fixture
def batcher(passes):
    return MicroBatcher(passes, max_weight=100)


@pytest.fixture
def start():
    """Calls a function in a thread of its own. All must have ended when the test does."""
    with ThreadPoolExecutor(32) as pool:
        yield pool.submit


def ask(batcher: MicroBatcher[int, int], member: int, *, weight: int = 1, max_wait_s: float = LONG_S) -> int:
    with batcher.arrival() as arrival:
        return arrival.submit(member, weight=weight, max_wait_s=max_wait_s)


def queued(batcher: MicroBatcher[int, int], number: int) -> None:
    """Returns when so many calls are in the queue, those of the pass that runs included."""

    def there() -> bool:
        with batcher._lock:
            return len(batcher._queue) == number

    until(there)


def queue_in_order(start, batcher, members, **options) -> list[Future[int]]:
    futures = []
    for number, member in enumerate(members, start=1 + len(batcher._queue)):
        futures.append(start(ask, batcher, member, **options))
        queued(batcher, number)
    return futures


def hold_a_pass(start, batcher, passes, member: int = 0) -> Future[int]:
    first = start(ask, batcher, member)
    assert passes.began.acquire(timeout=TIMEOUT_S)
    return first


def test_alone_nobody_is_waited_for(batcher, passes):
    passes.is_held = False
    assert [ask(batcher, n) for n in (1, 2)] == [2, 4]  # would take LONG_S each
    assert passes.packs == [(1,), (2,)]


def test_calls_that_come_during_a_pass_share_the_next(start, batcher, passes):
    first = hold_a_pass(start, batcher, passes)
    others = queue_in_order(start, batcher, range(1, 9))
    passes.may_end.release(2)
    assert first.result(TIMEOUT_S) == 0
    assert [f.result(TIMEOUT_S) for f in others] == [2 * n for n in range(1, 9)]
    assert passes.packs == [(0,), tuple(range(1, 9))]


def test_a_pass_takes_no_more_than_fits_and_one_that_never_fits_goes_alone(start, passes):
    batcher = MicroBatcher(passes, max_weight=10)
    first = hold_a_pass(start, batcher, passes)
    futures = []
    for number, (member, weight) in enumerate([(1, 4), (2, 6), (3, 1), (4, 25), (5, 10), (6, 1)], start=2):
        futures.append(start(ask, batcher, member, weight=weight))
        queued(batcher, number)
    passes.is_held = False
    passes.may_end.release(1)
    assert [f.result(TIMEOUT_S) for f in (first, *futures)] == [0, 2, 4, 6, 8, 10, 12]
    assert passes.packs == [(0,), (1, 2), (3,), (4,), (5,), (6,)]


def test_a_leader_waits_for_a_call_on_its_way(start, batcher, passes):
    passes.is_held = False
    with batcher.arrival() as late:
        first = start(ask, batcher, 1)
        queued(batcher, 1)
        assert late.submit(2, weight=1, max_wait_s=LONG_S) == 4
    assert first.result(TIMEOUT_S) == 2
    assert passes.packs == [(1, 2)]


def test_a_leader_goes_on_when_the_one_on_its_way_turns_back(start, batcher, passes):
    passes.is_held = False
    with batcher.arrival():
        first = start(ask, batcher, 1)
        queued(batcher, 1)
    assert first.result(TIMEOUT_S) == 2


def test_a_leader_waits_no_longer_than_it_may_or_than_there_is_room(start, batcher, passes):
    passes.is_held = False
    with batcher.arrival():  # never submitted
        assert ask(batcher, 1, max_wait_s=0.001) == 2
        assert ask(batcher, 2, max_wait_s=0) == 4
        assert ask(batcher, 3, weight=100, max_wait_s=LONG_S) == 6


def test_members_gather_while_somebody_else_holds_the_gate(start, passes):
    passes.is_held = False
    gate = threading.Lock()
    batcher = MicroBatcher(passes, max_weight=100, gate=gate)
    with gate:
        futures = queue_in_order(start, batcher, (1, 2, 3))
        assert passes.packs == []
    assert [f.result(TIMEOUT_S) for f in futures] == [2, 4, 6]
    assert passes.packs == [(1, 2, 3)]


def test_an_error_reaches_each_member_of_its_pass_and_nobody_else(start, batcher, passes):
    first = hold_a_pass(start, batcher, passes)
    failing = queue_in_order(start, batcher, (1, 2))
    passes.fails = {2: EngineError("out of memory")}
    passes.may_end.release(1)
    assert passes.began.acquire(timeout=TIMEOUT_S)
    after = start(ask, batcher, 3)
    queued(batcher, 3)
    passes.may_end.release(2)
    errors = [f.exception(TIMEOUT_S) for f in failing]
    assert [str(e) for e in errors] == ["out of memory"] * 2
    assert errors[0] is not errors[1], "a traceback belongs to one thread"
    assert (first.result(TIMEOUT_S), after.result(TIMEOUT_S)) == (0, 6)


def test_a_broken_off_leader_costs_nobody_else_the_result(start, batcher, passes):
    """Ctrl-C in the middle of the leader's pass: the others' pass begins anew, under another leader."""
    first = hold_a_pass(start, batcher, passes)
    members = queue_in_order(start, batcher, (1, 2, 3))
    passes.fails = {1: KeyboardInterrupt()}
    passes.may_end.release(3)
    assert isinstance(members[0].exception(TIMEOUT_S), KeyboardInterrupt)
    assert [f.result(TIMEOUT_S) for f in (first, *members[1:])] == [0, 4, 6]
    assert passes.packs == [(0,), (1, 2, 3), (2, 3)]


class GoingAway(MicroBatcher[int, int]):
    """Its member 1 is interrupted while it waits for its turn."""

    def _comes_to_lead(self, call):
        if call.member == 1:
            raise KeyboardInterrupt
        return super()._comes_to_lead(call)


def test_a_member_that_went_away_is_left_out(start, passes):
    batcher = GoingAway(passes, max_weight=100)
    first = hold_a_pass(start, batcher, passes)
    with pytest.raises(KeyboardInterrupt):
        ask(batcher, 1)
    other = start(ask, batcher, 2)
    queued(batcher, 2)
    passes.may_end.release(2)
    assert (first.result(TIMEOUT_S), other.result(TIMEOUT_S)) == (0, 4)
    assert passes.packs == [(0,), (2,)]


class Unlucky(MicroBatcher[int, int]):
    """A leader is interrupted while it waits for others to come."""

    def _lead(self, call, max_wait_s):
        if call.member == 1:
            raise KeyboardInterrupt
        super()._lead(call, max_wait_s)


def test_a_leader_that_goes_away_before_its_pass_hands_over(start, passes):
    batcher = Unlucky(passes, max_weight=100)
    first = hold_a_pass(start, batcher, passes)
    members = queue_in_order(start, batcher, (1, 2))
    passes.may_end.release(2)
    assert isinstance(members[0].exception(TIMEOUT_S), KeyboardInterrupt)
    assert (first.result(TIMEOUT_S), members[1].result(TIMEOUT_S)) == (0, 4)
    assert passes.packs == [(0,), (2,)]


def test_an_error_before_the_call_is_submitted_leaves_nobody_waiting(batcher, passes):
    passes.is_held = False
    with pytest.raises(ValueError, match="not text"), batcher.arrival():
        raise ValueError("not text")
    assert ask(batcher, 1) == 2  # would wait LONG_S for the other


class Startling(MicroBatcher[int, int]):
    """Its first call is interrupted as soon as it has been announced, before its block begins."""

    is_calm = False

    def announce(self, arrival):
        super().announce(arrival)
        if not self.is_calm:
            self.is_calm = True
            raise KeyboardInterrupt


def test_a_call_that_is_broken_off_as_it_is_announced_is_waited_for_by_nobody(passes):
    passes.is_held = False
    batcher = Startling(passes, max_weight=100)
    with contextlib.suppress(KeyboardInterrupt):  # pytest.raises would keep the traceback, and with it the call
        ask(batcher, 1)
    assert ask(batcher, 2) == 4  # would wait LONG_S


def interrupted_at(number: int, batcher: MicroBatcher[int, int]) -> bool:
    """Asks with a KeyboardInterrupt at one of the places in the batcher's code where a signal can come: as a function
    begins, and after a built-in one. False: there is no such place, and no interrupt."""
    left = number

    def count(frame, event, argument):
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename == sys.modules[MicroBatcher.__module__].__file__:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        assert ask(batcher, 1) == 2
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.parametrize("leads", [True, False])
def test_a_caller_interrupted_anywhere_leaves_nobody_waiting(start, leads):
    """In a leader, and in one that waits for its result."""
    number, is_interrupted = 0, True
    while is_interrupted:
        passes = Passes()
        batcher = MicroBatcher(passes, max_weight=100, gate=threading.RLock())
        first = None if leads else hold_a_pass(start, batcher, passes)
        unlucky = start(interrupted_at, number, batcher)
        until(lambda: unlucky.done() or len(batcher._queue) > (not leads))  # noqa: B023
        others = [start(ask, batcher, member, max_wait_s=0) for member in (2, 3)]
        passes.may_end.release(4)
        assert [f.result(TIMEOUT_S) for f in (*others, *filter(None, [first]))] == [4, 6, *([] if leads else [0])]
        is_interrupted = unlucky.result(TIMEOUT_S)
        number += 1
        assert not batcher._queue
        assert not any(batcher._arriving)
        assert batcher._leader is None
    assert number > 20, "the places were not seen"


@settings(max_examples=25, deadline=None)
@given(
    weights=st.lists(st.integers(1, 6), min_size=1, max_size=24),
    failing=st.sets(st.integers(0, 23)),
    max_weight=st.integers(1, 12),
)
def test_every_caller_gets_its_own_result(weights, failing, max_weight):
    """All at once, from a barrier: each its own result or its own pass's error, in packs that fit."""
    packs: list[tuple[int, ...]] = []

    def run(members: Sequence[int]) -> list[int]:
        packs.append(tuple(members))
        if any(member in failing for member in members):
            raise EngineError(repr(tuple(members)))
        return [2 * member for member in members]

    batcher = MicroBatcher(run, max_weight=max_weight)
    barrier = threading.Barrier(len(weights))

    def call(member: int) -> int | str:
        barrier.wait(TIMEOUT_S)
        try:
            return ask(batcher, member, weight=weights[member], max_wait_s=0.003)
        except EngineError as error:
            return str(error)

    with ThreadPoolExecutor(len(weights)) as pool:
        results = list(pool.map(call, range(len(weights))))
    assert sorted(member for pack in packs for member in pack) == list(range(len(weights)))
    for pack in packs:
        assert len(pack) == 1 or sum(weights[m] for m in pack) <= max_weight
        expected = [repr(pack)] * len(pack) if failing.intersection(pack) else [2 * m for m in pack]
        assert [results[m] for m in pack] == expected
