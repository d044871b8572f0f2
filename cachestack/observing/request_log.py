"""A log of requests on disk, in a ring of bounded size: what `cachestack tail` reads.

::

    requests/
      00000041.jsonl        one request a line; full, the next number begins
      00000042.jsonl

Any number of processes write: each line is in one `write` at the end of the newest file, which all of them find by its
number. The oldest files go. A line has the trace without a word of question or answer, unless `with_text` is set.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachestack.observers import Ended
from cachestack.observing.evidence import evidence_of
from cachestack.observing.hit_lines import HitLines

REQUESTS_FOLDER = "requests"
LINE_VERSION = 1
NUM_FILES = 4
MAX_BYTES = 16 * 1024 * 1024
_json = json.JSONEncoder(separators=(",", ":")).encode
try:
    import orjson
except ImportError:  # it comes with the gateway, whose hits are many
    orjson = None  # type: ignore[assignment]
_FILE = re.compile(r"(\d{8,})\.jsonl")


class RequestLog:
    """An observer that writes each request. `max_bytes`: about what all files together take, at most.

    Raises OSError where it cannot write; the stack logs that once.
    """

    def __init__(self, folder: Path, *, max_bytes: int = MAX_BYTES, with_text: bool = False) -> None:
        self.folder = folder
        self._max_file_bytes = max(1, max_bytes // NUM_FILES)
        self._with_text = with_text
        self._lock = threading.Lock()  # guards the two below
        self._fd: int | None = None
        self._number = 0
        self._process = os.getpid()
        self._hits = None if with_text else HitLines(line_of, _encoded)
        self._waiting: list[bytes] = []  # in an event loop lines are written together, once in each of its turns
        self._failure: OSError | None = None

    def __call__(self, ended: Ended) -> None:
        line = None if self._hits is None else self._hits.line(ended)
        if line is None:
            line = _encoded(line_of(ended, with_text=self._with_text))
        if os.getpid() != self._process:  # forked: somebody who is not here may have held the lock
            self._process, self._lock, self._waiting = os.getpid(), threading.Lock(), []
        loop = asyncio._get_running_loop()
        if loop is None:
            self._write(line)
            return
        with self._lock:
            self._waiting.append(line)
            is_first = len(self._waiting) == 1
        if is_first:
            loop.call_soon(self._write_waiting)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        with suppress(OSError):
            self._write(b"")
        with self._lock:
            self._close()

    def _write_waiting(self) -> None:
        try:
            self._write(b"")
        except OSError as error:
            self._failure = error  # raised where the next line comes

    def _write(self, line: bytes) -> None:
        """After those that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            lines = b"".join((*waiting, line))
            if not lines:
                return
            fd = self._open()
            if os.write(fd, lines) < len(lines):
                os.write(fd, b"\n")  # a disk that is full; what is read next must not stick to what was cut off
                raise OSError(f"a line of the request log in {self.folder} was cut short")

    def __del__(self) -> None:
        self._close()

    def _open(self) -> int:
        """The newest file, or the next where that is full."""
        if self._fd is not None:
            now = os.fstat(self._fd)
            if now.st_nlink and now.st_size < self._max_file_bytes:
                return self._fd
            self._close()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number = max((number for number, _ in log_files(self.folder)), default=1)
        while True:
            fd = os.open(self.folder / f"{self._number:08d}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if os.fstat(fd).st_size < self._max_file_bytes:
                break
            os.close(fd)
            self._number += 1
        self._fd = fd
        for number, path in log_files(self.folder):
            if number <= self._number - NUM_FILES:
                with suppress(FileNotFoundError):
                    path.unlink()
        return fd

    def _close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


def log_files(folder: Path) -> list[tuple[int, Path]]:
    """The files of a log with their numbers, the oldest first."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted((int(found[1]), folder / name) for name in names if (found := _FILE.fullmatch(name)))


def line_of(ended: Ended, *, with_text: bool = False) -> dict[str, Any]:
    """One line of the log, as JSON-able values."""
    request, trace, response = ended.request, ended.trace, ended.response
    model = next((step.detail["model"] for step in trace.steps if "model" in step.detail), request.model)
    line: dict[str, Any] = {
        "v": LINE_VERSION,
        "at_s": round(ended.at_s, 3),
        "request_id": trace.request_id,
        "tenant": request.tenant,
        "model": model,
        "outcome": ended.outcome,
        "seconds": round(trace.seconds, 6),
        "error": None if ended.error is None else type(ended.error).__name__,
    }
    if response is not None:
        usage = response.usage
        line |= {
            "hit_id": response.hit_id,
            "finish": response.finish_reason,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        }
    line["steps"] = [
        {
            "layer": step.layer,
            "outcome": step.outcome,
            "reason": step.reason,
            "seconds": round(step.seconds, 6),
            "detail": evidence_of(step),
        }
        for step in trace.steps
    ]
    if with_text:
        line |= {"question": request.question, "answer": None if response is None else response.text}
    return line


def _encoded(line: dict[str, Any]) -> bytes:
    if orjson is not None:
        with suppress(TypeError):  # text that is no Unicode, or a number beyond 64 bits
            return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    return _json(line).encode() + b"\n"
