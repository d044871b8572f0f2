"""Single flight across processes: one answers, the others wait for its entry, and a dead one holds nobody up."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cachestack.aio import AsyncCacheStack
from cachestack.asking import build_request
from cachestack.claiming import claimed
from cachestack.decisions import Response
from cachestack.entries import Entry
from cachestack.keys import Partition, contract_of
from cachestack.policy import Policy
from cachestack.policy_set import PolicySet
from cachestack.prefix.layer import PrefixLayer
from cachestack.prefix.pool import BlockPool
from cachestack.semantic.layer import Asked
from cachestack.stack import CacheStack
from cachestack.stats import Stats
from cachestack.stores.base import TAKEN
from cachestack.stores.redis.claims import RedisClaims
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.names import Names
from cachestack.stores.redis.store import RedisStore
from tests.redis_server import RedisServer
from tests.waiting import wait_until

ACME = Partition("acme")


@pytest.fixture
def prefix(redis_server: RedisServer) -> str:
    return redis_server.new_prefix()


@pytest.fixture
def open_claims(redis_server: RedisServer, prefix: str) -> Iterator[Callable[..., RedisClaims]]:
    made: list[tuple[RedisClaims, Link]] = []

    def make(life_s: float = 5.0) -> RedisClaims:
        link = Link(redis_server.url)
        made.append((RedisClaims(link, Names(prefix.encode()), life_s=life_s), link))
        return made[-1][0]

    yield make
    for claims, link in made:
        claims.close()
        link.close()


@pytest.fixture
def open_stack(redis_server: RedisServer, prefix: str) -> Iterator[Callable[..., CacheStack]]:
    made: list[CacheStack] = []

    def make(policies: str = "") -> CacheStack:
        stack = CacheStack(
            engines={},
            store=RedisStore(Link(redis_server.url), prefix=prefix),
            index=None,
            encoder=None,
            prefix=PrefixLayer(BlockPool(max_bytes=1024), secret=b"test"),
            policies=PolicySet.parse(policies, "test policy"),
            stats=Stats(),
        )
        made.append(stack)
        return stack

    yield make
    for stack in made:
        stack.close()


def test_one_claims_and_the_others_are_told(open_claims):
    one, other = open_claims(), open_claims()
    mine = one.claim(ACME, "x")
    assert mine is not None
    assert mine is not TAKEN
    assert other.claim(ACME, "x") is TAKEN
    assert one.claim(ACME, "x") is TAKEN
    assert other.claim(Partition("other"), "x") is not TAKEN, "a partition is a wall here too"
    assert other.claim(ACME, "y") is not TAKEN


def test_who_is_told_that_nothing_was_kept_goes_on_alone(open_claims):
    one, other = open_claims(), open_claims()
    one.claim(ACME, "x").end(is_kept=False)
    wait_until(lambda: other.claim(ACME, "x") is None)


def test_a_claim_that_ended_well_can_be_taken(open_claims):
    one, other = open_claims(), open_claims()
    one.claim(ACME, "x").end(is_kept=True)
    taken = []

    def take() -> bool:
        taken.append(other.claim(ACME, "x"))
        return taken[-1] is not TAKEN

    wait_until(take)
    assert taken[-1] is not None


def test_a_live_claim_outlives_its_life(open_claims):
    one, other = open_claims(life_s=0.4), open_claims()
    one.claim(ACME, "x")
    pause = threading.Event()
    for _ in range(12):
        pause.wait(0.1)
        assert other.claim(ACME, "x") is TAKEN


class Slow:
    """A function of one stack that waits until it is let go."""

    def __init__(self, stack: CacheStack, text: str = "the answer") -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.num_calls = 0
        self.text = text
        self.respond: Callable[[str], Response] = stack.wrap(tenant="acme", model="m", name="f")(self._call).respond  # type: ignore[attr-defined]

    def _call(self, prompt: str) -> str:
        self.num_calls += 1
        self.begun.set()
        assert self.go.wait(20)
        return self.text


def test_two_processes_call_the_engine_once(open_stack):
    one, other = Slow(open_stack()), Slow(open_stack())
    other.go.set()
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(one.respond, "Hello there")
        assert one.begun.wait(10)
        rest = [pool.submit(other.respond, "Hello there") for _ in range(4)]
        one.go.set()
        answers = [f.result(20) for f in (first, *rest)]
    assert [a.text for a in answers] == ["the answer"] * 5
    assert (one.num_calls, other.num_calls) == (1, 0)
    assert {a.trace.served_from for a in answers[1:]} <= {"exact", "shared"}


def test_another_tenant_does_not_wait(open_stack):
    one, stack = Slow(open_stack()), open_stack()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.respond, "Hello there")
        assert one.begun.wait(10)
        ask = stack.wrap(tenant="other", model="m", name="f")(lambda prompt: "theirs")
        assert ask.respond("Hello there").text == "theirs"  # type: ignore[attr-defined]
        one.go.set()
        first.result(20)


def test_an_answer_that_is_not_kept_holds_nobody_up_for_long(open_stack):
    one, other = Slow(open_stack(), text=" "), Slow(open_stack(), text="words")
    other.go.set()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.respond, "Hello there")
        assert one.begun.wait(10)
        second = pool.submit(other.respond, "Hello there")
        one.go.set()
        first.result(20)
        assert second.result(20).text == "words"


def test_a_leader_that_fails_frees_the_others(open_stack):
    stack, other = open_stack(), Slow(open_stack())
    other.go.set()
    begun, go = threading.Event(), threading.Event()

    def broken(prompt: str) -> str:
        begun.set()
        assert go.wait(20)
        raise RuntimeError("upstream has failed")

    ask = stack.wrap(tenant="acme", model="m", name="f")(broken)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, "Hello there")
        assert begun.wait(10)
        second = pool.submit(other.respond, "Hello there")
        go.set()
        with pytest.raises(RuntimeError, match="upstream"):
            first.result(20)
        assert second.result(20).text == "the answer"


def test_a_task_that_waits_for_another_process_does_not_block_the_loop(open_stack):
    one, stack = Slow(open_stack()), AsyncCacheStack(open_stack())

    async def ask(prompt: str) -> str:
        raise AssertionError("the other process answers")

    async def both() -> tuple[Response, int]:
        num_turns = 0
        wrapped = stack.wrap(tenant="acme", model="m", name="f")(ask)
        waiting = asyncio.create_task(wrapped.respond("Hello there"))  # type: ignore[attr-defined]
        while num_turns < 200:
            await asyncio.sleep(0.001)
            num_turns += 1
        assert not waiting.done()
        one.go.set()
        return await waiting, num_turns

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.respond, "Hello there")
        assert one.begun.wait(10)
        response, _ = asyncio.run(both())
        first.result(20)
    assert response.text == "the answer"


LEADER = """
import sys, time
from cachestack.keys import Partition, contract_of
from cachestack.policy import Policy
from cachestack.stores.redis.claims import RedisClaims
from cachestack.stores.redis.link import Link
from cachestack.stores.redis.names import Names
claim = RedisClaims(Link(sys.argv[1]), Names(sys.argv[2].encode()), life_s=0.5).claim(Partition("acme"), "x")
print(claim is not None, flush=True)
time.sleep(60)
"""


def test_a_killed_leader_frees_its_followers(redis_server, prefix, open_claims):
    other = open_claims()
    command = [sys.executable, "-c", LEADER, redis_server.url, prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as leader:
        assert leader.stdout is not None
        assert leader.stdout.readline() == "True\n"
        assert other.claim(ACME, "x") is TAKEN
        leader.send_signal(signal.SIGKILL)
    wait_until(lambda: other.claim(ACME, "x") is not TAKEN)


def test_an_answer_that_comes_too_late_does_not_replace_a_newer_one(redis_server, prefix, make_entry, clock):
    """The leader was taken for dead; another one has answered since."""
    store = RedisStore(Link(redis_server.url), clock, prefix=prefix)
    old = make_entry("q")
    clock.tick()
    new = make_entry("q")
    store.put(new, keep_newer=True)
    assert not store.put(old, keep_newer=True)
    assert store.find_exact(ACME, old.exact) == new
    store.close()


@pytest.fixture
def asked() -> Asked:
    request = build_request("Who wrote Faust?", tenant="acme", model="m")
    return Asked(request, contract_of(request, "m"), ACME)


def test_nobody_is_waited_for_for_ever(asked):
    """The pauses add up to the longest wait, then the engine is called here too."""
    paused_s = []

    def perform(run):
        effect = next(run)
        while True:
            name = type(effect).__name__
            paused_s.extend([effect.seconds] if name == "Pause" else [])
            effect = run.send(TAKEN if name == "ClaimQuestion" else None)

    with pytest.raises(StopIteration) as stopped:
        perform(claimed(asked, Policy(), lambda: 0.0))
    assert stopped.value.value is None
    assert 120 <= sum(paused_s) < 121


@pytest.mark.parametrize(("age_s", "is_taken"), [(100.0, True), (90_000.0, False)])
def test_an_entry_that_is_too_old_for_the_asker_is_not_taken(asked, make_entry, clock, age_s, is_taken):
    entry: Entry = make_entry(asked.request.question, ttl_s=1e9)
    run = claimed(asked, Policy(), lambda: clock() + age_s)
    next(run)
    assert type(run.send(TAKEN)).__name__ == "Pause"
    assert type(run.send(None)).__name__ == "ClaimQuestion"
    assert type(run.send(TAKEN)).__name__ == "FindExact"
    if is_taken:
        with pytest.raises(StopIteration) as stopped:
            run.send(entry)
        assert stopped.value.value.value == entry
    else:
        assert type(run.send(entry)).__name__ == "Pause"
