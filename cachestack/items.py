"""Reading items to classify from CSV or JSONL, and writing results to either."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Literal

from cachestack.errors import InputFileError

Format = Literal["csv", "jsonl"]
SUFFIXES: Mapping[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
DELIMITERS = (",", ";", "\t")
MAX_CELL_CHARS = 2**31 - 1
FIELDS = ("item", "text", "label", "probability", "mass", "abstained", "error")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One line of output. `item` counts from 0 in input order; `label` is None where `abstained` or `error` is set."""

    item: int
    text: str
    label: str | None
    probability: float | None
    mass: float | None
    abstained: bool = False
    error: str | None = None


def read_text(path: str, *, what: str) -> str:
    """A UTF-8 file (a byte-order mark is dropped), without its last line end. Raises InputFileError."""
    text = decode_text(_bytes_of(path, None), path)
    if not text.strip():
        raise InputFileError(f"{path} is empty; it should hold {what}")
    return text.removesuffix("\n").removesuffix("\r")


def read_items(
    path: str,
    *,
    column: str,
    format: Format | None = None,
    limit: int | None = None,
    stdin: BinaryIO | None = None,
) -> tuple[str, ...]:
    """The texts under `column`: a CSV column or a JSONL key. `-` reads standard input.

    The format follows the suffix, or the first character where the suffix says nothing. A missing or null value is
    an empty text, so that the item keeps its place. Raises InputFileError, naming file and line.
    """
    raw = _bytes_of(path, stdin)
    name = "standard input" if path == "-" else path
    text = decode_text(raw, name)
    if not text.strip():
        raise InputFileError(f"{name} is empty; it should be CSV with a header line, or JSONL")
    chosen = format or SUFFIXES.get(Path(path).suffix.lower()) or _sniff(text)
    reader = _read_jsonl if chosen == "jsonl" else _read_csv
    with _cells_of_any_length():
        return tuple(islice(reader(text, column, name), limit))


