"""Pairs of requests with a judgement, as files hold them: asked and answered, asked now, should the answer serve?"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from cachestack.errors import InputFileError, RequestError
from cachestack.requests import Message, Request, as_messages

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Pair:
    """`a` was asked first and answered, `b` is asked now. `place` says where it was read, as `file:line`.

    `language` is what the file says of it (ISO 639-1), or None.
    """

    id: str
    a: tuple[Message, ...]
    b: tuple[Message, ...]
    same_answer: bool
    category: str
    place: str
    language: str | None = None


def read_pairs(path: str | Path, limit: int | None = None, stdin: BinaryIO | None = None) -> tuple[Pair, ...]:
    """The pairs of a JSONL file, at most `limit`; `-` is standard input. Raises InputFileError with file and line."""
    name = "standard input" if str(path) == STDIN else str(path)
    try:
        if str(path) == STDIN:
            lines = io.TextIOWrapper(_standard_input(stdin), encoding="utf-8-sig")
            try:
                pairs = tuple(islice(_parsed(lines, name), limit))
            finally:
                lines.detach()  # or standard input would be closed with it
        else:
            with Path(path).open(encoding="utf-8-sig") as file:
                pairs = tuple(islice(_parsed(file, name), limit))
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{name} cannot be read: {error}") from error
    if not pairs:
        raise InputFileError(f"{name} holds no pairs; each line needs the keys a, b and same_answer")
    return pairs


def pair_of(row: Mapping[str, Any], place: str) -> Pair:
    """A pair from its keys. Raises InputFileError that names `place`."""
    missing = [key for key in ("a", "b", "same_answer") if key not in row]
    if missing:
        raise InputFileError(f"{place}: the keys {', '.join(missing)} are missing; needed: a, b, same_answer")
    if not isinstance(row["same_answer"], bool):
        raise InputFileError(f"{place}: same_answer must be true or false, not {row['same_answer']!r}")
    language = row.get("language")
    return Pair(
        id=str(row.get("id", place)),
        a=_messages(row["a"], "a", place),
        b=_messages(row["b"], "b", place),
        same_answer=row["same_answer"],
        category=str(row.get("category", "")) or "none",
        place=place,
        language=str(language) if language else None,
    )


def _standard_input(stdin: BinaryIO | None) -> BinaryIO:
    if stdin is None and sys.stdin is None:
        raise InputFileError("standard input is closed; name a file")
    return stdin or sys.stdin.buffer


def _parsed(lines: Iterable[str], name: str) -> Iterator[Pair]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _pair(line, f"{name}:{number}")


def _pair(line: str, place: str) -> Pair:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{place}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise InputFileError(f"{place}: a line must be an object with the keys a, b and same_answer")
    return pair_of(row, place)


def _messages(value: Any, key: str, place: str) -> tuple[Message, ...]:
    try:
        return Request(as_messages(value)).messages
    except RequestError as error:
        raise InputFileError(f"{place}: {key}: {error}") from error
