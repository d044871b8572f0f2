"""From one row of a request log to a request: what a row may hold, and under which names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cachestack.errors import InputFileError, RequestError
from cachestack.lint.logs import as_logged
from cachestack.requests import Message, Request, Sampling, Usage

TIME_KEYS = ("time", "timestamp", "created_at", "created")
WRAPPINGS = ("body", "request")
"""Under which batch files and proxies keep what was sent."""

LEAST_MILLISECONDS = 10**11
"""A whole time this large is in milliseconds: in seconds it would be in the year 5138."""

CHARACTERS_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """`time_s`: when it was asked, in seconds since the epoch, or None. `usage` is what the log counted; where it
    counted nothing, the prompt's characters by four (`is_estimate`), and no answer."""

    request: Request
    place: str
    time_s: float | None = None
    usage: Usage = field(default_factory=Usage)
    is_estimate: bool = True


def request_of(row: Any, place: str, column: str = "text") -> LoggedRequest:
    """A request from text, a list of messages, or an object: with `messages` or `prompt` as OpenAI's bodies have them,
    or with its question under `column`.

    `tenant`, `user`, `role` and a time may stand beside it. Raises InputFileError that names `place`.
    """
    merged: dict[str, Any] = {}
    if isinstance(row, Mapping):
        inner: Mapping[str, Any] = next((row[key] for key in WRAPPINGS if isinstance(row.get(key), Mapping)), {})
        merged = {**row, **inner}
        if isinstance(merged.get(column), str) and merged.get("messages") is None:
            merged["prompt"] = merged[column]
    logged = as_logged(merged if isinstance(row, Mapping) else row, place)
    if logged.has_other_parts:
        raise InputFileError(f"{place}: an image, a sound or a file is part of it; only texts are compared")
    messages = logged.messages or (Message("user", logged.text or ""),)
    try:
        request = Request(
            messages,
            tenant=logged.tenant,
            user=logged.user,
            role=_text_or_none(merged.get("role")),
            model=str(merged.get("model") or ""),
            sampling=_sampling(merged),
            tools=logged.tools,
            response_format=merged.get("response_format"),
        )
    except RequestError as error:
        raise InputFileError(f"{place}: {error}") from None
    usage = _usage(merged)
    estimate = Usage(prompt_tokens=math.ceil(sum(len(m.content) for m in messages) / CHARACTERS_A_TOKEN))
    return LoggedRequest(request, place, _time_s(merged, place), usage or estimate, usage is None)


def _sampling(row: Mapping[str, Any]) -> Sampling:
    stop = row.get("stop") or ()
    if not isinstance(stop, (str, list, tuple)):
        raise RequestError(f"stop must be a text or a list of texts, not {stop!r}")
    limit = next((row[key] for key in ("max_completion_tokens", "max_tokens") if row.get(key) is not None), None)
    return Sampling(
        temperature=_number(row, "temperature"),
        top_p=_number(row, "top_p"),
        seed=_whole(row, "seed"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        max_new_tokens=_whole({"max_tokens": limit}, "max_tokens"),
        n=_whole(row, "n") or 1,
    )


def _number(row: Mapping[str, Any], key: str) -> float | None:
    """Text too: a table knows nothing else. An empty cell says nothing."""
    value = row.get(key)
    if value is None or value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise RequestError(f"{key} must be a number, not {value!r}") from None


def _whole(row: Mapping[str, Any], key: str) -> int | None:
    value = _number(row, key)
    if value is not None and not value.is_integer():
        raise RequestError(f"{key} must be a whole number, not {row[key]!r}")
    return None if value is None else int(value)


def _usage(row: Mapping[str, Any]) -> Usage | None:
    """Of the row, or of the response in it."""
    response = row.get("response")
    for place in (row, response, response.get("body") if isinstance(response, Mapping) else None):
        counted = place.get("usage") if isinstance(place, Mapping) else None
        if isinstance(counted, Mapping):
            prompt, completion = (counted.get(f"{kind}_tokens") for kind in ("prompt", "completion"))
            if isinstance(prompt, int) and isinstance(completion, int) and min(prompt, completion) >= 0:
                return Usage(prompt_tokens=prompt, completion_tokens=completion)
    return None


def _time_s(row: Mapping[str, Any], place: str) -> float | None:
    """Seconds or milliseconds since the epoch, or ISO 8601; without a time zone it is UTC."""
    value = next((row[key] for key in TIME_KEYS if row.get(key) not in (None, "")), None)
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        try:
            moment = datetime.fromisoformat(str(value))
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise InputFileError(f"{place}: {value!r} is no time; give seconds since 1970, or ISO 8601") from None
    if not math.isfinite(seconds):
        raise InputFileError(f"{place}: {value!r} is no time")
    return seconds / 1000 if abs(seconds) >= LEAST_MILLISECONDS else seconds


def _text_or_none(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None
