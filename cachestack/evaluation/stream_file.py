"""Streams from files: JSON lines with `text` or `messages`, and `label`, the identity of the right answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from cachestack.errors import InputFileError, RequestError
from cachestack.evaluation.stream_material import Asked
from cachestack.keys import contract_of
from cachestack.requests import Request, as_messages


def read_stream(file: str, limit: int | None = None) -> list[Asked]:
    """Requests in order. Raises InputFileError with the line that cannot be used."""
    found: list[Asked] = []
    try:
        with Path(file).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if limit is not None and len(found) >= limit:
                    break
                if line.strip():
                    found.append(_asked(line, f"{file}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"{file} cannot be read: {error}") from error
    if not found:
        raise InputFileError(f"{file}: no requests in it")
    return found


def _asked(line: str, place: str) -> Asked:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"{place}: no JSON: {error}") from None
    if not isinstance(row, dict):
        raise InputFileError(f"{place}: a line must be an object with text or messages, and label")
    label, text, messages = row.get("label"), row.get("text"), row.get("messages")
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise InputFileError(f"{place}: label must be a text or a whole number: which answer is right")
    if (text is None) == (messages is None):
        raise InputFileError(f"{place}: give either text or messages")
    try:
        request = Request(as_messages(cast(Any, text if messages is None else messages)))
    except (RequestError, TypeError) as error:
        raise InputFileError(f"{place}: {error}") from None
    return Asked(request.question, str(label), contract_of(request, "").digest if len(request.messages) > 1 else "")
