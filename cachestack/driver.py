"""Runs a pipeline synchronously: a generator that yields text as it comes and returns the Response."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from cachestack.calling import Call, call_in_time
from cachestack.continuation import Continuation
from cachestack.decisions import Response
from cachestack.effects import EngineFailed, Follow, Generate
from cachestack.engines.base import Computed, Engine
from cachestack.leases import Landed, Lease
from cachestack.performer import Performer
from cachestack.pipeline import Run
from cachestack.requests import Chunk, Delta, Generation, Piece

Drive = Generator[Piece, None, Response]
REPLAY_CHARS = 24
PATIENCE_S = 0.02
"""How long a follower waits for a leader whose reader pauses, before it reads the engine on in the leader's place."""


def drive(run: Run, performer: Performer, engines: Mapping[str, Engine], *, streams: bool = True) -> Drive:
    """Perform the run's effects. Closing this generator closes the run: leases end, nothing is published.

    `streams`: somebody sees the pieces as they come, so that an engine that fails after one can't be tried again.
    """
    try:
        effect = next(run)
        while True:
            try:
                if isinstance(effect, Generate):
                    result = yield from _generate(effect, engines, streams=streams)
                elif isinstance(effect, Follow):
                    result = yield from _follow(effect, streams=streams)
                else:
                    result = performer.perform(effect, engines)
            except Exception as error:
                effect = run.throw(error)
            else:
                effect = run.send(result)
    except StopIteration as stop:
        response: Response = stop.value
        return response
    finally:
        run.close()


def _generate(effect: Generate, engines: Mapping[str, Engine], *, streams: bool) -> Generator[Piece, None, Any]:
    engine, lease = engines[effect.engine], effect.lease
    pieces = call_in_time(effect, engine)
    if lease is None:
        reading = pieces
    elif streams:
        reading = lease.pump(pieces).read()
    else:
        reading = leading(pieces, lease)
    passed_on = passing(lease)
    try:
        while True:
            try:
                piece = next(reading)
            except StopIteration as stop:
                passed_on.check(text_of(stop.value))
                return stop.value
            if piece := passed_on.passes(piece):
                yield piece
    except Exception as error:
        raise EngineFailed(error, streams and passed_on.has_passed_on) from error
    finally:
        reading.close()


def leading(pieces: Call, lease: Lease) -> Call:
    """A call whose pieces and end are shared as they come."""
    try:
        while True:
            with lease.working():
                try:
                    piece = next(pieces)
                except StopIteration as stop:
                    lease.land(stop.value)
                    return stop.value
            lease.push(piece)
            yield piece
    finally:
        pieces.close()


def passing(lease: Lease | None) -> Continuation:
    """What is passed on to the reader: all, or what goes beyond what it got while the request followed another."""
    passed_on = Continuation() if lease is None or lease.passed_on is None else lease.passed_on
    passed_on.restart()
    return passed_on


def text_of(result: Generation | Computed) -> str:
    return result.generation.text if isinstance(result, Computed) else result.text


def _follow(effect: Follow, *, streams: bool) -> Generator[Piece, None, Landed | Lease]:
    seat, ready = effect.seat, threading.Event()
    seat.listen(ready.set, streams=streams)
    patience_s = PATIENCE_S
    while True:
        ready.clear()
        news = seat.news()
        yield from news.pieces
        if news.end is not None:
            return news.end
        if news.pieces:
            continue
        pump = seat.stalled()
        if pump is None:
            ready.wait()
        elif ready.wait(patience_s):
            patience_s = PATIENCE_S
        else:
            patience_s = 0.0 if pump.help() else PATIENCE_S


class Stream(Iterator[Chunk]):
    """Chunks of one answer as they come; the last has the finish reason and the usage.

    After the last chunk `response` holds the whole answer with its trace. `close()`, from any thread, or leaving a
    `with` block early, stops the engine at the next token; nothing of a stream that was not read to its end is stored.
    Threads that read one stream take turns.
    """

    def __init__(self, pieces: Drive) -> None:
        self._responses: list[Response] = []
        self._chunks = _chunks(pieces, self._responses)
        self._reading = threading.Lock()
        self._closed = False

    @property
    def response(self) -> Response | None:
        return self._responses[0] if self._responses else None

    def __next__(self) -> Chunk:
        with self._reading:
            try:
                if self._closed:
                    raise StopIteration
                return next(self._chunks)
            finally:
                if self._closed:
                    self._chunks.close()

    def close(self) -> None:
        self._closed = True
        if self._reading.acquire(blocking=False):  # else the thread that reads closes when its piece has come
            try:
                self._chunks.close()
            finally:
                self._reading.release()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _chunks(pieces: Drive, responses: list[Response]) -> Generator[Chunk, None, None]:
    emitted = ""
    try:
        while True:
            try:
                piece = next(pieces)
            except StopIteration as stop:
                response: Response = stop.value
                break
            if isinstance(piece, Delta):
                yield Chunk("", delta=piece)
            else:
                emitted += piece
                yield Chunk(piece)
    finally:
        pieces.close()
    responses.append(response)
    rest = response.text.removeprefix(emitted)
    for start in range(0, len(rest), REPLAY_CHARS):
        yield Chunk(rest[start : start + REPLAY_CHARS])
    yield Chunk("", response.finish_reason, response.usage)
