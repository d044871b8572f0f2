"""Runs a pipeline synchronously: a generator that yields text as it comes and returns the Response."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cachestack.decisions import Response
from cachestack.effects import EngineFailed, Generate
from cachestack.engines.base import Computed, Engine, is_token_engine
from cachestack.errors import EngineError
from cachestack.performer import Performer
from cachestack.pipeline import Run
from cachestack.requests import Chunk, Generation, Usage

Drive = Generator[str, None, Response]
_REPLAY_CHARS = 24
_FINISHED = ("stop", "length")


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
        return engine.stream_tokens(
            effect.request, effect.prompt, effect.past, effect.publish_at, kv_dtype=effect.kv_dtype
        )
    return engine.stream(effect.request)


def _generate(effect: Generate, engines: Mapping[str, Engine], *, streams: bool) -> Generator[str, None, Any]:
    engine, emitted = engines[effect.engine], ""
    stream: Any = None
    try:
        stream = open_stream(effect, engine)
        if not isinstance(stream, Generator):
            raise _broken(engine, f"its stream is a {type(stream).__name__}, not a generator")
        while True:
            try:
                piece = next(stream)
            except StopIteration as stop:
                return checked_result(stop.value, engine, emitted)
            if not isinstance(piece, str):
                raise _broken(engine, f"it yielded a {type(piece).__name__}, not text")
            if piece:
                emitted += piece
                yield piece
    except Exception as error:
        raise EngineFailed(error, streams and bool(emitted)) from error
    finally:
        if isinstance(stream, Generator):
            stream.close()


def checked_result(result: Any, engine: Any, emitted: str = "") -> Any:
    """What an engine returned, if it is what the protocol says; else EngineError: nothing of it is served or kept."""
    wanted = Computed if is_token_engine(engine) else Generation
    if not isinstance(result, wanted):
        raise _broken(engine, f"it returned a {type(result).__name__}, not a {wanted.__name__}")
    generation: Any = result.generation if isinstance(result, Computed) else result
    if not isinstance(generation.text, str) or generation.finish_reason not in _FINISHED:
        kind, why = type(generation.text).__name__, generation.finish_reason
        raise _broken(engine, f"its answer is of type {kind} and ended with {why!r}")
    if not generation.text.startswith(emitted):
        raise _broken(engine, "what it streamed is not how its answer begins")
    sane = _with_possible_figures(generation)
    return replace(result, generation=sane) if isinstance(result, Computed) else sane


def _with_possible_figures(generation: Any) -> Generation:
    """An engine that measures badly costs figures, not answers: what is no count or time becomes 0."""
    usage: Any = generation.usage
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")]
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        usage = Usage()
    times: list[Any] = [generation.ttft_s, generation.decode_s]
    ttft_s, decode_s = (t if isinstance(t, (int, float)) and 0 <= t < math.inf else 0.0 for t in times)
    return Generation(generation.text, generation.finish_reason, usage, ttft_s, decode_s)


def _broken(engine: Any, what: str) -> EngineError:
    return EngineError(f"the engine {engine.name} does not keep to its protocol: {what}")


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
            emitted += piece
            yield Chunk(piece)
    finally:
        pieces.close()
    responses.append(response)
    rest = response.text.removeprefix(emitted)
    for start in range(0, len(rest), _REPLAY_CHARS):
        yield Chunk(rest[start : start + _REPLAY_CHARS])
    yield Chunk("", response.finish_reason, response.usage)
