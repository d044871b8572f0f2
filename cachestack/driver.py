"""Runs a pipeline synchronously: a generator that yields text as it comes and returns the Response."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from cachestack.decisions import Response
from cachestack.effects import EngineFailed, Generate
from cachestack.engines.base import Engine, is_token_engine
from cachestack.performer import Performer
from cachestack.pipeline import Run
from cachestack.requests import Chunk

Drive = Generator[str, None, Response]
_REPLAY_CHARS = 24


def drive(run: Run, performer: Performer, engines: Mapping[str, Engine]) -> Drive:
    """Perform the run's effects. Closing this generator closes the run: leases end, nothing is published."""
    try:
        effect = next(run)
        while True:
            try:
                if isinstance(effect, Generate):
                    result = yield from _generate(effect, engines)
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


def open_stream(effect: Generate, engine: Engine) -> Generator[str, None, Any]:
    """The engine's stream for one `Generate`."""
    if is_token_engine(engine):
        assert effect.prompt is not None, "a token engine needs a prepared prompt"
        return engine.stream_tokens(effect.request, effect.prompt, effect.past, effect.publish_at)
    return engine.stream(effect.request)


def _generate(effect: Generate, engines: Mapping[str, Engine]) -> Generator[str, None, Any]:
    emitted = False
    try:
        stream = open_stream(effect, engines[effect.engine])
        while True:
            try:
                piece = next(stream)
            except StopIteration as stop:
                return stop.value
            if piece:
                emitted = True
                yield piece
    except Exception as error:
        raise EngineFailed(error, emitted) from error
    finally:
        if "stream" in locals():
            stream.close()


class Stream(Iterator[Chunk]):
    """Chunks of one answer as they come; the last has the finish reason and the usage.

    After the last chunk `response` holds the whole answer with its trace. `close()`, or leaving a `with` block early,
    stops the engine at the next token; nothing of a stream that was not read to its end is stored.
    """

    def __init__(self, pieces: Drive) -> None:
        self._chunks = _chunks(pieces, self)
        self.response: Response | None = None

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        self._chunks.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _chunks(pieces: Drive, stream: Stream) -> Generator[Chunk, None, None]:
    emitted = ""
    try:
        while True:
            try:
                piece = next(pieces)
            except StopIteration as stop:
                response: Response = stop.value
                break
            emitted += piece
            yield Chunk(piece)
    finally:
        pieces.close()
    stream.response = response
    rest = response.text.removeprefix(emitted)
    for start in range(0, len(rest), _REPLAY_CHARS):
        yield Chunk(rest[start : start + _REPLAY_CHARS])
    yield Chunk("", response.finish_reason, response.usage)
