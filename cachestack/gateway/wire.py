"""JSON in and out, and server-sent events, as bytes."""

from __future__ import annotations

from typing import Any

import orjson

from cachestack.errors import RequestError

DONE = b"data: [DONE]\n\n"


def read_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that a body holds. Raises RequestError: no JSON (NaN and lone surrogates are none), no object."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        what = "the body is empty" if not raw.strip() else f"the body is not valid JSON: {error}"
        raise RequestError(f"{what}; send one JSON object") from None
    if not isinstance(value, dict):
        raise RequestError(f"the body must be a JSON object, not a {type(value).__name__}")
    return value


def dump(value: Any) -> bytes:
    """Text that UTF-8 cannot say (a model may emit half of a surrogate pair) is sent with a replacement character."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_encodable(value))


def event(value: Any, name: str | None = None) -> bytes:
    """One server-sent event. JSON has no raw line ends, so one `data` line holds it."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + dump(value) + b"\n\n"


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
        case dict():
            return {_encodable(key): _encodable(item) for key, item in value.items()}
        case list() | tuple():
            return [_encodable(item) for item in value]
        case _:
            return value
