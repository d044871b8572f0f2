"""Concurrent embeddings share passes, and nobody waits longer than he may. (Trap 17: a hung encoder parks requests.)"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cachestack.decisions import Reason
from cachestack.effects import Embedding
from cachestack.errors import EncoderError, EncoderTimeout
from cachestack.performer import Performer
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.semantic.shared_passes import SharedPasses
from cachestack.stack import CacheStack
from cachestack.stores.memory import MemoryStore

SOON_S = 0.05
LONG_S = 60.0


class Gate:
    """`run` of a SharedPasses that tells when a pass has begun and ends it when it is let."""

    def __init__(self):
        self.passes: list[list[str]] = []
        self.threads = set()
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def __call__(self, members):
        self.passes.append(list(members))
        self.threads.add(threading.get_ident())
        self.began.release()
        assert self.may_end.acquire(timeout=LONG_S)
        return [m.upper() for m in members]

    def let(self, num=1):
        self.may_end.release(num)


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def passes(gate):
    made = SharedPasses(gate)
    gate.let()
    assert made.submit("warm") == "WARM"
    assert gate.began.acquire(timeout=LONG_S)
    yield made
    gate.let(1000)
    made.close()


def wait_until_queued(passes, num):
    until_s = time.monotonic() + LONG_S
    while len(passes._waiting) < num and time.monotonic() < until_s:
        time.sleep(0.001)
    assert len(passes._waiting) == num


def test_calls_that_come_during_a_pass_share_the_next_one(gate, passes):
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(passes.submit, "a", LONG_S)
        assert gate.began.acquire(timeout=LONG_S)
        others = [pool.submit(passes.submit, m, LONG_S) for m in "bcdef"]
        wait_until_queued(passes, 5)
        gate.let(2)
        assert first.result(LONG_S) == "A"
        assert [o.result(LONG_S) for o in others] == list("BCDEF")
    assert [len(p) for p in gate.passes] == [1, 1, 5]
    assert len(gate.threads) == 1, "one worker"


def test_a_pass_has_its_limit(gate):
    passes = SharedPasses(gate, max_members=2)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(passes.submit, "a")
        assert gate.began.acquire(timeout=LONG_S)
        others = [pool.submit(passes.submit, m) for m in "bcd"]
        wait_until_queued(passes, 3)
        gate.let(3)
        assert {f.result(LONG_S) for f in (first, *others)} == set("ABCD")
    assert [len(p) for p in gate.passes] == [1, 2, 1]


def test_a_hung_pass_parks_nobody_and_all_is_well_when_it_returns(gate, passes):
    with ThreadPoolExecutor(4) as pool:
        hung = pool.submit(passes.submit, "hung", SOON_S)
        assert gate.began.acquire(timeout=LONG_S)
        follower = pool.submit(passes.submit, "follower", SOON_S)
        with pytest.raises(EncoderTimeout):
            hung.result(LONG_S)
        with pytest.raises(EncoderTimeout):
            follower.result(LONG_S)
    assert not passes._waiting, "who gave up is not encoded later"
    with pytest.raises(EncoderTimeout, match="has not come back"):
        passes.submit("later", SOON_S / 2)
    gate.let(2)
    assert passes.submit("again", LONG_S) == "AGAIN"
    assert gate.passes[-2:] == [["hung"], ["again"]]


def test_the_first_pass_may_take_longer_since_it_loads(gate):
    passes = SharedPasses(gate, first_wait_s=LONG_S)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(passes.submit, "a", 1e-9)
        assert gate.began.acquire(timeout=LONG_S)
        gate.let()
        assert call.result(LONG_S) == "A"


def test_an_error_meets_its_own_member_only(passes):
    began, may_go = threading.Event(), threading.Event()

    def run(members):
        if members == ["first"]:
            began.set()
            may_go.wait(LONG_S)
        if "bad" in members:
            raise EncoderError("bad")
        return members

    own = SharedPasses(run)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(own.submit, "first")
        assert began.wait(LONG_S)
        good, bad = pool.submit(own.submit, "good"), pool.submit(own.submit, "bad")
        wait_until_queued(own, 2)
        may_go.set()
        assert first.result(LONG_S) == "first"
        assert good.result(LONG_S) == "good"
        with pytest.raises(EncoderError, match="bad"):
            bad.result(LONG_S)


def test_the_worker_ends_and_begins_anew():
    passes = SharedPasses(lambda members: members, linger_s=0.0)
    for member in "abc":
        assert passes.submit(member) == member
        until_s = time.monotonic() + LONG_S
        while passes._worker is not None and time.monotonic() < until_s:
            time.sleep(0.001)
        assert passes._worker is None


# behind a stack


class SlowEncoder:
    """Encodes at once, until it is told to hang."""

    name, languages, window_tokens, fingerprint, dimension = "slow", frozenset[str](), 99, "f" * 64, 2

    def __init__(self):
        self.hangs, self.may_go = threading.Event(), threading.Event()
        self.num_passes = 0

    def fits_window(self, text):
        return len(text) < 99

    def encode(self, texts):
        self.num_passes += 1
        if self.hangs.is_set():
            assert self.may_go.wait(LONG_S)
        return np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)


@pytest.fixture
def slow():
    made = SlowEncoder()
    yield made
    made.may_go.set()


@pytest.fixture
def stack(slow, tmp_path):
    policy = tmp_path / "p.yaml"
    policy.write_text("default: {semantic: {encoder_deadline_ms: 40, languages: any}}")
    made = CacheStack(
        engines={},
        store=MemoryStore(),
        index=None,
        encoder=slow,
        prefix=PrefixLayer(BlockPool(max_bytes=1 << 20), secret=b"s" * 32),
        policies=PolicySet.load(policy),
    )
    yield made
    slow.may_go.set()
    made.close()


def reason_of(response):
    return response.trace.as_dict()["steps"][1]["reason"]


def test_a_hung_encoder_is_a_miss_and_never_an_error(stack, slow):
    ask = stack.wrap(tenant="acme", model="m")(lambda prompt: "an answer")
    assert reason_of(ask.respond("How do I pay?")) == "no_entry"
    slow.hangs.set()
    late = [ask.respond(f"How do I pay in {country}?") for country in ("Chad", "Peru", "Laos")]
    assert {reason_of(r) for r in late} == {"encoder_timeout"}
    assert {r.text for r in late} == {"an answer"}
    assert reason_of(ask.respond("How do I pay?")) == "exact", "the exact tier needs no encoder"
    slow.hangs.clear()
    slow.may_go.set()
    until_s = time.monotonic() + LONG_S
    while reason_of(ask.respond(f"What else at {time.monotonic()}?")) == "encoder_timeout":
        assert time.monotonic() < until_s


async def test_the_loop_goes_on_while_the_encoder_hangs(stack, slow):
    async def engine(prompt: str) -> str:
        return "an answer"

    ask = stack.wrap(tenant="acme", model="m")(engine)
    await ask.respond("warm")
    slow.hangs.set()
    task = asyncio.create_task(ask.respond("How do I pay?"))
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert reason_of(await task) == "encoder_timeout"
    assert ticks > 3


def test_too_long_texts_keep_their_reason_among_others(slow):
    performer = Performer(MemoryStore(), None, slow)
    assert performer.embed("x" * 100) is Reason.BEYOND_WINDOW
    assert isinstance(performer.embed("x"), Embedding)
    assert slow.num_passes == 1, "nothing is encoded for a text that does not fit"


def test_questions_that_come_together_need_few_passes(slow):
    performer, num_others = Performer(MemoryStore(), None, slow), 15
    slow.hangs.set()
    with ThreadPoolExecutor(num_others + 1) as pool:
        try:
            calls = [pool.submit(performer.embed, "the first question")]
            until_s = time.monotonic() + LONG_S
            while not slow.num_passes and time.monotonic() < until_s:
                time.sleep(0.001)
            calls += [pool.submit(performer.embed, f"question {n}") for n in range(num_others)]
            wait_until_queued(performer._questions._passes, num_others)
        finally:
            slow.may_go.set()
        assert all(isinstance(c.result(LONG_S), Embedding) for c in calls)
    assert slow.num_passes == 2
    performer.close()