@contextmanager
def _cells_of_any_length() -> Iterator[None]:
    """The csv module refuses cells beyond 131,072 characters: one long text would cost the whole file."""
    before = csv.field_size_limit(MAX_CELL_CHARS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _bytes_of(path: str, stdin: BinaryIO | None) -> bytes:
    if path == "-":
        if stdin is None and sys.stdin is None:
            raise InputFileError("standard input is closed; name a file")
        return (stdin or sys.stdin.buffer).read()
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputFileError(f"{path} does not exist") from None
    except OSError as error:
        raise InputFileError(f"{path} cannot be read: {error.strerror}") from error


def decode_text(raw: bytes, name: str) -> str:
    """UTF-8, with or without a mark. Raises InputFileError with the line that is not."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputFileError(f"{name} line {line} is not UTF-8; save the file as UTF-8") from None


def _sniff(text: str) -> Format:
    return "jsonl" if text.lstrip()[:1] == "{" else "csv"


def _read_jsonl(text: str, column: str, name: str) -> Iterator[str]:
    # Not splitlines(): U+2028 and its kin are legal inside a JSON string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputFileError(f"{name} line {number} is not JSON: {error.msg}") from None
        except RecursionError:
            raise InputFileError(f"{name} line {number} is nested too deeply") from None
        except ValueError as error:  # a whole number of thousands of digits
            raise InputFileError(f"{name} line {number} can't be read: {error}") from None
        if not isinstance(row, dict):
            raise InputFileError(f"{name} line {number} is not a JSON object")
        if column not in row:
            raise InputFileError(f"{name} line {number} has no key {column!r}; its keys: {_names(row)}")
        yield _cell(row[column], f"{name} line {number}", column)


def _cell(value: Any, where: str, column: str) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        raise InputFileError(f"{where}: the value of {column!r} is not text")
    return value if isinstance(value, str) else json.dumps(value)


def _read_csv(text: str, column: str, name: str) -> Iterator[str]:
    delimiter = _delimiter(text, column)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = next(rows)
        position = _position(header, column, name)
        for row in rows:
            if not row:
                continue
            if len(row) > len(header):
                raise InputFileError(
                    f"{name} line {rows.line_num} has {len(row)} cells where the header has {len(header)}; "
                    f"put cells that contain {delimiter!r} in double quotes"
                )
            yield row[position] if position < len(row) else ""
    except csv.Error as error:
        raise InputFileError(f"{name} line {rows.line_num} is not CSV: {error}") from None


def _delimiter(text: str, column: str) -> str:
    """The first delimiter under which the header has the column; a comma where none has."""
    for delimiter in DELIMITERS:
        try:
            if column in next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)):
                return delimiter
        except csv.Error:
            continue
    return ","


def _position(header: list[str], column: str, name: str) -> int:
    found = header.count(column)
    if found != 1:
        problem = f"has no column {column!r}" if not found else f"has {found} columns {column!r}"
        raise InputFileError(f"{name} {problem}; its columns: {_names(header)}")
    return header.index(column)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def output_format(path: str) -> Format:
    """What a result file's suffix asks for; `-` is CSV. Raises InputFileError for another suffix."""
    if path == "-":
        return "csv"
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES or suffix == ".tsv":
        raise InputFileError(f"{path}: results are written as .csv or .jsonl; {suffix or 'no suffix'} is neither")
    return SUFFIXES[suffix]


def check_apart(out: str, *read: str | None) -> None:
    """Raises InputFileError where results would take the place of a file that is read."""
    for path in read:
        if path is not None and path != "-" and os.path.realpath(path) == os.path.realpath(out):
            raise InputFileError(f"{out} is read by this run, and results would take its place; name another file")


def write_header(stream: IO[str]) -> None:
    """The first line of a CSV file of results."""
    csv.writer(stream, lineterminator="\n").writerow(FIELDS)


def write_rows(stream: IO[str], rows: Iterable[ResultRow], format: Format) -> None:
    """Rows without a header."""
    if format == "csv":
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([_as_cell(getattr(row, field)) for field in FIELDS] for row in rows)
    else:
        for row in rows:
            stream.write(json.dumps({f: getattr(row, f) for f in FIELDS}, ensure_ascii=False) + "\n")


def _as_cell(value: Any) -> Any:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


class ResultFile:
    """Results written beside their final place and renamed when the block ends.

    However it ends, Ctrl-C and a full disk included, the rows written so far become the file: each is whole. A run
    that stops before its first row leaves what was there. Raises InputFileError for what cannot be written.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.format = output_format(path)
        self.num_rows = 0
        self._num_bytes = 0
        self._aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")

    def __enter__(self) -> ResultFile:
        if self.path.is_dir():
            raise InputFileError(f"{self.path} is a folder; name a .csv or .jsonl file")
        with self._named():
            self._file = self._aside.open("wb", buffering=0)
        if self.format == "csv":
            header = io.StringIO()
            write_header(header)
            try:
                self._append(header.getvalue())
            except InputFileError:
                self._file.close()
                self._aside.unlink(missing_ok=True)
                raise
        return self

    def write(self, rows: Iterable[ResultRow]) -> None:
        """Append whole rows, or none of them; they are on their way to the disk when this returns."""
        batch = io.StringIO()
        rows = tuple(rows)
        write_rows(batch, rows, self.format)
        self._append(batch.getvalue())
        self.num_rows += len(rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._named():
            self._file.close()
            if error is None or self.num_rows:
                os.replace(self._aside, self.path)
            else:
                self._aside.unlink(missing_ok=True)

    def _append(self, text: str) -> None:
        # A lone surrogate, which JSON can carry, is written as its escape: valid UTF-8, and valid JSON.
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        written = self._num_bytes + len(rest)
        try:
            with self._named():
                while rest:
                    rest = rest[self._file.write(rest) :]
            self._num_bytes = written
        finally:
            if self._num_bytes != written:
                self._file.truncate(self._num_bytes)  # no half row

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputFileError(f"{self.path} cannot be written: {error.strerror}") from error
