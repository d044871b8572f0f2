"""Streams in rough hands: closed twice, by another thread, dropped, read past their end."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from cachestack.requests import Generation, Request

if TYPE_CHECKING:
    from collections.abc import Generator

    from cachestack.stack import CacheStack
    from tests.core.conftest import MakeStack


class Counting:
    """Yields numbers; notes when its stream was closed. `gate` holds it before each piece but the first."""

    name = model = "counting"

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.waiting, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def stream(self, request: Request) -> Generator[str, None, Generation]:
        try:
            for i in range(5):
                if i:
                    self.waiting.set()
                    assert self.gate.wait(10)
                yield str(i)
            return Generation("01234")
        finally:
            self.closed.set()


@pytest.fixture
def engine() -> Counting:
    return Counting()


@pytest.fixture
def stack(make_stack: MakeStack, engine: Counting) -> CacheStack:
    return make_stack(engines={"counting": engine}, meaning=False)


def test_after_the_end_there_is_nothing_more(stack: CacheStack) -> None:
    stream = stack.stream("Hello there")
    assert "".join(chunk.text for chunk in stream) == "01234"
    with pytest.raises(StopIteration):
        next(stream)
    response = stream.response
    stream.close()
    stream.close()
    assert stream.response is response is not None
    assert stack.stats().by_tenant["default"].requests == 1


def test_closed_twice_and_read_again(stack: CacheStack, engine: Counting) -> None:
    stream = stack.stream("Hello there")
    assert next(stream).text == "0"
    stream.close()
    stream.close()
    assert engine.closed.is_set()
    assert list(stream) == []
    assert (stream.response, stack.stats().by_tenant["default"].cancelled) == (None, 1)


def test_closed_before_its_first_piece_nothing_has_happened(stack: CacheStack, engine: Counting) -> None:
    stream = stack.stream("Hello there")
    stream.close()
    assert list(stream) == []
    assert not engine.closed.is_set()
    assert "default" not in stack.stats().by_tenant


def test_an_error_of_the_reader_ends_the_engine(stack: CacheStack, engine: Counting) -> None:
    def read() -> float:
        with stack.stream("Hello there") as stream:
            return sum(1 / int(chunk.text) for chunk in stream)

    with pytest.raises(ZeroDivisionError):
        read()
    assert engine.closed.is_set()
    assert stack.stats().by_tenant["default"].cancelled == 1
    assert stack.performer.store.size().num_entries == 0


def test_a_dropped_stream_ends_at_once_without_the_collector(stack: CacheStack, engine: Counting) -> None:
    """Its lease and its engine must not wait for a garbage collection that may be far away."""
    gc.disable()
    try:
        stream = stack.stream("Hello there")
        next(stream)
        gone = weakref.ref(stream)
        del stream
        assert gone() is None
        assert engine.closed.is_set()
    finally:
        gc.enable()
    assert stack.stats().by_tenant["default"].cancelled == 1


def test_another_thread_may_close_it_while_it_is_read(stack: CacheStack, engine: Counting) -> None:
    stream, read = stack.stream("Hello there"), []
    assert next(stream).text == "0"
    engine.gate.clear()
    reader = threading.Thread(target=lambda: read.extend(chunk.text for chunk in stream))
    reader.start()
    assert engine.waiting.wait(10)
    stream.close()
    assert not engine.closed.is_set()
    engine.gate.set()
    reader.join(10)
    assert engine.closed.is_set()
    assert read == ["1"], "the piece that was on its way, and no more"
    assert stack.stats().by_tenant["default"].cancelled == 1


def test_two_threads_that_read_one_stream_share_its_pieces(stack: CacheStack) -> None:
    stream, read, barrier = stack.stream("Hello there"), [[], []], threading.Barrier(2)  # type: ignore[var-annotated]

    def take(pieces: list[str]) -> None:
        barrier.wait()
        pieces.extend(chunk.text for chunk in stream)

    threads = [threading.Thread(target=take, args=(pieces,)) for pieces in read]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(filter(None, read[0] + read[1])) == ["0", "1", "2", "3", "4"]
    assert stream.response is not None
    assert stack.stats().by_tenant["default"].requests == 1
