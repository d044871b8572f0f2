"""Verifiers by name: made once, each call with a deadline, and nothing they do wrong reaches the caller."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from cachestack.effects import Verify
from cachestack.errors import ConfigError
from cachestack.semantic.verifiers.base import Agreement
from cachestack.semantic.verifiers.known import shelf_of
from cachestack.semantic.verifiers.shelf import VerifierShelf

LONG_S = 60.0
YES = Agreement(True, 1.0, {"reply": "YES"})


class Calls:
    """A TextVerifier made of a function; notes what it was asked."""

    def __init__(self, answer: Callable[[], Agreement]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, float]] = []

    def verify_texts(self, cached: str, asked: str, score: float) -> Agreement:
        self.asked.append((cached, asked, score))
        return self.answer()


class Held:
    """Blocks each call until released; says when one is inside and when it has left."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.go = threading.Event()
        self.threads: list[threading.Thread] = []

    def verify_texts(self, cached: str, asked: str, score: float) -> Agreement:
        self.threads.append(threading.current_thread())
        self.inside.release()
        assert self.go.wait(LONG_S)
        return YES

    def release(self) -> None:
        """And wait until every call has come back."""
        self.go.set()
        for thread in self.threads:
            thread.join(LONG_S)
            assert not thread.is_alive()


def raises(error: BaseException) -> Callable[[], Agreement]:
    def answer() -> Agreement:
        raise error

    return answer


def ask(shelf: VerifierShelf, name: str = "one", deadline_s: float = LONG_S) -> Agreement:
    return shelf.verify(name, "cached", "asked", 0.7, deadline_s)


def test_what_it_is_asked_and_what_it_says_go_through() -> None:
    verifier = Calls(lambda: YES)
    said = VerifierShelf(lambda name: verifier).perform(Verify("one", "c", "a", 0.625, LONG_S))
    assert said is YES
    assert verifier.asked == [("c", "a", 0.625)]


def test_a_call_that_hangs_is_no_agreement_and_the_next_is_refused_at_once_until_it_is_back() -> None:
    held = Held()
    shelf = VerifierShelf(lambda name: held if name == "one" else Calls(lambda: YES))
    late = ask(shelf, deadline_s=0.01)
    assert (late.agrees, late.score, late.evidence) == (False, 0.0, {"error": "no answer within 0.01 s"})
    # with a deadline that would never pass: only a refusal comes back
    refused = ask(shelf)
    assert (refused.agrees, refused.evidence) == (False, {"error": "an earlier call has not come back"})
    assert len(held.threads) == 1
    assert ask(shelf, "two") is YES  # another verifier is free
    held.release()
    assert ask(shelf) is YES
    assert len(held.threads) == 2


def test_of_calls_that_hang_together_all_must_be_back() -> None:
    first, second = Held(), Held()
    turns = iter((first, second))
    lock = threading.Lock()

    class Takes:
        def verify_texts(self, cached: str, asked: str, score: float) -> Agreement:
            with lock:
                mine = next(turns, None)
            return YES if mine is None else mine.verify_texts(cached, asked, score)

    shelf = VerifierShelf(lambda name: Takes())
    said: list[Agreement] = []
    callers = [threading.Thread(target=lambda: said.append(ask(shelf, deadline_s=1.0))) for _ in range(2)]
    for caller in callers:
        caller.start()
    entered = first.inside.acquire(timeout=LONG_S) and second.inside.acquire(timeout=LONG_S)
    for caller in callers:
        caller.join(LONG_S)
    if not entered:
        pytest.fail("the two calls were not under way together")
    assert [one.agrees for one in said] == [False, False]
    second.release()
    assert ask(shelf).evidence == {"error": "an earlier call has not come back"}
    first.release()
    assert ask(shelf) is YES


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        TimeoutError("inside"),
        MemoryError(),
        KeyboardInterrupt("interrupted"),
        SystemExit(1),
        GeneratorExit(),
    ],
)
def test_nothing_that_a_verifier_raises_reaches_the_caller(error: BaseException) -> None:
    answers = iter((raises(error), lambda: YES))
    shelf = VerifierShelf(lambda name: Calls(lambda: next(answers)()))
    said = ask(shelf)
    assert (said.agrees, said.score) == (False, 0.0)
    assert type(error).__name__ in said.evidence["error"]
    assert ask(shelf) is YES  # the next call is a new one


def test_a_verifier_that_cannot_be_made_never_agrees_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    made: list[str] = []

    def make(name: str) -> Calls:
        made.append(name)
        raise OSError(f"no weights for {name}")

    shelf = VerifierShelf(make)
    with caplog.at_level(logging.WARNING, logger="cachestack"):
        said = [ask(shelf) for _ in range(3)] + [ask(shelf, "two")]
    assert made == ["one", "two"]
    assert [one.agrees for one in said] == [False] * 4
    assert said[0].evidence == said[2].evidence == {"error": "OSError: no weights for one"}
    assert [record.getMessage().count("one") > 0 for record in caplog.records] == [True, False]


@pytest.mark.parametrize("fails", [False, True])
def test_first_calls_at_once_make_one_verifier(fails: bool) -> None:
    num_threads = 8
    start = threading.Barrier(num_threads)
    made: list[str] = []
    asked_while_making = threading.Event()

    def make(name: str) -> Calls:
        made.append(name)
        assert asked_while_making.wait(LONG_S)
        if fails:
            raise OSError("no weights")
        return Calls(lambda: YES)

    shelf = VerifierShelf(make)
    said: list[Agreement] = []

    def call() -> None:
        start.wait(LONG_S)
        # a deadline that making would exceed on its own, were it counted
        said.append(ask(shelf))

    threads = [threading.Thread(target=call) for _ in range(num_threads - 1)]
    for thread in threads:
        thread.start()
    start.wait(LONG_S)
    asked_while_making.set()
    for thread in threads:
        thread.join(LONG_S)
    assert made == ["one"]
    assert [one.agrees for one in said] == [not fails] * (num_threads - 1)


def test_making_does_not_count_against_the_deadline() -> None:
    """Making ends only after the deadline has passed for sure: it waits for another verifier's call to be given up."""
    held = Held()

    def make(name: str) -> Calls | Held:
        if name == "two":
            return held
        assert ask(shelf, "two", deadline_s=0.2).agrees is False  # lasts as long as the deadline below
        return Calls(lambda: YES)

    shelf = VerifierShelf(make)
    assert ask(shelf, deadline_s=0.2).evidence != {"error": "no answer within 0.2 s"}
    held.release()


class Engine:
    name, model = "small", "m"

    def stream(self, request):  # type: ignore[no-untyped-def]
        raise AssertionError("not asked here")
        yield


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("judge:gpt", "names no engine; there are: small"),
        ("local", "can only be the first"),
        ("lexical", "can only be the first"),
        ("nobody", "can only be the first"),
    ],
)
def test_a_name_that_is_not_known_says_what_there_is(name: str, says: str) -> None:
    said = ask(shelf_of({"small": Engine()}), name)
    assert said.agrees is False
    assert says in said.evidence["error"]
    assert ConfigError.__name__ in said.evidence["error"]


def test_without_engines_there_are_none() -> None:
    assert "there are: none" in ask(shelf_of(), "judge:gpt").evidence["error"]
