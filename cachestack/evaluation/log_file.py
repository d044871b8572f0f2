"""Reading request logs of any length, a line at a time: JSONL, CSV, or one question a line.

A line that cannot be read costs itself only: it is named and counted.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

from cachestack.errors import InputFileError
from cachestack.evaluation.log_rows import LoggedRequest, request_of

LogFormat = Literal["jsonl", "csv", "text"]
SUFFIXES: Mapping[str, LogFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
}
DELIMITERS = (",", ";", "\t")
GZIP = b"\x1f\x8b"
MAX_NAMED = 20


@dataclass(slots=True)
class BadLines:
    """`named` says of the first few what is wrong with them."""

    num_lines: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, problem: str) -> None:
        self.num_lines += 1
        if len(self.named) < MAX_NAMED:
            self.named.append(problem)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str


def read_requests(
    path: str, bad: BadLines, *, column: str = "text", format: LogFormat | None = None, stdin: BinaryIO | None = None
) -> Iterator[LoggedRequest]:
    """The requests of a log in order; `-` is standard input. What cannot be read goes to `bad`.

    The format follows the suffix, else the first line that is not empty: JSON, a table's header with `column`, or text.
    Raises InputFileError where the file as a whole cannot be read.
    """
    name = "standard input" if path == "-" else path
    with _opened(path, name, stdin) as file:
        lines = _lines(file, name, bad)
        first = next(lines, None)
        if first is None:
            raise InputFileError(f"{name} holds no requests; it should be JSONL, CSV, or one question a line")
        lines = chain((first,), lines)
        chosen = format or SUFFIXES.get(Path(path).suffix.lower()) or _sniff(first.text, column)
        if chosen == "csv":
            yield from _of_table(lines, first, name, column, bad)
            return
        for line in lines:
            place = f"{name}:{line.number}"
            try:
                row = line.text.strip() if chosen == "text" else _parsed(line.text, place)
                yield request_of(row, place, column)
            except InputFileError as error:
                bad.add(str(error))


def _of_table(lines: Iterator[_Line], first: _Line, name: str, column: str, bad: BadLines) -> Iterator[LoggedRequest]:
    number = first.number

    def texts() -> Iterator[str]:
        nonlocal number
        for line in lines:
            number = line.number
            yield line.text + "\n"

    delimiter = _delimiter(first.text, column)
    rows = csv.reader(texts(), delimiter=delimiter, strict=True)
    header = next(rows)
    if header.count(column) != 1:
        problem = f"has no column {column!r}" if column not in header else f"has two columns {column!r}"
        raise InputFileError(f"{name} {problem}; its columns: {', '.join(header)}; name one with --column")
    while True:
        try:
            row = next(rows, None)
            if row is None:
                return
            place = f"{name}:{number}"
            if len(row) > len(header):
                raise InputFileError(f"{place}: {len(row)} cells where the header has {len(header)}")
            yield request_of(dict(zip(header, row, strict=False)), place, column)
        except csv.Error as error:
            bad.add(f"{name}:{number}: not CSV: {error}")
        except InputFileError as error:
            bad.add(str(error))


def _lines(file: BinaryIO, name: str, bad: BadLines) -> Iterator[_Line]:
    """Lines that hold something, decoded, without their ends."""
    for number, raw in enumerate(file, start=1):
        if number == 1:
            if raw.startswith(GZIP):
                raise InputFileError(f"{name} is compressed: gunzip -c FILE | cachestack eval log -")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            text = raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            bad.add(f"{name}:{number}: not UTF-8")
            continue
        if text.strip():
            yield _Line(number, text)


def _sniff(first: str, column: str) -> LogFormat:
    if first.lstrip()[:1] in ("{", "["):
        return "jsonl"
    return "csv" if column in _cells(first, _delimiter(first, column)) else "text"


def _delimiter(header: str, column: str) -> str:
    return next((d for d in DELIMITERS if column in _cells(header, d)), ",")


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _parsed(line: str, place: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise InputFileError(f"{place}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; nested too deeply
        raise InputFileError(f"{place}: cannot be read: {error}") from None


@contextmanager
def _opened(path: str, name: str, stdin: BinaryIO | None) -> Iterator[BinaryIO]:
    try:
        if path != "-":
            with Path(path).open("rb") as file:
                yield file
        elif stdin is None and sys.stdin is None:
            raise InputFileError("standard input is closed; name a file")
        else:
            yield stdin or sys.stdin.buffer
    except FileNotFoundError:
        raise InputFileError(f"{name} does not exist") from None
    except OSError as error:
        raise InputFileError(f"{name} cannot be read: {error.strerror or error}") from error
